import { useSignal } from '@preact/signals';
import { here, nodes, useLive } from '../lib/cluster';
import { canChat, loadModels, models } from '../lib/models';
import { usePoll } from '../lib/poll';
import { CodeBlock } from '../markdown/Markdown';
import { Page } from './Page';
import { snippets } from './snippets';

const refreshMilliseconds = 30_000;

/** ConnectPage shows how other programs reach the cluster. */
export function ConnectPage() {
  useLive();
  usePoll(loadModels, refreshMilliseconds);
  const chosen = useSignal('');
  const address = useSignal('');
  const names = models.value?.filter(canChat).map(({ name }) => name) ?? [];
  const model = chosen.value || names[0] || 'MODEL';
  const addresses = addressesOf(location.origin, nodes.value.map(({ member }) => member));
  const origin = addresses.some(({ url }) => url === address.value) ? address.value : location.origin;
  const local = /^https?:\/\/(localhost|127\.|\[::1\])/.test(origin);
  return (
    <Page title="Connect">
      <p>
        Every node speaks the APIs of OpenAI, Ollama and Anthropic, and answers for all of them: any of their addresses will do. Where the node asks for an API key, put yours in the place of <code>YOUR_API_KEY</code>; where it asks for none, any word will do.
      </p>
      {local && (
        <p class="note">
          <code>{origin}</code> is reached from this machine only. Start the node with <code>--listen 0.0.0.0:9494</code> to let others in; it then makes an API key, unless you give one with <code>--api-key</code>.
        </p>
      )}
      <div class="row filters">
        {addresses.length > 1 && (
          <label class="field">
            <span>Address in the examples</span>
            <select value={origin} onChange={(event) => (address.value = event.currentTarget.value)}>
              {addresses.map(({ url, name }) => (
                <option key={url} value={url}>
                  {name}
                </option>
              ))}
            </select>
          </label>
        )}
        {names.length > 1 && (
          <label class="field">
            <span>Model in the examples</span>
            <select value={model} onChange={(event) => (chosen.value = event.currentTarget.value)}>
              {names.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
        )}
      </div>
      {snippets(origin, model).map(({ title, note, language, code }) => (
        <section key={title} aria-label={title}>
          <h2>{title}</h2>
          {note && <p>{note}</p>}
          <CodeBlock code={code} language={language} />
        </section>
      ))}
      <p class="hint">
        {here.value && `Version ${here.value.node.version} · `}
        <a href="/ui/licenses.md" target="_blank" rel="noopener">
          Licences of the parts of this page
        </a>
      </p>
    </Page>
  );
}

/** addressesOf are the addresses that programs can use: that of this page, and those that nodes tell others. */
export function addressesOf(origin: string, members: { name: string; addr: string; state: string }[]): { url: string; name: string }[] {
  const out = [{ url: origin, name: `${origin} (this page)` }];
  for (const { name, addr, state } of members) {
    const url = /^https?:\/\//.test(addr) ? addr.replace(/\/$/, '') : '';
    if (url !== '' && state !== 'failed' && state !== 'left' && !out.some((known) => known.url === url)) out.push({ url, name: `${url} (${name})` });
  }
  return out;
}
