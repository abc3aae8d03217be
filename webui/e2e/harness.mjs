// What the browser tests share: one Chromium, a page that records what must not
// happen, and either the stand-in or a real node (BASE_URL).

import assert from 'node:assert/strict';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';
import { startFakeNode } from './fake-node.mjs';

const flags = ['--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** The address of a real node, or undefined: then tests get the stand-in. */
export const baseURL = process.env.BASE_URL?.replace(/\/$/, '');

/** Where screenshots go. */
export const outDir = process.env.OUT_DIR ?? mkdtempSync(join(tmpdir(), 'tandem-ui-'));

/** start opens the browser, for a node at an address, or for baseURL or the stand-in. */
export async function start(url = baseURL) {
  const fake = url ? null : await startFakeNode();
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', chromiumSandbox: false, args: flags });
  return {
    fake,
    url: url ?? fake.url,
    browser,
    async closePages() {
      await Promise.all(browser.contexts().map((context) => context.close()));
    },
    async close() {
      await browser.close();
      fake?.close();
    },
  };
}

/** Runs in the page before anything else. */
function record() {
  const seen = { violations: [], longTasks: [], firstTurn: 0 };
  Object.defineProperty(window, 'seen', { value: seen });
  document.addEventListener('securitypolicyviolation', (event) => seen.violations.push(`${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
  new PerformanceObserver((list) => seen.longTasks.push(...list.getEntries().map(({ duration }) => duration))).observe({ type: 'longtask', buffered: true });
  new MutationObserver((_, observer) => {
    if (document.querySelector('.turn') === null) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => (seen.firstTurn = performance.now())));
  }).observe(document, { childList: true, subtree: true });
}

/**
 * newPage opens the page in a context, a fresh one unless given. page.faults
 * collects errors, broken policy and requests to other places; page.clean()
 * asserts that there were none.
 */
export async function newPage({ browser, url }, { context, options = {}, hash = '' } = {}) {
  context ??= await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.setDefaultTimeout(15_000);
  const page = await context.newPage();
  page.faults = [];
  await page.addInitScript(record);
  if (baseURL) await page.route('**/v1/chat/completions', shorten);
  page.on('pageerror', (err) => page.faults.push(`error: ${err.stack ?? err}`));
  page.on('console', (message) => {
    if (/Content Security Policy|Trusted/i.test(message.text())) page.faults.push(message.text());
  });
  page.on('request', (request) => {
    if (!request.url().startsWith(url) && !request.url().startsWith('data:') && !request.url().startsWith('blob:')) page.faults.push(`request to ${request.url()}`);
  });
  page.clean = async () => {
    assert.deepEqual(await page.evaluate(() => window.seen.violations), []);
    assert.deepEqual(page.faults, []);
  };
  await page.goto(`${url}/${hash}`);
  await page.getByRole('link', { name: 'New chat' }).first().waitFor({ state: 'attached' });
  return page;
}

/** A real model may talk for minutes. Only questions that ask for length get it. */
async function shorten(route) {
  const body = route.request().postDataJSON();
  const long = /long|Continue your last answer/.test(body.messages.at(-1).content);
  await route.continue({ postData: JSON.stringify(long ? body : { ...body, max_tokens: 30 }) });
}

export async function ask(page, question) {
  // There is a model to ask only once the list of models has come.
  await page.locator('.model-select select').waitFor();
  await page.getByLabel('Message', { exact: true }).fill(question);
  await page.keyboard.press('Enter');
}

/** Waits until a condition of the page or the node holds. */
export async function until(what, condition, milliseconds = 10_000) {
  const end = Date.now() + milliseconds;
  for (;;) {
    if (await condition()) return;
    if (Date.now() > end) assert.fail(`not within ${milliseconds} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

export const answer = (page, n = -1) => (n < 0 ? page.locator('.turn.assistant').last() : page.locator('.turn.assistant').nth(n));

/** The words of an answer, without what stands under it. */
export const answerText = (page, n = -1) => answer(page, n).locator('.md').innerText();

export const idle = (page) => page.getByRole('button', { name: 'Send', exact: true }).waitFor({ timeout: 60_000 });

/** How many requests the node runs. */
export async function running({ url }) {
  const response = await fetch(`${url}/admin/status`, { headers: process.env.NODE_API_KEY ? { Authorization: `Bearer ${process.env.NODE_API_KEY}` } : {} });
  return (await response.json()).requests.running;
}
