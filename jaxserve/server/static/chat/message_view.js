// One message on the page, with what can be done with it. A user's text is shown as it was written, never as Markdown.

import { copyButton } from "../dom/copy_button.js";
import { button, element } from "../dom/element.js";
import { split } from "../markdown/reasoning.js";
import { AnswerView } from "./answer_view.js";
import { editor } from "./editor.js";
import { fileView } from "./text_files.js";

export class MessageView {
  /** options: of `optionsOf`. */
  constructor(message, options) {
    this.message = message;
    this.onEdit = options.onEdit;
    this.name = element("h2", { class: "who" }, options.name);
    this.answer = message.role === "assistant" ? new AnswerView() : null;
    this.said = this.answer?.root ?? question(message);
    this.note = element("p", { class: "note quiet" });
    this.copy = copyButton(() => this.text, "Copy the message");
    this.idle = element("span", { class: "idle" });
    const actions = element("span", { class: "actions" }, this.copy, this.idle);
    const foot = element("div", { class: "foot" }, this.note, actions);
    this.root = element("article", { class: `turn ${message.role}` }, this.name, this.said, foot);
    this.setActions(options);
    this.update(true);
  }

  /** The message without reasoning. */
  get text() {
    return this.answer ? split(this.message.content, true).answer : this.message.content;
  }

  /** Controls of a message that is not being written. */
  setActions({ versions, actions }) {
    this.idle.replaceChildren(
      ...versionSwitch(versions),
      button("Edit", () => this.edit(this.message.content), { class: "plain" }),
      ...Object.entries(actions).map(([text, act]) => button(text, act, { class: "plain" })),
    );
  }

  focusVersions() {
    this.idle.querySelector(".versions button:not([disabled])").focus();
  }

  /** Shows the message as it is now; isComplete: whether no more of it is to come. */
  update(isComplete) {
    const { content, note = "", isFailed = false } = this.message;
    this.answer?.show(this.message, isComplete);
    this.root.classList.toggle("busy", !isComplete);
    this.copy.hidden = !isComplete || content === "";
    if (isComplete) this.progress(note);
    this.note.classList.toggle("warn", isFailed);
  }

  progress(text) {
    this.note.textContent = text;
  }

  /** Opens the editor, with the message's text or another one. */
  edit(text) {
    if (this.editing) return;
    const close = () => {
      this.editing.root.replaceWith(this.said);
      this.editing = null;
      this.idle.hidden = false;
      this.idle.querySelector("button").focus();
    };
    const saves = this.answer ? "Save" : "Send";
    this.editing = editor(text, { saves, onSave: (changed) => this.onEdit(changed), onClose: close });
    this.said.replaceWith(this.editing.root);
    this.idle.hidden = true;
    this.editing.box.focus();
  }
}

function question({ content, files = [] }) {
  const written = element("div", { class: "written" }, content);
  return element("div", { class: "said question" }, written, ...files.map(fileView));
}

/** Buttons to the versions before and after this one, if there are several. */
function versionSwitch({ index, count, onStep }) {
  if (count < 2) return [];
  const step = (text, label, by) => {
    const disabled = index + by < 0 || index + by >= count;
    return button(text, () => onStep(by), { class: "plain", "aria-label": label, disabled });
  };
  return [
    element(
      "span",
      { class: "versions", role: "group", "aria-label": `Version ${index + 1} of ${count}` },
      step("‹", "Previous version", -1),
      element("span", {}, `${index + 1}/${count}`),
      step("›", "Next version", 1),
    ),
  ];
}
