import type { ComponentChildren } from 'preact';
import type { Failure } from '../lib/api';
import { count } from '../lib/format';
import { models } from '../lib/models';
import { go } from '../lib/router';
import { chats } from '../state';
import { Icon } from '../ui/Icon';
import type { ChatState } from './chats';
import type { Answer } from './types';

interface Props {
  state: ChatState;
  answer: Answer;
  last: boolean;
}

/** AnswerNote stands under an answer that did not end by itself: why, and the ways to go on. */
export function AnswerNote({ state, answer, last }: Props) {
  const context = models.value?.find(({ name }) => name === answer.model)?.contextLength;
  const note = noteFor(answer, context);
  if (note === null) return null;
  const { text, kind, ways } = note;
  return (
    <div class={`note ${kind}`}>
      <p>{text}</p>
      {last && ways.length > 0 && (
        <div class="row">
          {ways.map((way) => (
            <Way key={way} way={way} state={state} />
          ))}
        </div>
      )}
    </div>
  );
}

type WayOn = 'continue' | 'again' | 'new';

interface Note {
  text: ComponentChildren;
  kind: 'plain' | 'warn' | 'bad';
  ways: WayOn[];
}

/** noteFor takes the context of the model in tokens, if it is known. */
export function noteFor(answer: Answer, context?: number): Note | null {
  const goOn: WayOn[] = answer.text === '' ? ['again'] : ['continue', 'again'];
  switch (answer.state) {
    case 'streaming':
      return { kind: 'plain', text: 'This answer is being received in another tab.', ways: [] };
    case 'stopped':
      return { kind: 'plain', text: 'Stopped.', ways: answer.text === '' ? ['again'] : ['continue'] };
    case 'interrupted':
      return { kind: 'warn', text: 'Interrupted: the page was closed or reloaded while this answer was being received.', ways: goOn };
    case 'failed':
      return { kind: 'bad', ...failureNote(answer.failure ?? { status: 0, message: 'The answer failed.' }, goOn) };
    case 'done':
      return answer.finish === 'length' ? lengthNote(answer, context) : null;
  }
}

function failureNote(failure: Failure, goOn: WayOn[]): Pick<Note, 'text' | 'ways'> {
  if (failure.code === 'context_length_exceeded') return { text: `${sentence(failure.message)} Start a new chat, or send less.`, ways: ['new'] };
  const wait = failure.retryAfter ? ` Try again in ${failure.retryAfter} s.` : '';
  return { text: sentence(failure.message) + wait, ways: goOn };
}

function lengthNote({ stats }: Answer, context?: number): Note {
  const { maxTokens, promptTokens = 0, completionTokens = 0 } = stats ?? {};
  if (maxTokens !== undefined && completionTokens >= maxTokens) {
    return { kind: 'plain', text: `Stopped at your limit of ${count(maxTokens)} tokens.`, ways: ['continue'] };
  }
  if (context !== undefined && promptTokens > 0 && promptTokens + completionTokens < context) {
    return { kind: 'plain', text: `Stopped by the node after ${count(completionTokens)} tokens, before the context was full.`, ways: ['continue'] };
  }
  const numbers = promptTokens > 0 ? ` (${count(promptTokens)} tokens of prompt, ${count(completionTokens)} of answer)` : '';
  return { kind: 'warn', text: `The context is full${numbers}: the answer ends here, and nothing was cut from what the model read.`, ways: ['new'] };
}

function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(first) ? first : `${first}.`;
}

function Way({ way, state }: { way: WayOn; state: ChatState }) {
  switch (way) {
    case 'continue':
      return (
        <button type="button" class="button" onClick={() => chats.goOn(state)}>
          <Icon name="forward" /> Continue
        </button>
      );
    case 'again':
      return (
        <button type="button" class="button" onClick={() => chats.again(state)}>
          <Icon name="again" /> Try again
        </button>
      );
    case 'new':
      return (
        <button type="button" class="button" onClick={() => go('chat')}>
          <Icon name="plus" /> New chat
        </button>
      );
  }
}
