// A block of code: highlighted, scrollable, with its language and a button that copies it.

import { copyButton } from "../dom/copy_button.js";
import { element } from "../dom/element.js";
import highlighter from "../vendor/highlight/highlight.min.js";

const MAX_HIGHLIGHTED = 50_000; // characters: some 50 ms; longer code stays plain
const TAGS = /<span class="([^"<>]*)">|<\/span>/g;
const ESCAPES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'" };

export class CodeBlock {
  constructor(language) {
    this.language = language;
    this.text = "";
    this.code = element("code");
    const name = language || "text";
    const copy = copyButton(() => this.text, `Copy the ${name} code`);
    this.root = element(
      "div",
      { class: "code" },
      element("div", { class: "code-bar" }, element("span", {}, name), copy),
      element("pre", { tabindex: 0, role: "region", "aria-label": `Code, ${name}` }, this.code),
    );
  }

  /** Shows a text, which may be a longer one of the same block. */
  show(text) {
    if (text === this.text) return;
    this.text = text;
    this.code.replaceChildren(...highlighted(text, this.language));
  }
}

/** Code as text nodes and spans with the highlighter's classes. */
function highlighted(text, language) {
  if (!highlighter.getLanguage(language) || text.length > MAX_HIGHLIGHTED) return [text];
  return spans(highlighter.highlight(text, { language, ignoreIllegals: true }).value);
}

/** The highlighter's HTML as nodes: spans with classes become elements, everything else text. */
function spans(html) {
  const root = document.createDocumentFragment();
  let [into, end] = [root, 0];
  const put = (text) => text && into.append(text.replace(/&(?:amp|lt|gt|quot|#x27);/g, (escape) => ESCAPES[escape]));
  for (const { 0: tag, 1: classes, index } of html.matchAll(TAGS)) {
    put(html.slice(end, index));
    end = index + tag.length;
    if (classes === undefined) into = into.parentNode ?? root;
    else into = into.appendChild(element("span", { class: classes }));
  }
  put(html.slice(end));
  return [root];
}
