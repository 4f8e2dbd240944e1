// Inline Markdown as nodes. HTML in a model's output is shown as the text that it is.

import { element } from "../dom/element.js";
import { decode } from "./entities.js";
import { formula } from "./maths.js";

const SCHEMES = ["http:", "https:", "mailto:"];
const BREAK = /^<br\s*\/?>$/i;

const MADE = {
  strong: (token) => element("strong", {}, ...inline(token.tokens)),
  em: (token) => element("em", {}, ...inline(token.tokens)),
  del: (token) => element("del", {}, ...inline(token.tokens)),
  codespan: (token) => element("code", {}, token.text),
  br: () => element("br"),
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  escape: (token) => token.text,
  html: (token) => (BREAK.test(token.text) ? element("br") : token.text),
  maths: formula,
  link: (token) => link(token.href, inline(token.tokens)),
  image: (token) => link(token.href, [`image: ${decode(token.text) || token.href}`]), // never loaded
  text: (token) => (token.tokens ? inline(token.tokens) : decode(token.text)),
};

/** The nodes and strings of inline tokens. */
export function inline(tokens) {
  return tokens.flatMap((token) => MADE[token.type]?.(token) ?? token.raw);
}

/** A link to another page, or its text and address if browsers would not open a page there. */
function link(href, children) {
  const address = decode(href);
  if (!SCHEMES.includes(URL.parse(address)?.protocol)) return [...children, ` (${address})`];
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}
