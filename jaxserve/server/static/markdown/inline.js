// Inline Markdown as nodes. HTML in a model's output is shown as the text that it is.

import { element } from "../dom/element.js";
import { decode } from "./entities.js";
import { formula } from "./maths.js";

const SCHEMES = ["http:", "https:", "mailto:"];
const BREAK = /^<br\s*\/?>$/i;
const MAX_DEPTH = 40; // of emphasis in emphasis: deeper, a browser's layout can run out of stack

const MADE = {
  strong: (token, depth) => element("strong", {}, ...inline(token.tokens, depth + 1)),
  em: (token, depth) => element("em", {}, ...inline(token.tokens, depth + 1)),
  del: (token, depth) => element("del", {}, ...inline(token.tokens, depth + 1)),
  codespan: (token) => element("code", {}, token.text),
  br: () => element("br"),
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  escape: (token) => token.text,
  html: (token) => (BREAK.test(token.text) ? element("br") : token.text),
  maths: formula,
  link: (token, depth) => link(token.href, inline(token.tokens, depth + 1)),
  image: (token) => link(token.href, [`image: ${decode(token.text) || token.href}`]), // never loaded
  text: (token, depth) => (token.tokens ? inline(token.tokens, depth) : decode(token.text)),
};

/** The nodes and strings of inline tokens. */
export function inline(tokens, depth = 0) {
  if (depth > MAX_DEPTH) return tokens.map(({ raw }) => raw);
  return tokens.flatMap((token) => MADE[token.type]?.(token, depth) ?? token.raw);
}

/** A link to another page, or its text and address if browsers would not open a page there. */
function link(href, children) {
  const address = decode(href);
  if (!SCHEMES.includes(schemeOf(address))) return [...children, ` (${address})`];
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

function schemeOf(address) {
  try {
    return new URL(address).protocol;
  } catch {
    return null; // relative: a model knows no pages of this server
  }
}
