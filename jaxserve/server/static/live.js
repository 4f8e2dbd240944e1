// Frames of the engine from /live, while somebody can see them.

import { ask, events } from "./api.js";

const LONGEST_PAUSE_MS = 10_000;
const SILENCE_MS = 3_000;
const LOST_MS = 20_000; // without a frame: where packets are swallowed, nothing else tells that the server is gone

/** Calls onConnect at each connection, onFrame with each frame, and onState with what to say of the connection. */
export class Live {
  constructor(panel, onConnect, onFrame, onState) {
    this.onConnect = onConnect;
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

  /** Until the signal: connects, and again when the connection ends or nothing comes. */
  async watch(signal) {
    for (let pause = 1000; !signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      const silence = new Silence(() => this.onState("the engine is in a long step"));
      try {
        const response = await ask("live", { signal: AbortSignal.any([signal, silence.signal]) });
        silence.restart();
        this.onConnect();
        for await (const data of events(response)) {
          pause = 500;
          silence.restart();
          this.onState("");
          this.onFrame(JSON.parse(data));
        }
        this.onState("not connected");
      } catch (error) {
        if (!signal.aborted) this.onState(silence.signal.aborted ? "nothing comes: connecting again" : error.message);
      }
      silence.end();
      if (!signal.aborted) await new Promise((go) => setTimeout(go, pause));
    }
  }
}

/** Since somebody was heard: onLong is called when it is long, and `signal` aborts when it is too long. */
class Silence {
  constructor(onLong) {
    this.onLong = onLong;
    this.abort = new AbortController();
    this.lost = setTimeout(() => this.abort.abort(), LOST_MS);
  }

  get signal() {
    return this.abort.signal;
  }

  restart() {
    this.end();
    this.long = setTimeout(this.onLong, SILENCE_MS);
    this.lost = setTimeout(() => this.abort.abort(), LOST_MS);
  }

  end() {
    clearTimeout(this.long);
    clearTimeout(this.lost);
  }
}
