import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { CopyButton } from '../ui/CopyButton';
import { memo } from '../ui/memo';
import { BlockReader, codeOf, type Block } from './blocks';
import { colour } from './highlight';
import { renderBlock } from './sanitise';

/** Blocks that are mounted in one frame; a very long text appears in several. */
const blocksPerFrame = 20;

/** Markdown shows text from a model. While it grows, give growing; the last rendering without it is exact. */
export function Markdown({ text, growing = false }: { text: string; growing?: boolean }) {
  const reader = useRef<BlockReader>(null);
  reader.current ??= new BlockReader();
  const blocks = growing ? reader.current.grown(text) : reader.current.whole(text);
  const shown = useShown(blocks.length);
  return (
    <div class="md">
      {blocks.slice(0, shown).map((block, i) => {
        const code = codeOf(block);
        const last = growing && i === blocks.length - 1;
        return code ? <CodeBlock key={i} code={code.text} language={languageOf(code.lang)} growing={last} /> : <HtmlBlock key={i} block={block} version={versionOf(block)} />;
      })}
    </div>
  );
}

function useShown(total: number): number {
  const [shown, setShown] = useState(blocksPerFrame);
  useEffect(() => {
    if (shown >= total) return;
    const frame = requestAnimationFrame(() => setShown(shown + blocksPerFrame));
    return () => cancelAnimationFrame(frame);
  }, [shown, total]);
  return shown;
}

/** Equal versions look the same: what a block shows depends on its text and on the links defined anywhere. */
function versionOf(block: Block): string {
  const links = Object.keys(block.links);
  return links.length === 0 ? block.raw : JSON.stringify([block.raw, block.links]);
}

function languageOf(info: string | undefined): string {
  return (info ?? '').trim().split(/[\s{,]/, 1)[0]?.toLowerCase() ?? '';
}

const HtmlBlock = memo(
  function HtmlBlock({ block }: { block: Block; version: string }) {
    const element = useRef<HTMLDivElement>(null);
    useLayoutEffect(() => {
      const fragment = renderBlock(block);
      decorate(fragment);
      element.current?.replaceChildren(fragment);
    });
    return <div class="block" ref={element} />;
  },
  (a, b) => a.version === b.version,
);

/** Wide tables scroll in a box of their own, which the keyboard can reach. */
function decorate(fragment: DocumentFragment): void {
  for (const table of fragment.querySelectorAll('table')) scrollable(table, 'table-box', 'Table');
  for (const pre of fragment.querySelectorAll('pre')) {
    pre.tabIndex = 0;
    pre.setAttribute('role', 'group');
    pre.setAttribute('aria-label', 'Code');
  }
}

function scrollable(element: Element, className: string, label: string): void {
  const box = document.createElement('div');
  box.className = className;
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', label);
  element.replaceWith(box);
  box.append(element);
}

interface CodeProps {
  code: string;
  language: string;
  growing?: boolean;
}

/** CodeBlock shows code with its language and a copy button. */
export const CodeBlock = memo(function CodeBlock({ code, language, growing = false }: CodeProps) {
  const element = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (element.current) element.current.textContent = code;
  }, [code]);
  useEffect(() => {
    if (element.current && !growing) colour(element.current, code, language);
  }, [code, language, growing]);
  return (
    <div class="code">
      <div class="code-head">
        <span>{language || 'text'}</span>
        <CopyButton text={code} label="Copy code" />
      </div>
      <pre tabIndex={0} role="group" aria-label={language ? `Code, ${language}` : 'Code'}>
        <code ref={element} />
      </pre>
    </div>
  );
});
