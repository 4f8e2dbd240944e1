// Markdown as the tokens of marked, with formulas as tokens of their own.

import { Marked } from "../vendor/marked/marked.esm.js";

// A formula has at most 4,000 characters, which bounds the search for its end.
const BLOCKS = [/^\$\$[ \t]*\n?([^]{1,4000}?)\$\$[ \t]*(?:\n|$)/, /^\\\[([^]{1,4000}?)\\\][ \t]*(?:\n|$)/];
// In `$…$` no blank at the inner edges and no digit after the end: "from $5 to $10" is no formula.
const INLINE = [
  [/^\$\$([^$]{1,4000}?)\$\$/, true],
  [/^\\\[([^]{1,4000}?)\\\]/, true],
  [/^\\\(([^]{1,4000}?)\\\)/, false],
  [/^\$(?![\s$])((?:\\[^]|[^\\$\n]){0,4000}?[^\\\s$])\$(?!\d)/, false],
];

const blockMaths = {
  name: "blockMaths",
  level: "block",
  start: (text) => text.match(/^ {0,3}(?:\$\$|\\\[)/m)?.index,
  tokenizer(text) {
    const indent = text.match(/^ {0,3}(?=\$\$|\\\[)/)?.[0] ?? "";
    for (const pattern of BLOCKS) {
      const found = pattern.exec(text.slice(indent.length));
      if (found) return { type: "maths", raw: indent + found[0], text: found[1].trim(), isDisplay: true };
    }
  },
};

const inlineMaths = {
  name: "inlineMaths",
  level: "inline",
  start: (text) => text.match(/\$|\\[([]/)?.index,
  tokenizer(text) {
    for (const [pattern, isDisplay] of INLINE) {
      const found = pattern.exec(text);
      if (found) return { type: "maths", raw: found[0], text: found[1].trim(), isDisplay };
    }
  },
};

const marked = new Marked({ gfm: true, extensions: [] });
marked.use({ extensions: [blockMaths, inlineMaths] });

/** The top-level tokens; their `raw` texts make up the text, whose line breaks must be \n. */
export function parse(text) {
  return marked.lexer(text);
}
