import { useSignal } from '@preact/signals';
import { useEffect, useRef, useState } from 'preact/hooks';
import { seconds } from '../lib/format';
import { Markdown } from '../markdown/Markdown';
import { chats } from '../state';
import { CopyButton } from '../ui/CopyButton';
import { Icon } from '../ui/Icon';
import { memo } from '../ui/memo';
import { AnswerNote } from './AnswerNote';
import { AnswerStats, LiveStats } from './AnswerStats';
import type { ChatState } from './chats';
import type { LiveAnswer } from './live';
import { roomFor, useNear, type Near } from './near';
import { picked, type Answer, type AssistantMessage } from './types';

interface Props {
  state: ChatState;
  message: AssistantMessage;
  near: Near;
  last: boolean;
  live: LiveAnswer | null;
}

/** AssistantTurn is one turn of the model. Its Markdown is drawn when it comes near to the view; before that it is plain text. */
export const AssistantTurn = memo(function AssistantTurn({ state, message, near, last, live }: Props) {
  const element = useRef<HTMLElement>(null);
  const seen = useNear(element, near);
  const wasLive = useRef(false);
  wasLive.current ||= live !== null;
  const answer = picked(message);
  return (
    <article class="turn assistant" ref={element} style={roomFor(answer.text)} aria-busy={live !== null}>
      <h2 class="offscreen">Answer{answer.model && ` of ${answer.model}`}</h2>
      <AnswerBody answer={answer} live={live} drawn={seen || wasLive.current} />
      {live ? <LiveStats live={live} /> : <AnswerFoot state={state} message={message} answer={answer} last={last} />}
    </article>
  );
});

function AnswerBody({ answer, live, drawn }: { answer: Answer; live: LiveAnswer | null; drawn: boolean }) {
  const text = live ? live.text.value : answer.text;
  const reasoning = live ? live.reasoning.value : answer.reasoning;
  const thinking = live?.phase.value === 'thinking';
  return (
    <>
      {reasoning !== '' && <Reasoning text={reasoning} thinking={thinking} milliseconds={answer.stats?.reasoningMs} />}
      {live?.phase.value === 'waiting' && <Waiting since={live.started} />}
      {drawn ? <Markdown text={text} growing={live !== null} /> : <div class="md plain">{text}</div>}
    </>
  );
}

/** Reasoning is open while the model thinks and closes when it answers, unless the person decides otherwise. */
function Reasoning({ text, thinking, milliseconds }: { text: string; thinking: boolean; milliseconds?: number }) {
  const chosen = useSignal<boolean | null>(null);
  const open = chosen.value ?? thinking;
  const toggle = (event: Event) => {
    event.preventDefault();
    chosen.value = !open;
  };
  return (
    <details class="reasoning" open={open}>
      <summary onClick={toggle}>{thinking ? 'Thinking…' : milliseconds === undefined ? 'Thoughts' : `Thought for ${seconds(milliseconds / 1000)}`}</summary>
      {open && <div class="reasoning-text">{text}</div>}
    </details>
  );
}

function Waiting({ since }: { since: number }) {
  const [now, setNow] = useState(since);
  useEffect(() => {
    const timer = setInterval(() => setNow(performance.now()), 500);
    return () => clearInterval(timer);
  }, []);
  const waited = (now - since) / 1000;
  return (
    <p class="waiting">
      <span class="pulse" aria-hidden="true" /> Reading the prompt{waited >= 1 && <span class="hint"> {Math.floor(waited)} s</span>}
    </p>
  );
}

interface FootProps {
  state: ChatState;
  message: AssistantMessage;
  answer: Answer;
  last: boolean;
}

function AnswerFoot({ state, message, answer, last }: FootProps) {
  return (
    <>
      <AnswerNote state={state} answer={answer} last={last} />
      {answer.stats && <AnswerStats stats={answer.stats} model={answer.model} />}
      <div class="actions">
        {answer.text !== '' && <CopyButton text={answer.text} label="Copy answer" />}
        {last && answer.state !== 'streaming' && (
          <button type="button" class="button quiet" aria-label="Answer again" onClick={() => chats.again(state)}>
            <Icon name="again" /> Again
          </button>
        )}
        {message.answers.length > 1 && <Versions state={state} message={message} />}
      </div>
    </>
  );
}

function Versions({ state, message }: { state: ChatState; message: AssistantMessage }) {
  const step = (by: number) => void chats.pick(state, message, message.pick + by);
  return (
    <span class="versions" role="group" aria-label="Answers to this question">
      <button type="button" class="button icon-only quiet" aria-label="Answer before" disabled={message.pick === 0} onClick={() => step(-1)}>
        <Icon name="left" />
      </button>
      {message.pick + 1} of {message.answers.length}
      <button type="button" class="button icon-only quiet" aria-label="Next answer" disabled={message.pick === message.answers.length - 1} onClick={() => step(1)}>
        <Icon name="right" />
      </button>
    </span>
  );
}
