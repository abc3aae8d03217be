import { useEffect, useState } from 'preact/hooks';
import { copyText } from '../lib/clipboard';
import { Icon } from './Icon';
import { announce } from './announce';

const shownMilliseconds = 1600;

/** CopyButton puts text on the clipboard and says for a moment whether that worked. */
export function CopyButton({ text, label }: { text: string; label: string }) {
  const [state, setState] = useState<'idle' | 'copied' | 'failed'>('idle');
  useEffect(() => {
    if (state === 'idle') return;
    const timer = setTimeout(() => setState('idle'), shownMilliseconds);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = async () => {
    const copied = await copyText(text);
    setState(copied ? 'copied' : 'failed');
    announce(copied ? 'Copied' : 'The browser did not allow copying');
  };
  return (
    <button type="button" class="button quiet" aria-label={label} title={label} onClick={copy}>
      <Icon name={state === 'copied' ? 'check' : 'copy'} />
      <span aria-hidden="true">{state === 'copied' ? 'Copied' : state === 'failed' ? 'Not allowed' : 'Copy'}</span>
    </button>
  );
}
