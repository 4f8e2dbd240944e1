// The live view of the engine: numbers, their last minute, the map of KV pages, and the last steps.

import { NOTHING, count, counted, duration, rate } from "../dom/format.js";
import { Live } from "./live.js";
import { PageMap } from "./page_map.js";
import { Sparkline } from "./sparkline.js";
import { StepChart } from "./step_chart.js";

const HISTORY = "jaxserve.charts";
const NUM_STEPS = 60;
const SHOWN = { running: count, waiting: count, tokens_per_s: rate, ttft_ms: duration, itl_ms: duration };
const STATES = ["free", "cached", "held", "shared"];

export class EngineView {
  /** tab: `JsonStorage` of this tab, with the charts' history over a reload. */
  constructor(panel, tab, onConnect) {
    this.panel = panel;
    const history = tab.read(HISTORY) ?? {};
    this.sparklines = Object.fromEntries(
      [...panel.querySelectorAll(".spark canvas")].map((canvas) => {
        const name = canvas.dataset.of;
        return [name, new Sparkline(canvas, history[name])];
      }),
    );
    addEventListener("pagehide", () => {
      const lines = Object.entries(this.sparklines);
      tab.write(HISTORY, Object.fromEntries(lines.map(([name, { points }]) => [name, points])));
    });
    this.map = new PageMap(this.at("map"));
    this.steps = new StepChart(this.at("steps"), NUM_STEPS);
    this.live = new Live(panel, onConnect, (frame) => this.show(frame), (text) => this.say(text));
  }

  at(id) {
    return this.panel.querySelector(`#${id}`);
  }

  /** Shows the connection's state; empty text means connected. */
  say(text) {
    this.panel.classList.toggle("lost", text !== "");
    const state = text || this.state || "";
    if (this.at("state").textContent !== state) this.at("state").textContent = state;
  }

  show(frame) {
    this.state = frame.running + frame.waiting > 0 ? "working" : "idle";
    this.say("");
    for (const [name, format] of Object.entries(SHOWN)) {
      const value = frame[name] ?? null;
      this.at(name).textContent = value === null ? NOTHING : format(value);
      this.sparklines[name].add(value);
    }
    this.showPages(frame.pages);
    this.showSteps(frame.steps);
  }

  showPages(pages) {
    for (const state of STATES) this.at(state).textContent = count(pages[state]);
    const perCell = this.map.show(pages.map) * pages.pages_per_square;
    const scale = perCell > 1 ? `, ${counted(perCell, "page")} per cell` : "";
    this.at("pages-note").textContent = `${count(pages.total)}${scale}`;
    this.at("host").hidden = !pages.host_total;
    this.at("host").textContent = `Host memory holds ${count(pages.host)} of ${count(pages.host_total)} pages.`;
    const counts = STATES.map((state) => `${count(pages[state])} ${state}`).join(", ");
    this.at("map").setAttribute("aria-label", `Map of ${count(pages.total)} KV pages: ${counts}`);
  }

  /** steps: [decode tokens, prompt tokens, padding, milliseconds] each, the last one last. */
  showSteps(steps) {
    this.steps.show(steps.map((step) => step.slice(0, 3)));
    const [decode, prompt, padding, ms] = steps.at(-1) ?? [];
    const last = { decode_tokens: decode, prompt_tokens: prompt, padding };
    for (const [id, value] of Object.entries(last)) {
      this.at(id).textContent = value === undefined ? NOTHING : count(value);
    }
    this.at("steps-note").textContent = ms === undefined ? "" : `the last took ${duration(ms)}`;
  }
}
