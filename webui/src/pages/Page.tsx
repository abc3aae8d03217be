import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

/** Page is the frame of every page but the chat: it names the document and takes the focus, so that screen readers say where they are. */
export function Page({ title, children }: { title: string; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} · tandem`;
    heading.current?.focus();
  }, [title]);
  return (
    <div class="page">
      <h1 ref={heading} tabIndex={-1}>
        {title}
      </h1>
      {children}
    </div>
  );
}
