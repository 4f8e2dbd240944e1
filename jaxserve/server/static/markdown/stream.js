// Streamed Markdown: blocks that have ended are rendered once, only the last one again as it grows.

import { Outline, blocks, codeBlock, languageOf, plain } from "./blocks.js";
import { parse } from "./parser.js";

const MAX_SHARE = 0.2; // of the time, for rendering: a long block is rendered less often

export class MarkdownStream {
  constructor(into) {
    this.into = into;
    this.rest = ""; // the text from the last block on
    this.outline = new Outline();
    this.tail = []; // the nodes of the last block
    this.code = null; // the last block, if it is code
    this.frame = null;
    this.dueMs = 0;
  }

  write(text) {
    this.rest += text;
    this.frame ??= requestAnimationFrame((now) => this.onFrame(now));
  }

  /** Renders what is left at the end of the text. */
  end() {
    cancelAnimationFrame(this.frame);
    this.frame = null;
    this.render();
  }

  onFrame(now) {
    this.frame = null;
    if (now < this.dueMs) {
      this.frame = requestAnimationFrame((later) => this.onFrame(later));
      return;
    }
    const start = performance.now();
    this.render();
    this.dueMs = now + (performance.now() - start) / MAX_SHARE;
  }

  render() {
    this.rest = this.rest.replaceAll("\r\n", "\n");
    try {
      this.renderTokens(parse(this.rest));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      this.code = null; // thousands of nested quotes: more than the parser's stack
      this.replaceTail([plain({ raw: this.rest })]);
    }
  }

  /** Shows the tokens of the rest, and drops all but the last one from it. */
  renderTokens(tokens) {
    const last = tokens.findLastIndex((token) => token.type !== "space");
    if (last < 0) return;
    for (const token of tokens.slice(0, last)) {
      this.show(token, this.outline);
      [this.tail, this.code] = [[], null];
      this.rest = this.rest.slice(token.raw.length);
    }
    this.show(tokens[last], this.outline.copy());
  }

  /** Shows the last block. Code grows in place, which keeps its scroll position and the focus. */
  show(token, outline) {
    if (token.type === "code" && this.code?.language === languageOf(token)) return this.code.show(token.text);
    this.code = token.type === "code" ? codeBlock(token) : null;
    this.replaceTail(this.code ? [this.code.root] : blocks([token], outline));
  }

  replaceTail(nodes) {
    for (const node of this.tail) node.remove();
    this.tail = nodes;
    this.into.append(...nodes);
  }
}
