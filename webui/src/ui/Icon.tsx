// Icons drawn on a 24 by 24 grid with a stroke of the text's colour.

const paths = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h10v10H9zM15 9V5H5v10h4',
  check: 'M5 12.5l4.5 4.5L19 7.5',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  again: 'M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4',
  edit: 'M5 19h4L19 9l-4-4L5 15zM13 7l4 4',
  trash: 'M5 7h14M10 7V5h4v2M7 7l1 12h8l1-12M10.5 11v5M13.5 11v5',
  sliders: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  down: 'M12 5v14M6 13l6 6 6-6',
  upload: 'M12 16V5M7 10l5-5 5 5M5 19h14',
  download: 'M12 5v11M7 11l5 5 5-5M5 19h14',
  forward: 'M5 6l7 6-7 6zM13 6l7 6-7 6z',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M5.6 18.4l1.1-1.1M17.3 6.7l1.1-1.1',
  moon: 'M19 14.5A7.5 7.5 0 0 1 9.5 5a7.5 7.5 0 1 0 9.5 9.5z',
  auto: 'M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M12 4v16M12 8l5-1M12 12h8M12 16l5 1',
  chat: 'M4 5h16v11H10l-4 4v-4H4z',
  models: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9',
  cluster: 'M9 4h6v5H9zM3 15h6v5H3zM15 15h6v5h-6zM12 9v3M6 15v-3h12v3',
  requests: 'M4 6h7M7 11h9M12 16h8M4 20h16',
  planner: 'M4 20V4M4 20h16M7 16l4-5 3 3 6-7',
  kv: 'M4 5h16v4H4zM4 10.5h16v4H4zM4 16h16v4H4zM7 7h.01M7 12.5h.01M7 18h.01',
  pin: 'M9 4h6l-1 6 3 3H7l3-3zM12 13v7',
  connect: 'M9 15l6-6M10.5 7.5l2-2a4.2 4.2 0 0 1 6 6l-2 2M13.5 16.5l-2 2a4.2 4.2 0 0 1-6-6l2-2',
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={paths[name]} />
    </svg>
  );
}

/** The mark: two wheels, the one that reads the prompt and the one that writes. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 20" aria-hidden="true" focusable="false">
      <circle class="mark-prefill" cx="10" cy="10" r="7.5" />
      <circle class="mark-decode" cx="21" cy="10" r="7.5" />
    </svg>
  );
}
