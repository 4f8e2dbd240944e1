// Small charts on canvases, at the screen's resolution, in the colors of the style sheet.

const PAGE_COLORS = ["--free", "--cached", "--held", "--shared"];
const STEP_COLORS = ["--decode", "--prompt", "--padding"];
const MAX_SQUARE = 12; // in CSS pixels, like the next ones
const MAP_HEIGHT = 190;
const SECONDS = 60;

/** A canvas at its size on the page; `draw` is called again when size or colors change. */
class Drawing {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.draw = draw;
    new ResizeObserver(() => this.redraw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
  }

  redraw() {
    const { canvas } = this;
    const scale = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.round(size * scale));
    if (width === 0 || height === 0) return;
    if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(canvas);
    this.draw({ context, width, height, scale, color: (name) => style.getPropertyValue(name) });
  }
}

/** A line of the last minute's values, from 0 to their maximum, with gaps where there was no measurement. */
export class Sparkline {
  constructor(canvas) {
    this.points = []; // [seconds, value]
    this.drawing = new Drawing(canvas, (surface) => this.draw(surface));
  }

  add(value) {
    const now = performance.now() / 1000;
    this.points = [...this.points.filter(([time]) => time > now - SECONDS), [now, value]];
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

/** A map of all KV pages, one square each or as many squares as the server sends, in rows from the first page on. */
export class PageMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.squares = [];
    this.drawing = new Drawing(canvas, (surface) => this.draw(surface));
  }

  /** runs: [state, length, state, length, …]. */
  show(runs) {
    this.squares = [];
    for (let i = 0; i < runs.length; i += 2) this.squares.push(...Array(runs[i + 1]).fill(runs[i]));
    const { pitch, columns } = this.fit();
    if (columns) this.canvas.style.height = `${Math.ceil(this.squares.length / columns) * pitch}px`;
    this.drawing.redraw();
  }

  /** The largest squares that fit; pitch: the distance from one to the next. */
  fit() {
    const width = this.canvas.clientWidth;
    for (let side = MAX_SQUARE; ; side--) {
      const columns = Math.floor(width / side);
      const pitch = width / columns; // so that every row ends at the right edge
      if (side === 2 || Math.ceil(this.squares.length / columns) * pitch <= MAP_HEIGHT) return { pitch, columns };
    }
  }

  draw({ context, width, color }) {
    const { columns } = this.fit();
    const gap = Math.max(1, Math.round(0.1 * (width / columns)));
    const pitch = (width + gap) / columns;
    const edge = (i) => Math.round(i * pitch);
    const colors = PAGE_COLORS.map(color);
    for (const [i, state] of this.squares.entries()) {
      const [column, row] = [i % columns, Math.floor(i / columns)];
      const [left, top] = [edge(column), edge(row)];
      context.fillStyle = colors[state];
      context.fillRect(left, top, edge(column + 1) - left - gap, edge(row + 1) - top - gap);
    }
  }
}

/** One column per step: its height is the logarithm of the computed positions, split in proportion to their kinds. */
export class StepChart {
  constructor(canvas, numColumns) {
    this.numColumns = numColumns;
    this.steps = [];
    this.drawing = new Drawing(canvas, (surface) => this.draw(surface));
  }

  /** steps: parts of each, in the order of STEP_COLORS. */
  show(steps) {
    this.steps = steps.slice(-this.numColumns);
    this.drawing.redraw();
  }

  draw({ context, width, height, scale, color }) {
    const colors = STEP_COLORS.map(color);
    const totals = this.steps.map((parts) => parts.reduce((sum, part) => sum + part, 0));
    const most = Math.log2(1 + Math.max(1, ...totals));
    const step = width / this.numColumns;
    for (const [i, parts] of this.steps.entries()) {
      const left = Math.round(width - (this.steps.length - i) * step);
      const right = Math.round(width - (this.steps.length - i - 1) * step - scale);
      const tall = (height * Math.log2(1 + totals[i])) / most;
      let bottom = height;
      for (const [k, part] of parts.entries()) {
        const top = bottom - (tall * part) / totals[i];
        context.fillStyle = colors[k];
        context.fillRect(left, top, Math.max(1, right - left), bottom - top);
        bottom = top;
      }
    }
  }
}
