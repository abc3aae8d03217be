// From Markdown tokens to safe DOM nodes. Text from a model is hostile: it may
// quote a page that was written to be quoted. Two walls stand between it and
// the page: HTML in Markdown is shown as text except for a few plain tags, and
// everything passes a sanitiser that knows an explicit list of tags and
// attributes. The page's content security policy is the third.

import DOMPurify from 'dompurify';
import { Parser, Renderer, type Tokens } from 'marked';
import type { Block } from './blocks';

/** Tags that models write in Markdown and that can do nothing but set text. */
const plainTag = /^<\/?(?:br|sub|sup|kbd|b|i|u|em|strong|del|ins|mark|small)\s*\/?>$/i;
const webAddress = /^(?:https?:\/\/|mailto:)/i;
const pictureData = /^data:image\/(?:png|jpeg|gif|webp);base64,/i;
const allowedClass: Record<string, RegExp> = { CODE: /^language-[\w+#.-]{1,40}$/, SPAN: /^hljs-[\w -]{1,80}$/ };

const rules = {
  ALLOWED_TAGS: [
    ...['p', 'br', 'hr', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'pre', 'code', 'span'],
    ...['em', 'strong', 'b', 'i', 'u', 'del', 'ins', 'mark', 'small', 'sub', 'sup', 'kbd', 'a', 'img'],
    ...['table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ],
  ALLOWED_ATTR: ['href', 'title', 'src', 'alt', 'align', 'start', 'class'],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true as const,
};

const purify = DOMPurify(window);
purify.addHook('uponSanitizeAttribute', (element, data) => {
  if (!mayKeep(element, data.attrName, data.attrValue)) data.keepAttr = false;
});

function mayKeep(element: Element, attribute: string, value: string): boolean {
  switch (attribute) {
    case 'href':
      return webAddress.test(value);
    case 'src':
      return pictureData.test(value);
    case 'class':
      return allowedClass[element.tagName]?.test(value) ?? false;
    default:
      return true;
  }
}

/** safeNodes makes nodes of HTML: no script, style, form, id, or address other than http, https, mailto and pictures in place. */
export function safeNodes(html: string): DocumentFragment {
  return purify.sanitize(html, rules);
}

class SafeRenderer extends Renderer {
  override html({ text }: Tokens.HTML | Tokens.Tag): string {
    return plainTag.test(text.trim()) ? text : escape(text);
  }

  // A picture from elsewhere would tell its host what is being read, so it stays a link.
  override image({ href, title, text }: Tokens.Image): string {
    const name = escape(text || title || href);
    if (pictureData.test(href)) return `<img src="${escape(href)}" alt="${name}">`;
    return `<a href="${escape(href)}">${name}</a>`;
  }

  override checkbox({ checked }: Tokens.Checkbox): string {
    return checked ? '☑ ' : '☐ ';
  }
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** renderBlock makes the nodes of a block. Links open elsewhere and do not tell where they were found. */
export function renderBlock(block: Block): DocumentFragment {
  const parser = new Parser({ gfm: true, breaks: true, renderer: new SafeRenderer() });
  const fragment = safeNodes(parser.parse(block.tokens));
  for (const link of fragment.querySelectorAll('a[href]')) {
    link.setAttribute('target', '_blank');
    link.setAttribute('rel', 'noopener noreferrer nofollow');
  }
  return fragment;
}
