// Frames of the engine from /live, while somebody can see them.

import { ask, events } from "./api.js";

const LONGEST_PAUSE_MS = 10_000;
const SILENCE_MS = 3_000;

/** Calls onFrame with each frame, and onState with what to say of the connection. */
export class Live {
  constructor(panel, onFrame, onState) {
    this.onFrame = onFrame;
    this.onState = onState;
    this.isSeen = false;
    this.abort = null;
    document.addEventListener("visibilitychange", () => this.refresh());
    new IntersectionObserver((entries) => {
      this.isSeen = entries.at(-1).isIntersecting;
      this.refresh();
    }).observe(panel);
  }

  refresh() {
    const isWanted = this.isSeen && !document.hidden;
    if (isWanted && !this.abort) {
      this.abort = new AbortController();
      this.watch(this.abort.signal);
    } else if (!isWanted && this.abort) {
      this.abort.abort();
      this.abort = null;
    }
  }

  /** Until the signal: connects, and again when the connection ends. */
  async watch(signal) {
    for (let pause = 1000; !signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      try {
        for await (const data of events(await ask("live", { signal }))) {
          pause = 500;
          this.heard();
          this.onFrame(JSON.parse(data));
        }
        this.onState("not connected");
      } catch (error) {
        if (!signal.aborted) this.onState(error.message);
      }
      clearTimeout(this.silence);
      if (!signal.aborted) await new Promise((go) => setTimeout(go, pause));
    }
  }

  heard() {
    this.onState("");
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.onState("the engine is in a long step"), SILENCE_MS);
  }
}
