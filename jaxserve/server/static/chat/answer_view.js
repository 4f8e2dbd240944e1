// A model's answer: folded reasoning, then Markdown, both as they stream in.

import { element } from "../dom/element.js";
import { split } from "../markdown/reasoning.js";
import { MarkdownStream } from "../markdown/stream.js";

export class AnswerView {
  constructor() {
    this.summary = element("summary", {}, "Reasoning");
    this.thoughts = new Part(element("div", { class: "markdown" }));
    this.fold = element("details", { class: "reasoning", hidden: true }, this.summary, this.thoughts.root);
    this.answer = new Part(element("div", { class: "markdown answer", "aria-live": "polite" }));
    this.root = element("div", { class: "said" }, this.fold, this.answer.root);
  }

  /** Shows a message, which may have grown since. */
  show({ content, reasoning = "" }, isComplete) {
    const found = split(content, isComplete);
    const thoughts = reasoning + found.reasoning;
    const isThinking = found.isThinking || (!isComplete && reasoning !== "" && content === "");
    this.fold.hidden = thoughts === "";
    this.summary.textContent = isThinking ? "Reasoning …" : "Reasoning";
    this.thoughts.show(thoughts, isComplete);
    this.answer.show(found.answer, isComplete);
    // Screen readers read the complete answer, not each word.
    if (isComplete) this.answer.root.removeAttribute("aria-busy");
    else this.answer.root.setAttribute("aria-busy", "true");
  }
}

/** One Markdown text that grows. */
class Part {
  constructor(root) {
    this.root = root;
    this.reset();
  }

  reset() {
    this.stream?.end();
    this.root.replaceChildren();
    this.text = "";
    this.stream = new MarkdownStream(this.root);
  }

  show(text, isComplete) {
    if (!text.startsWith(this.text)) this.reset(); // an answer turned out to be reasoning, or it starts anew
    if (text.length > this.text.length) this.stream.write(text.slice(this.text.length));
    this.text = text;
    if (isComplete) this.stream.end();
  }
}
