// The other pages, phone width, colours, keyboard and accessibility.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { after, afterEach, before, describe, it } from 'node:test';
import { answer, ask, baseURL, idle, newPage, outDir, start, until } from './harness.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const fakeOnly = { skip: baseURL ? 'needs the stand-in' : false };

let env;
before(async () => {
  env = await start();
  console.log(`screenshots in ${outDir}`);
});
after(async () => env.close());

const shot = (page, name) => page.screenshot({ path: join(outDir, `ui-${name}.png`) });

async function noSideScroll(page) {
  const wide = await page.evaluate(() => {
    const limit = document.documentElement.clientWidth + 1;
    return document.documentElement.scrollWidth > limit ? [...document.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > limit).map((e) => `${e.tagName}.${e.className}`) : [];
  });
  assert.deepEqual(wide, []);
}

async function accessible(page) {
  // Evaluated through the debugger, which the page's policy does not govern.
  await page.evaluate(axe);
  const result = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  const found = result.violations.filter(({ impact }) => impact === 'serious' || impact === 'critical' || impact === 'moderate');
  assert.deepEqual(
    found.map(({ id, impact, nodes }) => ({ id, impact, nodes: nodes.map(({ html, failureSummary }) => `${html.slice(0, 200)} ${failureSummary}`) })),
    [],
  );
}

/** A chat with all that an answer can hold. */
async function richChat(page) {
  await ask(page, 'think about two and two');
  await idle(page);
  await ask(page, 'show me how a table and some Python look');
  await idle(page);
  await ask(page, 'fail please');
  await idle(page);
  await ask(page, 'show me once more');
  await idle(page);
}

const looks = [
  ['light', { colorScheme: 'light' }],
  ['dark', { colorScheme: 'dark' }],
  ['phone', { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, colorScheme: 'light' }],
  ['phone-dark', { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, colorScheme: 'dark' }],
];

for (const [look, options] of looks) {
  describe(look, () => {
    let page;
    before(async () => (page = await newPage(env, { options })));
    after(async () => page.context().close());
    const phone = look.startsWith('phone');

    it('new chat', async () => {
      await page.locator('.welcome').waitFor();
      await page.locator('.model-select select').waitFor();
      await shot(page, `${look}-new`);
      await noSideScroll(page);
      await accessible(page);
    });

    it('chat', async () => {
      if (phone) {
        await page.locator('.model-select select').waitFor();
        await page.getByLabel('Message', { exact: true }).fill('show me how a table and some Python look');
        await page.getByRole('button', { name: 'Send', exact: true }).click();
        await answer(page).waitFor();
        await idle(page);
      } else if (!baseURL) {
        await richChat(page);
      } else {
        await ask(page, 'Show a table and some Python.');
        await idle(page);
      }
      await page.waitForTimeout(300);
      await shot(page, `${look}-chat`);
      await page.locator('.thread').evaluate((thread) => (thread.scrollTop = 0));
      await page.waitForTimeout(200);
      await shot(page, `${look}-chat-top`);
      await noSideScroll(page);
      await accessible(page);
    });

    it('settings of the chat', async () => {
      await page.getByRole('button', { name: 'Settings of this chat' }).click();
      await page.getByLabel('System prompt').waitFor();
      await shot(page, `${look}-settings`);
      await noSideScroll(page);
      await accessible(page);
      await page.keyboard.press('Escape');
      assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Settings of this chat');
    });

    for (const name of ['Models', 'KV', 'Status', 'Connect']) {
      it(name, async () => {
        if (phone) await page.getByRole('button', { name: 'Menu' }).click();
        if (phone && name === 'Models') {
          await page.waitForTimeout(300);
          await shot(page, `${look}-menu`);
          await accessible(page);
        }
        await page.getByRole('link', { name, exact: true }).click();
        await page.getByRole('heading', { name, level: 1 }).waitFor();
        await page.waitForTimeout(name === 'Status' ? 3000 : 500);
        await shot(page, `${look}-${name.toLowerCase()}`);
        await noSideScroll(page);
        await accessible(page);
      });
    }

    it('has no fault', () => page.clean());
  });
}

describe('Models', () => {
  afterEach(async () => env.closePages());

  it('are loaded, unloaded, pulled and deleted', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/models' });
    const card = (name) => page.locator('.card.model', { has: page.getByRole('heading', { name, exact: true }) });
    await card('tandem-135m').getByText('in memory', { exact: true }).waitFor();
    await card('other-1b').getByText('read from Ollama').waitFor();
    assert.equal(await card('other-1b').getByRole('button', { name: 'Delete other-1b' }).count(), 0);
    await card('other-1b').getByRole('button', { name: 'Load other-1b' }).click();
    await card('other-1b').getByRole('button', { name: 'Unload other-1b' }).click();
    await card('other-1b').getByText('on disk', { exact: true }).waitFor();

    await page.getByLabel('Get a model').fill('smollm2:135m');
    await page.keyboard.press('Enter');
    await until('progress', async () => Number(await page.getByRole('progressbar').getAttribute('value')) > 0);
    await shot(page, 'pull');
    // The download goes on while another page is looked at.
    await page.getByRole('link', { name: 'Connect', exact: true }).click();
    await page.getByRole('link', { name: 'Models', exact: true }).click();
    await card('smollm2:135m').waitFor();
    await card('smollm2:135m').getByRole('button', { name: 'Delete smollm2:135m' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await until('it is gone', async () => (await card('smollm2:135m').count()) === 0);

    await page.getByLabel('Get a model').fill('missing:1b');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').filter({ hasText: 'not in the registry' }).waitFor();
    await page.getByLabel('Get a model').fill('slow:1b');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Cancel' }).click();
    await until('it was cancelled', async () => (await page.getByRole('progressbar').count()) === 0);
    await page.clean();
  });
});

describe('Status', () => {
  afterEach(async () => env.closePages());

  it('shows what runs and what happens', async () => {
    const page = await newPage(env, { hash: '#/status' });
    const figure = (name) => page.locator('.figure', { hasText: name }).locator('dd');
    await until('a rate', async () => /^[\d.,]+$/.test(await figure('Writing').innerText()), 10_000);
    assert.equal(await figure('Running').innerText(), '0');
    if (!baseURL) await page.locator('.events li', { hasText: '612 in, 576 of them cached, 48 out' }).first().waitFor();
    await page.clean();
  });
});

describe('Nodes', () => {
  afterEach(async () => env.closePages());

  it('are shown with their ways and problems, as soon as there are several', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/status' });
    await page.getByText('attic').first().waitFor();
    assert.equal(await page.getByRole('region', { name: 'Nodes' }).count(), 0);
    const member = (id, name, state, addr) => ({ id, name, state, addr, role: 'hybrid', version: '0.1.0', models: ['smol'] });
    env.fake.state.cluster = {
      leader: 'n2',
      quorum: false,
      reason: 'no quorum: 1 of 2 voters, missing cellar',
      members: [member('n1', 'attic', 'ready', '10.0.0.1:9494'), member('n2', 'cellar', 'failed', '10.0.0.2:9496')],
      problems: ['cellar does not answer over UDP on port 9495'],
      links: [{ id: 'n2', transport: 'quic', rtt_ms: 0.42 }],
    };
    const nodes = page.getByRole('region', { name: 'Nodes' });
    await nodes.getByText('missing cellar').waitFor();
    await nodes.getByText('over UDP on port 9495').waitFor();
    const text = await nodes.innerText();
    assert.match(text, /ready\s+attic\s+hybrid · this node/);
    assert.match(text, /failed\s+cellar\s+hybrid · quic, 0\.4 ms · 10\.0\.0\.2:9496 · leads · 1 model$/m);
    delete env.fake.state.cluster;
    await page.clean();
  });
});

describe('KV', () => {
  afterEach(async () => env.closePages());

  it('shows what is kept, pins it and evicts it', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/kv' });
    const card = (name) => page.locator('.card.kv-prefix', { hasText: name });
    await card('You are a careful assistant').getByText('used 41 times').waitFor();
    assert.match(await card('You are a careful assistant').innerText(), /768 tokens · 17.7 MB in memory · 17.7 MB on disk/);
    assert.match(await card('How do I true a wheel').innerText(), /18 of 30 blocks/);
    await page.getByText('Nothing is kept: its state after a prefix').waitFor();
    await page.getByText('And 3 that were used longer ago').waitFor();
    assert.ok(Number(await page.getByRole('progressbar', { name: 'Memory in use' }).getAttribute('value')) > 0);

    // By keyboard alone: what is pinned stays, what is not goes.
    const evict = card('You are a careful assistant').getByRole('button', { name: /^Evict/ });
    await evict.focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByText('2 prefixes that go on from it').waitFor();
    await page.keyboard.press('Escape');
    await until('the dialog is gone', async () => (await page.getByRole('dialog').count()) === 0);
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')?.slice(0, 9)), 'Evict You');
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByRole('button', { name: 'Evict' }).click();
    await page.getByRole('alert').filter({ hasText: '12 stay, because they are pinned' }).waitFor();

    await card('You are a careful assistant').getByRole('button', { name: /^Unpin/ }).focus();
    await page.keyboard.press('Space');
    await card('You are a careful assistant').getByRole('button', { name: /^Pin/ }).waitFor();
    await evict.click();
    await page.getByRole('dialog').getByRole('button', { name: 'Evict' }).click();
    await until('it is gone', async () => (await card('You are a careful assistant').count()) === 0);

    // It follows what happens elsewhere, and says when something went wrong.
    await card('The first 256 tokens').waitFor();
    const elsewhere = env.fake.state.kv.pop();
    await until('the list is read again', async () => (await card('The first 256 tokens').count()) === 0);
    env.fake.state.kv.push(elsewhere);
    await card('The first 256 tokens').waitFor();
    await page.route('**/admin/kv/pin', (route) => route.fulfill({ status: 404, contentType: 'application/json', body: '{"error":{"message":"no such block is held"}}' }));
    await card('The first 256 tokens').getByRole('button', { name: /^Pin/ }).click();
    await page.getByRole('alert').filter({ hasText: 'no such block is held' }).waitFor();
    await page.clean();
  });

  it('says why nothing is kept', fakeOnly, async () => {
    const page = await newPage(env);
    await page.route('**/admin/kv', (route) => route.fulfill({ contentType: 'application/json', body: '{"enabled":false,"reason":"--kv-ram is 0","models":[]}' }));
    await page.goto(`${env.url}/#/kv`);
    await page.getByText('Nothing is kept on this node: --kv-ram is 0').waitFor();
    await page.clean();
  });
});

describe('the shell', () => {
  afterEach(async () => env.closePages());

  it('keeps a choice of colours', async () => {
    const page = await newPage(env, { options: { colorScheme: 'dark' } });
    await page.getByRole('button', { name: 'Colours of the system' }).click();
    const background = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    const light = await background();
    await page.reload();
    await page.getByRole('button', { name: 'Light colours' }).waitFor();
    assert.equal(await background(), light);
    await page.getByRole('button', { name: 'Light colours' }).click();
    assert.notEqual(await background(), light);
    await page.clean();
  });

  it('is used by keyboard', async () => {
    const page = await newPage(env);
    await page.locator('.model-select select').waitFor();
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Message');
    for (let i = 0; i < 40 && !(await page.evaluate(() => document.activeElement?.textContent === 'Skip to content')); i++) await page.keyboard.press('Shift+Tab');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'main');
    await page.clean();
  });

  it('says when the node does not answer, and goes on by itself', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/status' });
    await page.locator('.figures').waitFor();
    await page.context().setOffline(true);
    await page.locator('.banner').waitFor();
    await page.context().setOffline(false);
    await until('it answers again', async () => (await page.locator('.banner').count()) === 0, 15_000);
  });

  it('serves the page at both of its addresses', async () => {
    const page = await newPage(env);
    await page.goto(`${env.url}/ui/#/connect`);
    await page.getByRole('heading', { name: 'Connect', level: 1 }).waitFor();
    await page.clean();
  });

  it('does not flinch at a strange address', async () => {
    const page = await newPage(env, { hash: '#/chat/none' });
    await page.getByRole('heading', { name: 'This chat is not in this browser' }).waitFor();
    await page.goto(`${env.url}/#/%E0%A4%A/x`);
    await page.reload();
    await page.locator('.welcome').waitFor();
    await page.clean();
  });
});
