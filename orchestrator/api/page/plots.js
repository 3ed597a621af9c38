// A line over the last minutes, drawn by hand.

const POINTS_MAX = 240;

export class Plot {
  #canvas;
  #output;
  #format;
  #ceiling;
  #values = [];

  /** `ceiling`: the least value at the top of the axis. */
  constructor(canvas, output, format, ceiling) {
    this.#canvas = canvas;
    this.#output = output;
    this.#format = format;
    this.#ceiling = ceiling;
  }

  add(value) {
    if (typeof value !== "number" || !Number.isFinite(value)) return;
    this.#values.push(value);
    this.#values.splice(0, this.#values.length - POINTS_MAX);
    this.#output.textContent = this.#format(value);
    this.paint();
  }

  clear() {
    this.#values = [];
    this.#output.textContent = "–";
    this.paint();
  }

  get values() {
    return this.#values;
  }

  paint() {
    const canvas = this.#canvas, box = canvas.getBoundingClientRect();
    if (!box.width) return; // not to be seen
    const ratio = devicePixelRatio || 1, style = getComputedStyle(canvas);
    canvas.width = box.width * ratio;
    canvas.height = box.height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const ink = style.getPropertyValue("--accent"), faint = style.getPropertyValue("--line");
    const top = Math.max(this.#ceiling, ...this.#values) * 1.05, left = 44, floor = box.height - 6;
    const y = (value) => floor - (value / top) * (floor - 8);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    for (const value of [0, top / 2.1, top / 1.05]) {
      pen.fillStyle = style.getPropertyValue("--quiet");
      pen.fillText(this.#format(value), 0, Math.min(floor - 4, Math.max(8, y(value))));
      pen.fillStyle = faint;
      pen.fillRect(left, Math.round(y(value)), box.width - left, 1);
    }
    if (!this.#values.length) return;
    const step = (box.width - left - 4) / (Math.max(60, this.#values.length) - 1);
    pen.beginPath();
    this.#values.forEach((value, i) => pen.lineTo(left + i * step, y(value)));
    pen.strokeStyle = ink;
    pen.lineWidth = 2;
    pen.lineJoin = "round";
    pen.stroke();
    const end = left + (this.#values.length - 1) * step;
    pen.lineTo(end, floor);
    pen.lineTo(left, floor);
    pen.globalAlpha = 0.12;
    pen.fillStyle = ink;
    pen.fill();
    pen.globalAlpha = 1;
    pen.beginPath();
    pen.arc(end, y(this.#values.at(-1)), 3, 0, 2 * Math.PI);
    pen.fill();
    const sorted = this.#values.toSorted((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)];
    canvas.setAttribute("aria-label",
      `Now ${this.#format(this.#values.at(-1))}, median ${this.#format(median)}, most ${this.#format(sorted.at(-1))}`);
  }
}
