// The shown conversation: sends, answers again, continues, edits, deletes and branches its messages.

import { Answering } from "./answering.js";
import { optionsOf } from "./message_options.js";
import { continued, requestMessages } from "./request_messages.js";

const UNKNOWN = "Model"; // the model's name until the server has sent it

export class Chat {
  /** onChange: called with the conversation after each change; onFork: with a tree to show; onDelete: with the record
      from before a deletion; onProblem: with a text. */
  constructor({ transcript, composer, settings, onChange, onFork, onProblem, onDelete }) {
    Object.assign(this, { transcript, composer, settings, onChange, onFork, onProblem, onDelete });
    this.model = UNKNOWN;
    this.answering = null;
  }

  get tree() {
    return this.conversation.tree;
  }

  open(conversation) {
    this.stop();
    this.conversation = conversation;
    this.show();
    this.transcript.scrollToEnd();
  }

  /** Moves the focus to the box; on touch screens to the messages, which a keyboard would cover. */
  focus() {
    const isTouched = matchMedia("(pointer: coarse)").matches;
    (isTouched ? this.transcript.list : this.composer.prompt).focus();
  }

  setModel(name) {
    this.model = name;
    for (const { name: shown } of this.transcript.views) if (shown.textContent === UNKNOWN) shown.textContent = name;
  }

  show() {
    const focused = document.activeElement;
    this.transcript.show(this.tree.path.map((message) => [message, optionsOf(this, message)]));
    this.refresh(focused);
  }

  /** Sends a new question. */
  send(fields) {
    if (this.answering || !this.settings.check()) return;
    this.composer.clear();
    this.ask(this.tree.leaf, { role: "user", ...fields }, () => this.composer.giveBack(fields));
  }

  /** Asks a question in other words, which makes a version of it. */
  edit(message, content) {
    if (this.answering || !this.settings.check()) return;
    const fields = { role: "user", content, files: message.files };
    this.ask(message.parent, fields, () => this.transcript.viewOf(message)?.edit(content));
  }

  ask(parent, fields, giveBack) {
    const before = this.tree.leaf;
    const question = this.tree.add(parent, fields);
    this.answer(this.tree.add(question.id, newAnswer()), () => {
      this.tree.remove(question);
      this.tree.leaf = before;
      this.show();
      giveBack();
    });
  }

  again(message) {
    if (this.answering || !this.settings.check()) return;
    // A last answer that failed before its first word is tried again in its place.
    const isInPlace = message.isFailed && !message.content && message.id === this.tree.leaf;
    this.answer(isInPlace ? message : this.tree.add(message.parent, newAnswer()));
  }

  continue(message) {
    if (this.answering || !this.settings.check()) return;
    this.run(message, continued(this.tree.path, this.settings.system));
  }

  /** Puts other words into an answer, which makes a version of it. */
  rewrite(message, content) {
    this.change(() => this.tree.add(message.parent, { ...message, content, reasoning: "", note: "edited" }));
  }

  delete(message) {
    const before = structuredClone(this.conversation.toJSON());
    this.change(() => this.tree.remove(message));
    this.onDelete(before);
  }

  showVersion(message) {
    this.change(() => this.tree.show(message));
    this.transcript.viewOf(message).focusVersions();
  }

  /** Makes a change to the tree. */
  change(make) {
    if (this.answering) return;
    make();
    this.show();
    this.onChange(this.conversation);
  }

  /** onRefused: undoes the question, after the server has refused it. */
  answer(message, onRefused) {
    const path = this.tree.path.slice(0, -1);
    this.run(message, { messages: requestMessages(path, this.settings.system) }, onRefused);
  }

  async run(message, body, onRefused) {
    const { conversation, transcript, settings } = this;
    this.onProblem("");
    message.model = this.model;
    const answering = new Answering(message, { ...settings.body, ...body }, settings.context, {
      onProgress: () => view.update(false),
      onText: (text) => view.progress(text),
      onSave: () => this.onChange(conversation),
    });
    this.answering = answering;
    this.show();
    transcript.scrollToEnd();
    const view = transcript.viewOf(message);
    view.update(false);
    this.onChange(conversation); // so that an unanswered question survives a reload
    const problem = await answering.run();
    if (this.answering !== answering) return; // another conversation is shown; leave has stored this one
    this.answering = null;
    if (problem?.isRefusal && onRefused && !message.content) {
      onRefused();
      this.onProblem(problem.message);
    } else {
      view.update(true);
      view.setActions(optionsOf(this, message));
    }
    if (problem?.field) settings.point(problem.field);
    this.refresh();
    this.onChange(conversation);
  }

  /** Stops the answer, and keeps what has been received of it. */
  stop() {
    this.answering?.stop();
  }

  /** On reload, or before another conversation is shown. */
  leave() {
    if (!this.answering) return;
    this.stop();
    this.answering = null;
    this.onChange(this.conversation);
  }

  /** Shows only the controls that can be used now, and moves the focus off a hidden one. */
  refresh(focused = document.activeElement) {
    const isBusy = this.answering !== null;
    this.transcript.setBusy(isBusy);
    this.composer.setBusy(isBusy);
    if (focused.isConnected && focused.checkVisibility()) return;
    (isBusy ? this.composer.form.querySelector("#halt") : this.composer.prompt).focus();
  }
}

function newAnswer() {
  return { role: "assistant", content: "" };
}
