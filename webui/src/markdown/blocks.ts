// Markdown cut into its top-level blocks, so that a growing answer costs the
// work of its last block and not of its whole length.

import { Lexer, type Token, type Tokens, type TokensList } from 'marked';

export interface Block {
  raw: string;
  tokens: Token[];
  links: TokensList['links'];
}

const options = { gfm: true, breaks: true };

/**
 * BlockReader reads one text again and again while it grows. Only the last
 * block of Markdown can be changed by text behind it, so the blocks before it
 * are kept as they are. A link may be defined behind its use; that is seen by
 * whole, which reads everything again.
 */
export class BlockReader {
  private text = '';
  private blocks: Block[] = [];

  grown(source: string): Block[] {
    const text = unixLines(source);
    if (!text.startsWith(this.text)) return this.whole(text);
    const kept = this.blocks.slice(0, -1);
    const length = kept.reduce((sum, block) => sum + block.raw.length, 0);
    this.blocks = [...kept, ...lex(text.slice(length))];
    this.text = text;
    return this.blocks;
  }

  whole(source: string): Block[] {
    this.text = unixLines(source);
    this.blocks = lex(this.text);
    return this.blocks;
  }
}

/** The code block that a block consists of, if it is one. */
export function codeOf(block: Block): Tokens.Code | null {
  const token = block.tokens[0];
  return block.tokens.length === 1 && token?.type === 'code' ? (token as Tokens.Code) : null;
}

/**
 * lex gives blocks whose raws add up to the text; blank lines belong to the
 * block before them. In rare places the lexer rewrites what it read; from there
 * on the rest of the text is one block.
 */
function lex(text: string): Block[] {
  const tokens = Lexer.lex(text, options);
  const blocks: Block[] = [];
  let end = 0;
  for (const [i, token] of tokens.entries()) {
    if (!text.startsWith(token.raw, end)) {
      blocks.push({ raw: text.slice(end), tokens: tokens.slice(i), links: tokens.links });
      return blocks;
    }
    const last = blocks.at(-1);
    if (token.type === 'space' && last) last.raw += token.raw;
    else blocks.push({ raw: token.raw, tokens: [token], links: tokens.links });
    end += token.raw.length;
  }
  if (end < text.length) blocks.push({ raw: text.slice(end), tokens: [], links: tokens.links });
  return blocks;
}

function unixLines(text: string): string {
  return text.includes('\r') ? text.replace(/\r\n?/g, '\n') : text;
}
