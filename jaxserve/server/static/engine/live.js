// Receives frames of the engine from /live while the panel is visible.

import { ask } from "../http/api.js";
import { events } from "../http/events.js";

const LONGEST_PAUSE_MS = 10_000;
const SILENCE_MS = 3_000;
const LOST_MS = 20_000; // without a frame: if packets are dropped silently, nothing else shows that the server is gone

/** Calls onConnect at each connection, onFrame with each frame, and onState with a text on the connection's state. */
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

  /** Connects, and reconnects when the connection ends or is silent, until the signal. */
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
        if (!signal.aborted) this.onState(silence.signal.aborted ? "no data: reconnecting" : error.message);
      }
      silence.end();
      if (!signal.aborted) await new Promise((go) => setTimeout(go, pause));
    }
  }
}

/** The time since the last frame: calls onLong after `SILENCE_MS`, and aborts `signal` after `LOST_MS`. */
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
