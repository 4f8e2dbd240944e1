// The map of KV pages: cells that can be told apart, in rows from the first page on.

import { Drawing } from "./drawing.js";

const COLORS = ["--free", "--cached", "--held", "--shared"];
const MAX_PITCH = 12; // from one cell to the next, in CSS pixels like the next ones
const MIN_PITCH = 7; // smaller cells with a gap of one pixel run into one gray
const MAX_HEIGHT = 190;

/** Each cell stands for as many of the server's squares as are needed to fit, and is filled with their shares from the
    bottom: shared, held, cached, free. */
export class PageMap {
  constructor(canvas) {
    this.canvas = canvas;
    this.squares = [];
    this.drawing = new Drawing(canvas, (surface) => this.draw(surface));
  }

  /** runs: [state, length, state, length, …]; returns the squares per cell. */
  show(runs) {
    this.squares = [];
    for (let i = 0; i < runs.length; i += 2) this.squares.push(...Array(runs[i + 1]).fill(runs[i]));
    const { pitch, columns, size } = this.fit();
    if (columns) this.canvas.style.height = `${Math.ceil(this.squares.length / size / columns) * pitch}px`;
    this.drawing.redraw();
    return size;
  }

  /** The fewest squares per cell (size), then the largest cells that fit; pitch: from one cell to the next. */
  fit() {
    const width = this.canvas.clientWidth;
    if (width < MAX_PITCH) return { pitch: 0, columns: 0, size: 1 };
    for (let size = 1; ; size++) {
      const num = Math.ceil(this.squares.length / size);
      for (let side = MAX_PITCH; side >= MIN_PITCH; side--) {
        const columns = Math.floor(width / side);
        const pitch = width / columns; // so that every row ends at the right edge
        if (Math.ceil(num / columns) * pitch <= MAX_HEIGHT) return { pitch, columns, size };
      }
    }
  }

  draw({ context, width, color }) {
    const { columns, size } = this.fit();
    const gap = Math.max(1, Math.round(0.1 * (width / columns)));
    const pitch = (width + gap) / columns;
    const edge = (i) => Math.round(i * pitch);
    const colors = COLORS.map(color);
    for (let i = 0; i * size < this.squares.length; i++) {
      const [left, top] = [edge(i % columns), edge(Math.floor(i / columns))];
      const [right, bottom] = [edge((i % columns) + 1) - gap, edge(Math.floor(i / columns) + 1) - gap];
      const states = this.squares.slice(i * size, (i + 1) * size);
      let [upper, count] = [bottom, 0];
      for (let state = COLORS.length - 1; state >= 0; state--) {
        count += states.filter((one) => one === state).length;
        const next = Math.round(bottom - ((bottom - top) * count) / states.length);
        context.fillStyle = colors[state];
        context.fillRect(left, next, right - left, upper - next);
        upper = next;
      }
    }
  }
}
