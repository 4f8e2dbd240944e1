// A canvas drawn at the screen's resolution, in the colors of the style sheet.

/** A canvas at its size on the page; `draw` is called again when size or colors change. */
export class Drawing {
  constructor(canvas, draw) {
    this.canvas = canvas;
    this.draw = draw;
    new ResizeObserver(() => this.redraw()).observe(canvas);
    addEventListener("themechange", () => this.redraw());
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
