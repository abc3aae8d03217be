const touch = matchMedia('(pointer: coarse)');

/** sends says whether a key in a text field means "send": Enter, but not while an input method composes, nor on touch keyboards, which have no Shift+Enter. */
export function sends(event: KeyboardEvent): boolean {
  return event.key === 'Enter' && !event.shiftKey && !event.isComposing && !touch.matches;
}
