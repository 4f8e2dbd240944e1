// Requests one answer and writes it into its message as it arrives.

import { piecesOf } from "../http/completion.js";
import { Stopwatch } from "./stopwatch.js";

const SAVE_MS = 2000;
const STOPPED = "stopped";

export class Answering {
  /** message: grows; onProgress: called after each piece; onText: with the speeds; onSave: every two seconds. */
  constructor(message, body, context, { onProgress, onText, onSave }) {
    this.message = message;
    this.body = body;
    this.onProgress = onProgress;
    this.onSave = onSave;
    this.watch = new Stopwatch(context, onText);
    this.abort = new AbortController();
  }

  stop() {
    this.message.note = STOPPED;
    this.abort.abort();
  }

  /** Runs to the end of the answer; returns the `Problem` that ended it early, or null. */
  async run() {
    const { message } = this;
    let savedMs = performance.now();
    Object.assign(message, { note: "", isFailed: false });
    try {
      for await (const piece of piecesOf(this.body, this.abort.signal)) {
        this.watch.take(piece);
        message.content += piece.text;
        if (piece.reasoning) message.reasoning = (message.reasoning ?? "") + piece.reasoning;
        this.onProgress();
        if (performance.now() - savedMs > SAVE_MS) {
          savedMs = performance.now();
          this.onSave();
        }
      }
      message.note = this.watch.summary;
      return null;
    } catch (error) {
      if (this.abort.signal.aborted) return null;
      Object.assign(message, { note: error.message, isFailed: true });
      return error;
    } finally {
      this.watch.stop();
    }
  }
}
