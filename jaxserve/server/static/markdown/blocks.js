// Blocks of Markdown as elements.

import { element } from "../dom/element.js";
import { CodeBlock } from "./code_block.js";
import { inline } from "./inline.js";
import { formula } from "./maths.js";

const PAGE_LEVEL = 2; // of the heading above an answer

/** Levels of headings without gaps, whatever depths a model uses: screen readers announce them as an outline. */
export class Outline {
  constructor(depths = []) {
    this.depths = depths;
  }

  level(depth) {
    this.depths = [...this.depths.filter((one) => one < depth), depth];
    return Math.min(6, PAGE_LEVEL + this.depths.length);
  }

  copy() {
    return new Outline(this.depths);
  }
}

const MADE = {
  heading: (token, outline) => element(`h${outline.level(token.depth)}`, {}, ...inline(token.tokens)),
  paragraph: (token) => element("p", {}, ...inline(token.tokens)),
  text: (token) => element("p", {}, ...inline(token.tokens ?? [token])),
  code: (token) => codeBlock(token).root,
  blockquote: (token, outline) => element("blockquote", {}, ...blocks(token.tokens, outline)),
  list,
  table,
  hr: () => element("hr"),
  html: (token) => element("p", {}, token.raw.trimEnd()),
  maths: formula,
  space: () => [],
  def: () => [],
};

/** The elements of block tokens. */
export function blocks(tokens, outline) {
  return tokens.flatMap((token) => MADE[token.type]?.(token, outline) ?? element("p", {}, token.raw));
}

/** A code token's language: the first word after the fence. */
export function languageOf(token) {
  return (token.lang ?? "").match(/^[\w+#.-]{1,30}/)?.[0].toLowerCase() ?? "";
}

export function codeBlock(token) {
  const made = new CodeBlock(languageOf(token));
  made.show(token.text);
  return made;
}

function list(token, outline) {
  const start = token.ordered && token.start !== 1 ? token.start : null;
  return element(token.ordered ? "ol" : "ul", { start }, ...token.items.map((item) => listItem(item, outline)));
}

/** Items of tight lists have inline text, and blocks such as code and lists below it. */
function listItem(item, outline) {
  const children = item.tokens.flatMap((token) => {
    if (token.type === "text") return inline(token.tokens ?? [token]);
    return token.type === "checkbox" ? inline([token]) : blocks([token], outline);
  });
  return element("li", {}, ...children);
}

function table({ header, rows }) {
  const cell = (name) => (one) => {
    const attributes = { class: one.align && `to-${one.align}`, scope: name === "th" ? "col" : null };
    return element(name, attributes, ...inline(one.tokens));
  };
  const row = (name) => (cells) => element("tr", {}, ...cells.map(cell(name)));
  const head = element("thead", {}, row("th")(header));
  const body = element("tbody", {}, ...rows.map(row("td")));
  const label = `Table: ${header.map((one) => one.text).join(", ")}`;
  const made = element("table", {}, head, body);
  return element("div", { class: "table", tabindex: 0, role: "region", "aria-label": label }, made);
}
