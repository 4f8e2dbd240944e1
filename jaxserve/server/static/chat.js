// The conversation: sends a question and streams its answer, which can be stopped or requested again.

import { piecesOf } from "./api.js";
import { counted, duration, rate } from "./format.js";
import { Turn } from "./turn.js";

const UNKNOWN = "Model"; // the model's name until the server has sent it
const STOPPED = "stopped";
const ENDS = { length: "ended at max tokens", timeout: "out of time", abort: "aborted", error: "failed" };

export class Chat {
  constructor(form, turns, conversation, settings) {
    this.form = form;
    this.list = turns;
    this.hello = turns.querySelector("#hello");
    this.prompt = form.querySelector("#prompt");
    this.conversation = conversation;
    this.settings = settings;
    this.model = UNKNOWN;
    this.turns = [];
    this.abort = null; // aborts the answer in progress
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.prompt.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.stop());
    addEventListener("pagehide", () => this.leave());
    form.querySelector("#halt").addEventListener("click", () => this.stop());
    form.querySelector("#clear").addEventListener("click", () => this.clear());
  }

  /** Shows the stored conversation. */
  show() {
    for (const exchange of this.conversation.exchanges) this.add(exchange).end();
    this.refresh();
  }

  add(exchange) {
    const turn = new Turn(exchange, this.model);
    turn.again.addEventListener("click", () => this.answer(turn));
    this.list.append(turn.root);
    this.turns.push(turn);
    return turn;
  }

  /** Sets the model's name, also for answers from before it was known. */
  setModel(name) {
    this.model = name;
    for (const { name: shown } of this.turns) if (shown.textContent === UNKNOWN) shown.textContent = name;
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      this.send();
    }
  }

  send() {
    const question = this.prompt.value.trim();
    if (question === "" || this.abort || !this.settings.check()) return;
    this.prompt.value = "";
    this.answer(this.add(this.conversation.add(question)));
  }

  stop() {
    this.abort?.abort();
  }

  /** On reload, keeps the part of the answer received so far, and marks it as stopped, not failed. */
  leave() {
    if (!this.abort) return;
    this.stop();
    this.turns.at(-1).exchange.note = STOPPED;
    this.conversation.save();
  }

  clear() {
    this.stop();
    this.conversation.clear();
    for (const turn of this.turns) turn.root.remove();
    this.turns = [];
    this.refresh();
    this.prompt.focus();
  }

  /** Requests the answer to the last question, for the first time or again. */
  async answer(turn) {
    if (this.abort || !this.settings.check()) return;
    const { exchange } = turn;
    this.abort = new AbortController();
    Object.assign(exchange, { answer: "", note: "", isFailed: false });
    turn.name.textContent = this.model;
    turn.begin();
    this.conversation.save(); // so that an unanswered question survives a reload
    this.refresh();
    this.follow(true);
    const watch = new Watch(this.settings.context);
    try {
      const body = { ...this.settings.body, messages: this.conversation.messages(this.settings.system) };
      for await (const piece of piecesOf(body, this.abort.signal)) {
        watch.take(piece);
        exchange.answer += piece.text;
        const isAtEnd = this.isAtEnd;
        turn.write(piece.text);
        this.follow(isAtEnd);
      }
      exchange.note = watch.summary;
    } catch (error) {
      const isStopped = this.abort.signal.aborted;
      exchange.note = isStopped ? STOPPED : error.message;
      exchange.isFailed = !isStopped;
      if (error.field) this.settings.point(error.field);
    }
    this.abort = null;
    const isAtEnd = this.isAtEnd;
    turn.end();
    this.conversation.save();
    this.refresh();
    this.follow(isAtEnd);
  }

  /** Shows only the controls that can be used now, and moves the focus off a hidden one. */
  refresh() {
    const focused = document.activeElement;
    const isBusy = this.abort !== null;
    this.hello.hidden = this.turns.length > 0;
    this.form.querySelector("#send").hidden = isBusy;
    this.form.querySelector("#halt").hidden = !isBusy;
    this.form.querySelector("#clear").hidden = this.turns.length === 0;
    for (const turn of this.turns) turn.again.hidden = isBusy || turn !== this.turns.at(-1);
    if (!focused.checkVisibility()) (isBusy ? this.form.querySelector("#halt") : this.prompt).focus();
  }

  get isAtEnd() {
    return this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < 40;
  }

  /** Scrolls to the end if it was visible before. */
  follow(isAtEnd) {
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }
}

/** Arrival times of an answer's tokens at this page. context: the maximum tokens of prompt and answer together. */
class Watch {
  constructor(context) {
    this.context = context;
    this.start = performance.now();
    this.first = this.last = null;
    this.finish = this.usage = null;
  }

  take({ text, finish, usage }) {
    this.usage = usage ?? this.usage;
    this.finish = finish ?? this.finish;
    if (text === "") return;
    this.last = performance.now();
    this.first ??= this.last;
  }

  get summary() {
    const parts = [];
    if (this.usage) parts.push(counted(this.usage.completion_tokens, "token"));
    if (this.first !== null) parts.push(`first after ${duration(this.first - this.start)}`);
    const seconds = (this.last - this.first) / 1000;
    if (this.usage && seconds > 0) parts.push(`${rate((this.usage.completion_tokens - 1) / seconds)} per second`);
    const isFull = this.finish === "length" && this.usage?.total_tokens >= this.context;
    if (isFull) parts.push("the context is full");
    else if (this.finish in ENDS) parts.push(ENDS[this.finish]);
    return parts.join(" · ");
  }
}
