import { useSignal } from '@preact/signals';
import { canChat, loadModels, models } from '../lib/models';
import { usePoll } from '../lib/poll';
import { CodeBlock } from '../markdown/Markdown';
import { Page } from './Page';
import { snippets } from './snippets';

const refreshMilliseconds = 30_000;

/** ConnectPage shows how other programs reach this node. */
export function ConnectPage() {
  usePoll(loadModels, refreshMilliseconds);
  const chosen = useSignal('');
  const names = models.value?.filter(canChat).map(({ name }) => name) ?? [];
  const model = chosen.value || names[0] || 'MODEL';
  return (
    <Page title="Connect">
      <p>
        This node speaks the APIs of OpenAI and Ollama at <code>{location.origin}</code>. Programs on other machines need an address that they can reach: start the node with <code>--listen</code> for that, and with{' '}
        <code>--api-key</code> if you want a key. Without a key, any word will do where a program insists on one.
      </p>
      {names.length > 1 && (
        <label class="field inline">
          <span>Model in the examples</span>
          <select value={model} onChange={(event) => (chosen.value = event.currentTarget.value)}>
            {names.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
      )}
      {snippets(location.origin, model).map(({ title, note, language, code }) => (
        <section key={title} aria-label={title}>
          <h2>{title}</h2>
          {note && <p>{note}</p>}
          <CodeBlock code={code} language={language} />
        </section>
      ))}
      <p class="hint">
        <a href="/ui/licenses.md" target="_blank" rel="noopener">
          Licences of the parts of this page
        </a>
      </p>
    </Page>
  );
}
