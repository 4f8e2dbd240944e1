// The speed of an answer as this page sees it, during the answer and at its end.

import { counted, duration, rate } from "../dom/format.js";

const ENDS = { length: "ended at max tokens", timeout: "out of time", abort: "aborted", error: "failed" };
const PERIOD_MS = 100;

export class Stopwatch {
  /** context: the maximum tokens of prompt and answer together; show: called with a text ten times a second. */
  constructor(context, show) {
    this.context = context;
    this.start = performance.now();
    this.first = this.last = null;
    this.finish = this.usage = null;
    this.timer = setInterval(() => show(this.progress), PERIOD_MS);
  }

  take({ text, reasoning, finish, usage }) {
    this.usage = usage ?? this.usage;
    this.finish = finish ?? this.finish;
    if (text === "" && reasoning === "") return;
    this.last = performance.now();
    this.first ??= this.last;
  }

  stop() {
    clearInterval(this.timer);
  }

  get progress() {
    if (this.first === null) return `waiting for the first token: ${duration(performance.now() - this.start)}`;
    return this.speeds.join(" · ");
  }

  get summary() {
    const share = this.usage?.total_tokens / this.context;
    const isFull = this.finish === "length" && share >= 1;
    const end = isFull ? "the context is full" : ENDS[this.finish];
    const filled = share < 1 ? `context ${Math.round(100 * share)} % full` : null;
    return [...this.speeds, filled, end].filter(Boolean).join(" · ");
  }

  get speeds() {
    const parts = [];
    const num = this.usage?.completion_tokens;
    if (num !== undefined) parts.push(counted(num, "token"));
    if (this.first !== null) parts.push(`first after ${duration(this.first - this.start)}`);
    const seconds = (this.last - this.first) / 1000;
    if (num > 1 && seconds > 0) parts.push(`${rate((num - 1) / seconds)} per second`);
    return parts;
  }
}
