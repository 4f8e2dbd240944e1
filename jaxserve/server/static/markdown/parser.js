// Markdown as the tokens of marked, with formulas as tokens of their own.

import { Marked } from "../vendor/marked/marked.esm.js";

const BLOCKS = [/^\$\$[ \t]*\n?([^]+?)\$\$[ \t]*(?:\n|$)/, /^\\\[([^]+?)\\\][ \t]*(?:\n|$)/];
// In `$…$` no blank at the inner edges and no digit after the end: "from $5 to $10" is no formula.
const INLINE = [
  [/^\$\$([^$]+?)\$\$/, true],
  [/^\\\[([^]+?)\\\]/, true],
  [/^\\\(([^]+?)\\\)/, false],
  [/^\$(?![\s$])((?:\\[^]|[^\\$\n])*?[^\\\s$])\$(?!\d)/, false],
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
