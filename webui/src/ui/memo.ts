import { Component, h, type ComponentChild, type ComponentClass, type FunctionComponent } from 'preact';

/** memo renders a component again only if equal says that its props differ; by default each prop is compared by identity. */
export function memo<P extends object>(render: FunctionComponent<P>, equal: (a: P, b: P) => boolean = shallowEqual): ComponentClass<P> {
  return class Memo extends Component<P> {
    override shouldComponentUpdate(next: Readonly<P>): boolean {
      return !equal(this.props, next);
    }

    override render(): ComponentChild {
      return h(render, this.props as P);
    }
  };
}

function shallowEqual(a: object, b: object): boolean {
  const [before, after] = [Object.entries(a), b as Record<string, unknown>];
  return before.length === Object.keys(b).length && before.every(([key, value]) => Object.is(value, after[key]));
}
