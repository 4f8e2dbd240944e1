// Blocks of Markdown as elements.

import { element } from "../dom/element.js";
import { CodeBlock } from "./code_block.js";
import { inline } from "./inline.js";
import { formula } from "./maths.js";

const PAGE_LEVEL = 2; // of the heading above an answer
const MAX_DEPTH = 40; // of lists in lists: deeper, a browser's layout can run out of stack

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
  blockquote: (token, outline, depth) => element("blockquote", {}, ...blocks(token.tokens, outline, depth + 1)),
  list,
  table,
  hr: () => element("hr"),
  html: plain,
  maths: formula,
  space: () => [],
  def: () => [],
};

/** The elements of block tokens. */
export function blocks(tokens, outline, depth = 0) {
  const make = depth > MAX_DEPTH ? plain : (token) => MADE[token.type]?.(token, outline, depth) ?? plain(token);
  return tokens.flatMap(make);
}

/** A block as it was written. */
export function plain({ raw }) {
  return element("p", { class: "plain" }, raw.trimEnd());
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

function list(token, outline, depth) {
  const start = token.ordered && token.start !== 1 ? token.start : null;
  const items = token.items.map((item) => listItem(item, outline, depth + 1));
  return element(token.ordered ? "ol" : "ul", { start }, ...items);
}

/** Items of tight lists have inline text, and blocks such as code and lists below it. */
function listItem(item, outline, depth) {
  const children = item.tokens.flatMap((token) => {
    if (token.type === "text") return inline(token.tokens ?? [token]);
    return token.type === "checkbox" ? inline([token]) : blocks([token], outline, depth);
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
