import { useSignal, type Signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import type { RefObject } from 'preact';
import { announce } from '../ui/announce';
import { Icon } from '../ui/Icon';
import { AssistantTurn } from './AssistantTurn';
import type { ChatState } from './chats';
import { Near } from './near';
import { picked } from './types';
import { UserTurn } from './UserTurn';

/** Within this distance of the end the view follows a growing answer. */
const followDistance = 80;
const turnsPerFrame = 30;

/** Thread is the scrolling list of messages. Mount one per chat. */
export function Thread({ state }: { state: ChatState }) {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const near = useMemo(() => new Near(() => scroller.current), []);
  const follows = useFollow(scroller, content);
  const live = state.live.value;
  const messages = state.messages.value;
  const mounted = useMounted(messages.length);
  const last = messages.at(-1);
  const lastQuestion = messages.findLast((message) => message.role === 'user');
  useSpoken(state);
  // What a person sent is what the person wants to see.
  useLayoutEffect(() => {
    if (live) follows.value = true;
  }, [live]);
  const toEnd = () => {
    follows.value = true;
    scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  };
  return (
    <div class="thread-box">
      <div class="thread" ref={scroller} tabIndex={0} role="region" aria-label="Messages">
        <div class="turns" ref={content}>
          {messages.slice(-mounted).map((message) =>
            message.role === 'user' ? (
              <UserTurn key={message.id} state={state} message={message} editable={message === lastQuestion} />
            ) : (
              <AssistantTurn key={message.id} state={state} message={message} near={near} last={message === last} live={live?.messageId === message.id ? live : null} />
            ),
          )}
        </div>
      </div>
      {!follows.value && (
        <button type="button" class="button icon-only to-end" aria-label="To the end" title="To the end" onClick={toEnd}>
          <Icon name="down" />
        </button>
      )}
    </div>
  );
}

/** useMounted is how many of the last turns are in the document: some at first, then more in each frame, so that no frame takes long. */
function useMounted(total: number): number {
  const [mounted, setMounted] = useState(turnsPerFrame);
  useEffect(() => {
    if (mounted >= total) return;
    const frame = requestAnimationFrame(() => setMounted(mounted + turnsPerFrame));
    return () => cancelAnimationFrame(frame);
  }, [mounted, total]);
  return mounted;
}

/** useFollow keeps the end in view while the content grows, until the person scrolls up. */
function useFollow(scroller: RefObject<HTMLElement | null>, content: RefObject<HTMLElement | null>): Signal<boolean> {
  const follows = useSignal(true);
  useLayoutEffect(() => {
    const [box, inner] = [scroller.current, content.current];
    if (!box || !inner) return;
    let top = box.scrollTop;
    const onScroll = () => {
      // Content may have grown since this event was made, so distance alone does not tell that a person scrolled up.
      if (box.scrollHeight - box.scrollTop - box.clientHeight < followDistance) follows.value = true;
      else if (box.scrollTop < top) follows.value = false;
      top = box.scrollTop;
    };
    const resized = new ResizeObserver(() => {
      if (follows.value) box.scrollTop = box.scrollHeight;
    });
    box.addEventListener('scroll', onScroll, { passive: true });
    resized.observe(inner);
    resized.observe(box);
    return () => {
      box.removeEventListener('scroll', onScroll);
      resized.disconnect();
    };
  }, []);
  return follows;
}

/** useSpoken tells screen readers when an answer begins and how it ended, not every word of it. */
function useSpoken(state: ChatState): void {
  const live = state.live.value;
  const spoke = useRef(false);
  useEffect(() => {
    if (live) announce('Answering');
    else if (spoke.current) announce(ending(state));
    spoke.current = live !== null;
  }, [live]);
}

function ending(state: ChatState): string {
  const message = state.last();
  if (message?.role !== 'assistant') return '';
  const answer = picked(message);
  if (answer.state === 'failed') return `The answer failed: ${answer.failure?.message ?? ''}`;
  return answer.state === 'stopped' ? 'Stopped' : 'The answer is complete';
}
