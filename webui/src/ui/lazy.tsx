import { useSignal } from '@preact/signals';
import type { FunctionComponent } from 'preact';
import { useEffect } from 'preact/hooks';

/** lazy is a page whose code is fetched when it is first looked at. */
export function lazy(load: () => Promise<FunctionComponent>): FunctionComponent {
  let page: FunctionComponent | null = null;
  return function Lazy() {
    const failed = useSignal(false);
    const turn = useSignal(0);
    const get = () => {
      failed.value = false;
      load().then(
        (loaded) => {
          page = loaded;
          turn.value++;
        },
        () => (failed.value = true),
      );
    };
    useEffect(() => {
      if (page === null) get();
    }, []);
    void turn.value;
    if (page !== null) {
      const Page = page;
      return <Page />;
    }
    if (!failed.value) return <div class="page" aria-busy="true" />;
    return (
      <div class="page">
        <p class="note bad" role="alert">
          This part of the page could not be fetched from the node.
        </p>
        <p>
          <button type="button" class="button" onClick={get}>
            Try again
          </button>
        </p>
      </div>
    );
  };
}
