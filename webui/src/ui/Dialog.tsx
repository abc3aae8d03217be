import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef } from 'preact/hooks';

interface DialogProps {
  title: string;
  onClose: () => void;
  onSubmit: () => void;
  children: ComponentChildren;
}

/** Dialog is a modal form. Escape closes it, Enter in a field submits it; the browser keeps the focus inside, and afterwards it is where it was. */
export function Dialog({ title, onClose, onSubmit, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    const onClosed = () => close.current();
    // Not "cancel": browsers leave that out when nobody touched the page in between.
    dialog?.addEventListener('close', onClosed);
    dialog?.showModal();
    return () => {
      dialog?.removeEventListener('close', onClosed);
      dialog?.close();
      // The dialog has left the document by now, so the browser gives nothing back.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const submit = (event: Event) => {
    event.preventDefault();
    onSubmit();
  };
  return (
    <dialog ref={element} aria-labelledby={id}>
      <form onSubmit={submit}>
        <h2 id={id}>{title}</h2>
        {children}
      </form>
    </dialog>
  );
}

interface Question {
  title: string;
  text: string;
  yes: string;
  answer: (yes: boolean) => void;
}

const question = signal<Question | null>(null);

/** confirm asks before something that cannot be undone. */
export function confirm(title: string, text: string, yes: string): Promise<boolean> {
  question.value?.answer(false);
  return new Promise((resolve) => {
    question.value = {
      title,
      text,
      yes,
      answer: (agreed) => {
        question.value = null;
        resolve(agreed);
      },
    };
  });
}

export function ConfirmDialog() {
  const asked = question.value;
  if (asked === null) return null;
  return (
    <Dialog title={asked.title} onClose={() => asked.answer(false)} onSubmit={() => asked.answer(true)}>
      <p>{asked.text}</p>
      <div class="row end">
        <button type="button" class="button" onClick={() => asked.answer(false)}>
          Cancel
        </button>
        <button type="submit" class="button danger">
          {asked.yes}
        </button>
      </div>
    </Dialog>
  );
}
