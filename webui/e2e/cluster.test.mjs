// Three nodes of the real program (NODE_BINARY), with the model that is built in,
// and the page of the first in Chromium.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { newPage, outDir, start, until } from './harness.mjs';

const binary = process.env.NODE_BINARY;
const model = 'tandem-tiny';
const host = (i) => `127.0.2.${i}`; // an address of its own for each: all use the same ports
const names = ['attic', 'cellar', 'garage'];
const long = 'Once upon a time there was a box in the attic that read long prompts. '.repeat(30);

async function ask(i, content) {
  const response = await fetch(`http://${host(i)}:9494/v1/chat/completions`, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ model, max_tokens: 30, messages: [{ role: 'user', content }] }) });
  assert.equal(response.status, 200, await response.clone().text());
  return response.headers.get('x-tandem-request-id');
}

describe('a real cluster', { skip: binary ? false : 'needs NODE_BINARY' }, () => {
  const folder = binary ? mkdtempSync(join(tmpdir(), 'tandem-cluster-')) : '';
  const nodes = [];
  let env;

  before(async () => {
    for (const [k, name] of names.entries()) {
      const i = k + 1;
      const log = openSync(join(folder, `${name}.log`), 'w');
      const flags = ['serve', '--name', name, '--data-dir', join(folder, name), '--listen', `${host(i)}:9494`, '--gossip', `${host(i)}:9495`, '--peer', `${host(i)}:9496`, '--model', model, '--ctx', '2048', '--threads', '1'];
      if (i > 1) flags.push('--join', host(1));
      nodes.push(spawn(binary, flags, { stdio: ['ignore', log, log], env: { ...process.env, HOME: folder, NODE_SECRET: 'a secret of the browser tests' } }));
      await until(`${name} is ready: ${readFileSync(join(folder, `${name}.log`), 'utf8')}`, async () => (await fetch(`http://${host(i)}:9494/readyz`).catch(() => null))?.ok, 60_000);
    }
    await until('they know each other', async () => {
      const status = await (await fetch(`http://${host(1)}:9494/admin/status`)).json();
      return status.cluster.members.filter(({ state, models }) => state === 'ready' && models.length > 0).length === names.length;
    }, 60_000);
    env = await start(`http://${host(1)}:9494`);
  });

  after(async () => {
    await env?.close();
    for (const child of nodes) child.kill('SIGTERM');
    await Promise.all(nodes.map((child) => (child.exitCode !== null || child.signalCode !== null ? null : new Promise((resolve) => child.once('exit', resolve)))));
    rmSync(folder, { recursive: true, force: true });
  });

  const card = (page, name) => page.locator('.card.node', { has: page.getByRole('heading', { name, exact: true }) });

  it('shows all nodes and what happens on each', async () => {
    const page = await newPage(env, { hash: '#/cluster' });
    for (const name of names) await card(page, name).getByText('ready', { exact: true }).waitFor({ timeout: 30_000 });
    // A busy machine may measure a wire as slow, which the page then says.
    await until('they have elected a leader', async () => /All 3 nodes answer|less than half|does not work now/.test(await page.getByRole('region', { name: 'Diagnosis' }).innerText()), 30_000);
    await page.getByRole('region', { name: 'Agreement' }).getByText('There is a quorum').waitFor({ timeout: 30_000 });
    await until('links are measured', async () => /Gbit\/s/.test(await page.getByRole('region', { name: 'Links' }).innerText()), 60_000);
    await page.getByText(`--join ${host(1)}:9495`).waitFor();

    // Requests that other nodes take are seen here, those of before and those of now.
    const earlier = await ask(2, `earlier ${long}`);
    await page.goto(`${env.url}/#/requests`);
    const request = (id) => page.locator('.card.request', { has: page.locator(`#request-${id}`) });
    await request(earlier).getByText(/ended by/).waitFor();
    const now = await ask(3, `now ${long}`);
    await request(now).getByText(/ended by/).waitFor();
    assert.match(await request(now).getByRole('img').getAttribute('aria-label'), /prompt computed .* answer written|answer written/);
    await request(now).getByRole('button', { name: /^Details/ }).click();
    await request(now).getByText('Taken by garage').waitFor();
    await page.screenshot({ path: join(outDir, 'real-requests.png') });
    await page.clean();
  });

  it('keeps, pins, copies and evicts KV on any node', async () => {
    await ask(2, `kept ${long}`);
    const page = await newPage(env, { hash: '#/kv' });
    const prefix = page.locator('.card.kv-prefix', { hasText: 'kept Once upon' }).first();
    await prefix.waitFor();
    const holder = /on (\w+)$/.exec(await prefix.getByRole('button', { name: /^Pin .* on \w+$/ }).first().getAttribute('aria-label'))[1]; // other nodes tell later than this one
    await prefix.getByRole('button', { name: new RegExp(`^Pin .* on ${holder}$`) }).click();
    await prefix.getByRole('button', { name: new RegExp(`^Unpin .* on ${holder}$`) }).click();
    await prefix.getByRole('button', { name: new RegExp(`^Pin .* on ${holder}$`) }).waitFor();
    const copy = prefix.getByRole('button', { name: /^Copy/ }).first();
    if ((await copy.count()) > 0) {
      const to = /to (\w+)$/.exec(await copy.getAttribute('aria-label'))[1];
      await copy.click();
      await page.getByRole('alert').filter({ hasText: `blocks copied to ${to}` }).waitFor();
      await prefix.getByRole('button', { name: new RegExp(`^Evict .* on ${to}$`) }).waitFor();
    }
    await prefix.getByRole('button', { name: new RegExp(`^Evict .* on ${holder}$`) }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Evict' }).click();
    await until('it is gone there', async () => (await prefix.getByRole('button', { name: new RegExp(`^Evict .* on ${holder}$`) }).count()) === 0);
    await page.screenshot({ path: join(outDir, 'real-kv.png') });
    await page.clean();
  });

  it('loads and unloads models on any node', async () => {
    const page = await newPage(env, { hash: '#/models' });
    const shown = page.locator('.card.model', { has: page.getByRole('heading', { name: model, exact: true }) });
    await shown.getByText('in memory on 3 of 3 nodes').waitFor();
    await shown.getByRole('button', { name: `Unload ${model} on garage` }).click();
    await shown.getByText('in memory on 2 of 3 nodes').waitFor();
    await shown.getByRole('button', { name: `Load ${model} on garage` }).click();
    await shown.getByText('in memory on 3 of 3 nodes').waitFor();
    await page.clean();
  });

  it('drains a node, gives it a role, and shows and removes one that is lost', async () => {
    const page = await newPage(env, { hash: '#/cluster' });
    const garage = card(page, 'garage');
    await garage.getByRole('button', { name: 'Drain garage' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain' }).click();
    await garage.getByText('draining', { exact: true }).waitFor();
    await garage.getByRole('button', { name: 'Resume garage' }).click();
    await garage.getByText('ready', { exact: true }).waitFor();
    await garage.getByLabel('Role of garage').selectOption('decode');
    await garage.getByText(/^decode · /).waitFor();

    nodes[1].kill('SIGKILL');
    const killed = Date.now();
    const cellar = card(page, 'cellar');
    await cellar.getByText('lost', { exact: true }).waitFor({ timeout: 30_000 });
    console.log(`a killed node is shown as lost after ${Date.now() - killed} ms`);
    await page.getByText('cellar does not answer any more').waitFor();
    await page.screenshot({ path: join(outDir, 'real-lost.png') });
    await ask(1, 'are you there?');
    await cellar.getByRole('button', { name: 'Remove cellar' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await cellar.getByText('gone', { exact: true }).waitFor();
    await until('it is not missed any more', async () => !(await page.getByRole('region', { name: 'Diagnosis' }).innerText()).includes('cellar does not answer'));
    await page.clean();
  });

  it('sets what all nodes share', async () => {
    const page = await newPage(env, { hash: '#/planner' });
    await page.getByText('Is the second box worth it?').waitFor();
    await page.getByLabel('First token within, in ms', { exact: true }).fill('750');
    await page.keyboard.press('Enter');
    await until('the other node knows', async () => JSON.stringify(await (await fetch(`http://${host(3)}:9494/admin/cluster/settings`)).json()).includes('"value":"750"'), 20_000);
    await page.clean();
  });
});
