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

    for (const name of ['Cluster', 'Requests', 'KV', 'Models', 'Planner', 'Connect']) {
      it(name, async () => {
        if (phone) await page.getByRole('button', { name: 'Menu' }).click();
        if (phone && name === 'Cluster') {
          await page.waitForTimeout(300);
          await shot(page, `${look}-menu`);
          await accessible(page);
        }
        await page.getByRole('link', { name, exact: true }).click();
        await page.getByRole('heading', { name, level: 1 }).waitFor();
        await page.waitForTimeout(name === 'Cluster' ? 2500 : 700);
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
    await page.getByRole('button', { name: 'Cancel the download of slow:1b' }).click();
    await until('it was cancelled', async () => (await page.getByRole('progressbar').count()) === 0);
    await page.clean();
  });
});

describe('Cluster', () => {
  afterEach(async () => env.closePages());

  it('shows what runs and what happens, also under its old address', async () => {
    const page = await newPage(env, { hash: '#/status' });
    await page.getByRole('heading', { name: 'Cluster', level: 1 }).waitFor();
    const figure = (name) => page.locator('.figure', { hasText: name }).locator('dd');
    await until('a rate', async () => /^[\d.,]+$/.test(await figure('Writing').innerText()), 10_000);
    assert.equal(await figure('Running').innerText(), '0');
    await page.locator('.events li', { hasText: 'Loaded' }).first().waitFor();
    await page.clean();
  });

  it('of one node says how the next one joins', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/cluster' });
    await page.getByText('attic answers, alone').waitFor();
    const join = page.getByRole('region', { name: 'One more node' });
    await join.getByText('--join 10.0.0.1:9495').waitFor();
    await join.getByRole('img', { name: 'The command as a QR code' }).waitFor();
    assert.equal(await page.getByRole('region', { name: 'Links' }).count(), 0);
    assert.equal(await page.getByRole('button', { name: /^Drain/ }).count(), 0);
    // Without keys the secret is not told, and the page says why.
    await join.getByRole('button', { name: 'Show the secret' }).click();
    await join.getByRole('alert').filter({ hasText: 'asks for no API key' }).waitFor();
    await page.clean();
  });
});

/** A cluster of three nodes, as long as the tests of a block run. */
function threeNodes() {
  before(() => env.fake?.cluster());
  after(() => env.fake?.alone());
  afterEach(async () => env.closePages());
}

describe('three nodes', { skip: fakeOnly.skip }, () => {
  threeNodes();
  const nodeCard = (page, name) => page.locator('.card.node', { has: page.getByRole('heading', { name, exact: true }) });

  for (const [look, options] of looks) {
    it(`are shown on every page: ${look}`, async () => {
      const page = await newPage(env, { options });
      for (const path of ['cluster', 'requests', 'kv', 'models', 'planner', 'connect']) {
        await page.goto(`${env.url}/#/${path}`);
        await page.locator('.page h1').waitFor();
        if (path !== 'connect') await page.getByText('cellar').first().waitFor();
        await page.waitForTimeout(1200);
        if (path === 'requests') await page.getByRole('button', { name: /^Details of the request .*attic/ }).last().click();
        await shot(page, `cluster-${look}-${path}`);
        await page.screenshot({ path: join(outDir, `ui-cluster-${look}-${path}-whole.png`), fullPage: true });
        await noSideScroll(page);
        await accessible(page);
      }
      await page.clean();
    });
  }

  it('are drained, given a role, and told apart when they are lost, by keyboard', async () => {
    const page = await newPage(env, { hash: '#/cluster' });
    const cellar = nodeCard(page, 'cellar');
    await cellar.getByText('ready', { exact: true }).waitFor();
    assert.match(await cellar.innerText(), /prefill · leads · version 0\.1\.0/);
    assert.match(await nodeCard(page, 'attic').innerText(), /serves this page · votes/);
    const links = page.getByRole('region', { name: 'Links' });
    await links.getByText('0.94 Gbit/s').first().waitFor();
    assert.match(await links.getByRole('row').filter({ hasText: 'slower than before' }).innerText(), /attic\s+garage\s+QUIC\s+0\.4 ms\s+TCP/);
    await page.getByText('KV comes from attic to garage at less than half').waitFor();
    await page.getByText('There is a quorum: cellar leads. 3 nodes vote').waitFor();

    await cellar.getByRole('button', { name: 'Drain cellar' }).focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByText('cellar finishes what it has').waitFor();
    await page.keyboard.press('Tab'); // from Cancel, which has the focus
    await page.keyboard.press('Enter');
    await cellar.getByText('draining', { exact: true }).waitFor();
    await page.getByText('cellar finishes what it has and gets nothing new').waitFor();
    await cellar.getByRole('button', { name: 'Resume cellar' }).click();
    await cellar.getByText('ready', { exact: true }).waitFor();
    await cellar.getByLabel('Role of cellar').selectOption('decode');
    await cellar.getByText(/^decode · /).waitFor();
    assert.deepEqual(env.fake.state.asked.filter(([, path]) => /drain|role/.test(path)), [
      ['n2', '/admin/cluster/drain', { on: true }],
      ['n2', '/admin/cluster/drain', { on: false }],
      ['n2', '/admin/cluster/role', { role: 'decode' }],
    ]);

    // A node that is lost is said to be, and so is a lost quorum.
    const garage = env.fake.state.nodes[2];
    garage.state = 'failed';
    Object.assign(env.fake.state.cluster, { quorum: false, reason: 'no quorum: 1 of 3 voters, missing cellar and garage' });
    const lost = nodeCard(page, 'garage');
    await lost.getByText('lost', { exact: true }).waitFor();
    await page.getByText('garage does not answer any more').waitFor();
    await page.getByText('1 of 3 voters, missing cellar and garage').waitFor();
    await accessible(page);
    await shot(page, 'cluster-lost');
    await lost.getByRole('button', { name: 'Remove garage' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await until('it is gone', async () => (await lost.count()) === 0);
    assert.deepEqual(env.fake.state.asked.filter(([, path]) => path.endsWith('remove')).map(([node]) => node).sort(), ['n1', 'n2']);
    env.fake.cluster();
    await lost.getByText('ready', { exact: true }).waitFor();

    // One that tells nothing is silent; it need not be lost.
    env.fake.state.nodes[1].mute = true;
    await page.getByText('cellar has told nothing for a while').waitFor({ timeout: 20_000 });
    env.fake.state.nodes[1].mute = false;
    await cellar.getByText('ready', { exact: true }).waitFor();
    await page.clean();
  });

  it('tell of requests where their time went and what other ways would have cost', async () => {
    const page = await newPage(env, { hash: '#/requests' });
    const card = (text) => page.locator('.card.request', { hasText: text });
    const split = card('cellar computes the prompt in 2.1 s');
    await split.waitFor();
    await until('all of history', async () => (await page.locator('.card.request').count()) === 4);
    assert.match(await split.getByRole('img').getAttribute('aria-label'), /queued 50 ms, computed elsewhere, transferred 2\.15 s, prompt computed 150 ms, answer written 1\.95 s/);
    assert.match(await split.innerText(), /2,400 in · 90 out · first token 2\.40 s · 45\.6 tokens\/s/);
    await split.getByRole('button', { name: /^Details/ }).focus();
    await page.keyboard.press('Enter');
    const text = await split.innerText();
    assert.match(text, /attic \(chosen\)/);
    assert.match(text, /2\.90 s 700 ms more/);
    assert.match(text, /no candidate: it has not this model/);
    assert.match(text, /computed by cellar, KV pulled meanwhile, expected to take 2\.10 s/);
    assert.match(text, /computed on attic itself: 15\.8 s, 13\.7 s more/);
    assert.match(text, /KV from cellar over TCP: 37 blocks \(54\.6 MB\) in 2\.15 s/);
    await card('garage is free').getByRole('button', { name: /^Details/ }).click();
    await page.getByText('After 31 tokens it went on from garage to attic').waitFor();

    await page.getByLabel('Find').fill('cellar is faster');
    await until('one is found', async () => (await page.locator('.card.request').count()) === 1);
    await page.getByText('1 of 4 requests').waitFor();
    await page.getByLabel('Find').fill('');
    await page.getByLabel('Show').selectOption('rejected');
    await card('refused (429)').waitFor();
    assert.equal(await page.locator('.card.request').count(), 1);
    await page.getByLabel('Show').selectOption('');

    // Live: one that begins is shown as running, and then with its end; unless the list is held.
    env.fake.tell('n2', 'request_placed', { id: 'live-1', model: 'tandem-135m', prompt_tokens: 10, choices: 1, decode: 'cellar', prefill: 'local', reason: 'live' });
    await card('Why there: live').getByText('running').waitFor();
    env.fake.tell('n2', 'request_finished', { id: 'live-1', endpoint: 'chat', model: 'tandem-135m', outcome: 'stop', status: 200, prompt_tokens: 10, cached_tokens: 0, completion_tokens: 5, ttft_seconds: 0.1, seconds: 0.5, queue_seconds: 0, prefill_seconds: 0.1, decode_seconds: 0.4 });
    await card('Why there: live').getByText('ended by the model').waitFor();
    await page.getByRole('button', { name: 'Hold the list' }).click();
    env.fake.tell('n2', 'request_placed', { id: 'live-2', model: 'tandem-135m', prompt_tokens: 10, choices: 1, decode: 'cellar', prefill: 'local', reason: 'held back' });
    await page.waitForTimeout(700);
    assert.equal(await card('Why there: held back').count(), 0);
    await page.getByRole('button', { name: 'Go on live' }).click();
    await card('Why there: held back').waitFor();
    await page.clean();
  });

  it('flood the list of requests without filling the browser', async () => {
    const page = await newPage(env, { hash: '#/requests' });
    await page.locator('.card.request').first().waitFor();
    for (let i = 0; i < 1500; i++) env.fake.tell('n1', 'request_placed', { id: `flood-${i}`, model: 'tandem-135m', prompt_tokens: 10, choices: 1, decode: 'attic', prefill: 'local', reason: `flood ${i}` });
    await page.locator('.card.request', { hasText: 'flood 1499' }).waitFor();
    await page.getByText('400 requests, 399 running').or(page.getByText('400 requests, 400 running')).waitFor();
    assert.equal(await page.locator('.card.request').count(), 50);
    await page.getByRole('button', { name: 'Show more' }).click();
    assert.equal(await page.locator('.card.request').count(), 100);
    const long = await page.evaluate(() => Math.max(0, ...window.seen.longTasks));
    console.log(`longest task while 1,500 requests came at once: ${Math.round(long)} ms`);
    await page.clean();
  });

  it('hold KV that is pinned, evicted and copied', async () => {
    const page = await newPage(env, { hash: '#/kv' });
    const card = page.locator('.card.kv-prefix', { hasText: 'You are a careful assistant' });
    await card.getByRole('button', { name: 'Pin You are a careful assistant of a small workshop… on cellar' }).click();
    await card.getByRole('button', { name: /^Unpin .* on cellar$/ }).waitFor();
    await card.getByLabel(/^Node to copy/).selectOption({ label: 'garage' });
    await card.getByRole('button', { name: /^Copy .* to garage$/ }).click();
    await page.getByRole('alert').filter({ hasText: '12 blocks copied to garage.' }).waitFor();
    await card.getByRole('button', { name: /^Evict .* on garage$/ }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Evict' }).click();
    await until('it is gone there', async () => (await card.getByRole('button', { name: /^Evict .* on garage$/ }).count()) === 0);
    assert.equal(await card.getByRole('button', { name: /^Evict .* on cellar$/ }).count(), 1);
    assert.ok(env.fake.state.asked.some(([node, path, body]) => node === 'n3' && path === '/admin/kv/fetch' && body.from === 'n1'));
    await page.clean();
  });

  it('get models, each with its own progress, and copy them', async () => {
    const page = await newPage(env, { hash: '#/models' });
    const card = (name) => page.locator('.card.model', { has: page.getByRole('heading', { name, exact: true }) });
    await card('tandem-135m').getByText('in memory on 2 of 3 nodes').waitFor();
    await card('other-1b').getByText('more than the 12.0 GB that models may take').first().waitFor();
    await card('tandem-135m').getByRole('button', { name: 'Copy tandem-135m to garage' }).click();
    await page.getByRole('progressbar', { name: 'Download of tandem-135m on garage' }).waitFor();
    await card('tandem-135m').getByRole('button', { name: 'Load tandem-135m on garage' }).click();
    await card('tandem-135m').getByText('in memory on 3 of 3 nodes').waitFor();

    await page.getByLabel('Get a model').fill('smollm2:135m');
    await page.getByLabel('attic', { exact: true }).uncheck();
    await page.getByRole('button', { name: 'Pull' }).click();
    await page.getByRole('progressbar', { name: 'Download of smollm2:135m on cellar' }).waitFor();
    await page.getByRole('progressbar', { name: 'Download of smollm2:135m on garage' }).waitFor();
    await card('smollm2:135m').getByRole('button', { name: 'Delete smollm2:135m on cellar' }).click();
    await page.getByRole('dialog').getByText('removed from cellar').waitFor();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await card('smollm2:135m').getByRole('button', { name: 'Copy smollm2:135m to cellar' }).waitFor();
    await page.clean();
  });
});

describe('Planner', () => {
  threeNodes();

  it('says that there is no plan yet, and shows one', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/planner' });
    await page.getByText('There is no plan yet').waitFor();
    env.fake.state.planner = { mode: 'on', plan: { epoch: 4, roles: { n1: 'decode', n2: 'prefill', n3: 'hybrid' } }, reasons: ['cellar reads eight times as fast as attic'], forecast: { requests_per_second: 0.4, ttft_ms: 420 }, history: [{ time: new Date().toISOString(), reason: 'attic became decode' }] };
    const plan = page.getByRole('region', { name: 'Plan', exact: true });
    await plan.getByRole('row', { name: 'cellar prefill' }).waitFor();
    await plan.getByText('cellar reads eight times as fast').waitFor();
    await page.getByText('attic became decode').waitFor();
    await accessible(page);
    await shot(page, 'planner');
    await page.clean();
  });

  it('says whether the second box is worth it, from what was measured', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/planner' });
    const worth = page.getByRole('region', { name: 'Is the second box worth it?' });
    await worth.getByText('77.0 tokens/s together, 1.6 times attic alone').waitFor();
    await worth.getByText('attic takes 6.60 s itself. cellar computes them in 800 ms').waitFor();
    await worth.getByRole('row', { name: /^10 Gbit\/s/ }).getByText('(pays)').waitFor();
    await page.clean();
  });

  it('changes settings of the cluster, and says what is allowed', fakeOnly, async () => {
    const page = await newPage(env, { hash: '#/planner' });
    const ttft = page.getByLabel('First token within, in ms', { exact: true });
    await ttft.fill('soon');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').filter({ hasText: 'a whole number from 1 to 3600000' }).waitFor();
    await ttft.fill('800');
    await page.keyboard.press('Enter');
    await until('it is set', () => env.fake.state.settings[0].value === '800');
    await page.getByLabel('Planner', { exact: true }).selectOption('off');
    await page.getByRole('button', { name: 'Save Planner' }).click();
    await until('it is off', () => env.fake.state.settings[1].value === 'off');
    await page.clean();
  });
});

describe('weight', () => {
  afterEach(async () => env.closePages());

  it('of the page, and how soon it can be used', async () => {
    for (const hash of ['', '#/cluster', '#/requests']) {
      const page = await newPage(env, { hash });
      await (hash === '' ? page.locator('.model-select select') : page.locator('.page h1')).waitFor();
      const { sizes, ready } = await page.evaluate(() => ({
        sizes: performance.getEntriesByType('resource').filter(({ name }) => name.includes('/ui/assets/')).map(({ name, encodedBodySize, decodedBodySize }) => [name.split('/').at(-1), encodedBodySize, decodedBodySize]),
        ready: Math.round(performance.now()),
      }));
      const sum = (i) => sizes.reduce((total, size) => total + size[i], 0);
      console.log(`${hash || '#/chat'}: ${sizes.length} files, ${(sum(1) / 1000).toFixed(1)} kB as sent, ${(sum(2) / 1000).toFixed(1)} kB unpacked; usable after ${ready} ms`);
      assert.ok(sizes.filter(([name]) => name.endsWith('.js')).reduce((total, size) => total + size[2], 0) < 260_000);
      await page.context().close();
    }
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
    const page = await newPage(env, { hash: '#/cluster' });
    await page.locator('.figures').waitFor();
    await env.fake.down();
    await page.locator('.banner').waitFor();
    await env.fake.up();
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
