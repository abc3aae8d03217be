import { useEffect } from 'preact/hooks';

/** usePoll runs work now and then again and again, each time a while after it ended, as long as the page can be seen. */
export function usePoll(work: (signal: AbortSignal) => Promise<void>, milliseconds: number): void {
  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let busy = false;
    const run = async () => {
      if (busy || document.hidden) return;
      busy = true;
      clearTimeout(timer);
      await work(controller.signal).catch(() => undefined);
      busy = false;
      if (!controller.signal.aborted) timer = setTimeout(run, milliseconds);
    };
    void run();
    document.addEventListener('visibilitychange', run);
    return () => {
      controller.abort();
      clearTimeout(timer);
      document.removeEventListener('visibilitychange', run);
    };
  }, []);
}
