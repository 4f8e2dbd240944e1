// A line of the last minute's values.

import { Drawing } from "./drawing.js";

const SECONDS = 60;
const GAP_S = 2; // between frames, four of which come each second, when the connection or the page was gone

/** A line from 0 to the values' maximum, with gaps where there was no measurement. */
export class Sparkline {
  /** points: [seconds since 1970, value] each, from before a reload. */
  constructor(canvas, points = []) {
    this.points = points;
    this.drawing = new Drawing(canvas, (surface) => this.draw(surface));
  }

  add(value) {
    const now = Date.now() / 1000;
    const past = this.points.filter(([time]) => time > now - SECONDS && time <= now);
    const gap = past.length && past.at(-1)[0] < now - GAP_S ? [[now - GAP_S, null]] : [];
    this.points = [...past, ...gap, [now, value]];
    this.drawing.redraw();
  }

  draw({ context, width, height, scale, color }) {
    const known = this.points.filter(([, value]) => value !== null);
    if (!known.length) return;
    const most = Math.max(1e-9, ...known.map(([, value]) => value));
    const now = this.points.at(-1)[0];
    const radius = 1.75 * scale;
    const x = (time) => (width - radius) * (1 - (now - time) / SECONDS);
    const y = (value) => height - radius - (height - 2 * radius) * (value / most);
    context.strokeStyle = context.fillStyle = color("--line-ink");
    context.lineWidth = 1.25 * scale;
    context.lineJoin = "round";
    context.beginPath();
    let isDown = false;
    for (const [time, value] of this.points) {
      if (value !== null) context[isDown ? "lineTo" : "moveTo"](x(time), y(value));
      isDown = value !== null;
    }
    context.stroke();
    const [time, value] = known.at(-1);
    context.beginPath();
    context.arc(x(time) - radius, y(value), radius, 0, 2 * Math.PI);
    context.fill();
  }
}
