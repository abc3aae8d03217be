import { useEffect, useState } from 'preact/hooks';
import type { RefObject } from 'preact';

/** How far outside of the visible part messages are already drawn in full. */
const margin = '1200px 0px';

/** Near tells elements inside a scroller when they come near to its visible part, once. */
export class Near {
  private observer: IntersectionObserver | null = null;
  private readonly waiting = new Map<Element, () => void>();

  constructor(private readonly root: () => Element | null) {}

  wait(element: Element, near: () => void): () => void {
    this.observer ??= new IntersectionObserver((entries) => this.report(entries), { root: this.root(), rootMargin: margin });
    this.waiting.set(element, near);
    this.observer.observe(element);
    return () => this.forget(element);
  }

  private report(entries: IntersectionObserverEntry[]): void {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      this.waiting.get(target)?.();
      this.forget(target);
    }
  }

  private forget(element: Element): void {
    this.waiting.delete(element);
    this.observer?.unobserve(element);
  }
}

/** useNear becomes true when the element comes near, and stays so. */
export function useNear(element: RefObject<Element | null>, near: Near): boolean {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    if (!seen && element.current) return near.wait(element.current, () => setSeen(true));
  }, [seen, near]);
  return seen;
}

const lineLength = 80;
const linePixels = 26;

/** roomFor is the style of an element whose height is not known before it is drawn: a guess from its text, so that the scroll bar tells the truth from the start. */
export function roomFor(text: string): { containIntrinsicSize: string } {
  const lines = text.split('\n').reduce((sum, line) => sum + Math.max(1, Math.ceil(line.length / lineLength)), 0);
  return { containIntrinsicSize: `auto ${lines * linePixels + 60}px` };
}
