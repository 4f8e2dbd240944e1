// What the last steps computed.

import { Drawing } from "./drawing.js";

const STEP_COLORS = ["--decode", "--prompt", "--padding"];

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
