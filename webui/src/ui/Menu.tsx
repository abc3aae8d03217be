import type { ComponentChildren } from 'preact';
import { useId, useRef } from 'preact/hooks';
import { Icon } from './Icon';

const gap = 4;

/** Menu is a button that opens a small list of actions beside it. Choosing one, Escape or a click elsewhere closes it. */
export function Menu({ label, children }: { label: string; children: ComponentChildren }) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const position = (event: ToggleEvent) => {
    if (event.newState !== 'open' || !button.current || !menu.current) return;
    const at = button.current.getBoundingClientRect();
    const { width, height } = menu.current.getBoundingClientRect();
    const below = at.bottom + gap + height <= innerHeight;
    menu.current.style.left = `${Math.max(gap, Math.min(at.left, innerWidth - width - gap))}px`;
    menu.current.style.top = `${below ? at.bottom + gap : Math.max(gap, at.top - height - gap)}px`;
    menu.current.querySelector('button')?.focus();
  };
  return (
    <>
      <button ref={button} type="button" class="button icon-only quiet menu-button" aria-label={label} title={label} popovertarget={id}>
        <Icon name="more" />
      </button>
      <div ref={menu} id={id} popover="auto" class="menu" onToggle={position} onClick={() => menu.current?.hidePopover()}>
        {children}
      </div>
    </>
  );
}
