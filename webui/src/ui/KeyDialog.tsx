import { useState } from 'preact/hooks';
import { keyQuestion, setApiKey } from '../lib/api';
import { Dialog } from './Dialog';

/** KeyDialog asks for the API key when the node wants one. */
export function KeyDialog() {
  const question = keyQuestion.value;
  return question === null ? null : <KeyForm refused={question.refused} answer={question.answer} />;
}

function KeyForm({ refused, answer }: { refused: boolean; answer: (given: boolean) => void }) {
  const [key, setKey] = useState('');
  const [remember, setRemember] = useState(false);
  const submit = () => {
    if (key.trim() === '') return;
    setApiKey(key.trim(), remember);
    answer(true);
  };
  return (
    <Dialog title="This node asks for an API key" onClose={() => answer(false)} onSubmit={submit}>
      <p>{refused ? 'The key was not accepted. Check it and enter it again.' : 'It is the value that the node was started with as --api-key.'}</p>
      <label class="field">
        <span>API key</span>
        <input type="password" autocomplete="off" required value={key} onInput={(event) => setKey(event.currentTarget.value)} />
      </label>
      <label class="check">
        <input type="checkbox" checked={remember} onChange={(event) => setRemember(event.currentTarget.checked)} />
        <span>Remember it in this browser; otherwise until the tab is closed</span>
      </label>
      <div class="row end">
        <button type="button" class="button" onClick={() => answer(false)}>
          Not now
        </button>
        <button type="submit" class="button primary">
          Use key
        </button>
      </div>
    </Dialog>
  );
}
