// Decisions, newest first. A run of silence is one entry; so is an answer of a model that decides as it speaks.

import { clock, count, duration, make, words } from "./dom.js";

const ROWS_MAX = 200;
const RIBBON_MAX = 240;
const THUMBS = 4;
const WHY = {
  gated: "nothing was asked yet",
  model: "the model had nothing to say",
  model_listen: "the model listens",
  deduplicated: "it would have said the same again",
  unhealthy: "the answer made no sense",
  engine_late: "the engine was too late",
  not_asked: "nobody asked for words",
};
const NAMES = { silence: "Silence", response: "Response", delegate: "Delegation" };

export class Timeline {
  #list;
  #empty;
  #ribbon;
  #rows = []; // newest first
  #ticks = []; // actions, oldest first
  #unplaced = null; // a response whose decision has not been told yet

  constructor(list, empty, ribbon) {
    this.#list = list;
    this.#empty = empty;
    this.#ribbon = ribbon;
  }

  /** `tick`: a vigil.tick event; `thumb`: the picture that it was about. */
  decided(tick, thumb) {
    const { action, media_time_ms: at, reason = null, latency_ms: latency = null } = tick;
    this.#ticks.push(action);
    this.#ticks.splice(0, this.#ticks.length - RIBBON_MAX);
    const row = this.#joined(tick) ?? this.#add({ action, thumbs: [], reasons: {}, count: 0 });
    if (!row.count) row.from = at;
    row.to = at;
    row.count += 1;
    row.latency = latency;
    row.score = tick.score ?? row.score;
    if (reason) row.reasons[reason] = (row.reasons[reason] ?? 0) + 1;
    if (thumb && row.thumbs.at(-1) !== thumb) row.thumbs = [...row.thumbs, thumb].slice(-THUMBS);
    if (action === "response" && !row.response && this.#unplaced) {
      Object.assign(row, this.#unplaced);
      this.#unplaced = null;
    }
    if (action === "delegate") this.#unplaced = null; // what it said meanwhile is in the conversation
    this.#draw(row);
    this.paint();
  }

  /** The entry that a decision goes on with, if there is one. */
  #joined({ action, unit }) {
    const last = this.#rows[0];
    if (action === "delegate") return this.#rows.find((row) => row.delegation && !row.count); // told before its decision
    return last?.action === action && (action === "silence" || unit !== undefined) ? last : null;
  }

  /** What a response says, so far; `status` once it is over. */
  said(response, text, status = null) {
    let row = this.#rows.find((each) => each.response === response);
    const open = this.#rows[0];
    if (!row && open?.action === "response" && !open.response) row = open;
    if (row) {
      Object.assign(row, { response, text, status });
      this.#draw(row);
    } else {
      this.#unplaced = { response, text, status };
    }
  }

  delegated({ delegation_id: id, status, question, text, error }, at) {
    let row = this.#rows.find((each) => each.delegation === id);
    row ??= this.#rows.find((each) => each.action === "delegate" && !each.delegation);
    row ??= this.#add({ action: "delegate", from: at, to: at, thumbs: [], reasons: {}, count: 0 });
    Object.assign(row, { delegation: id, status, question, text: text ?? error ?? row.text });
    this.#draw(row);
  }

  clear() {
    this.#rows = [];
    this.#ticks = [];
    this.#unplaced = null;
    this.#list.replaceChildren();
    this.#empty.hidden = false;
    this.paint();
  }

  story() {
    const rows = this.#rows.slice(0, 60).map(({ element, thumbs, ...row }) => ({ ...row, thumbs: thumbs.slice(-2) }));
    return { rows, ticks: this.#ticks };
  }

  restore({ rows, ticks }) {
    this.clear();
    this.#ticks = ticks;
    for (const row of rows.toReversed()) this.#draw(this.#add(row));
    this.paint();
  }

  /** The ribbon: one bar for each decision. */
  paint() {
    const canvas = this.#ribbon, style = getComputedStyle(canvas);
    const box = canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
    canvas.width = Math.max(1, box.width * ratio);
    canvas.height = Math.max(1, box.height * ratio);
    const pen = canvas.getContext("2d");
    const step = 6 * ratio, room = Math.floor(canvas.width / step);
    this.#ticks.slice(-room).forEach((action, i) => {
      pen.fillStyle = style.getPropertyValue(`--${action}`);
      const high = action === "silence" ? 0.35 : 1;
      pen.fillRect(i * step, canvas.height * (1 - high), step - 2 * ratio, canvas.height * high);
    });
    const said = this.#ticks.filter((action) => action !== "silence").length;
    canvas.setAttribute(
      "aria-label",
      this.#ticks.length ? `${count(this.#ticks.length, "decision")}, ${said} of them not silent` : "No decisions yet",
    );
  }

  #add(row) {
    this.#rows.unshift(row);
    row.element = make("li", { className: `row ${row.action}` });
    this.#list.prepend(row.element);
    for (const old of this.#rows.splice(ROWS_MAX)) old.element.remove();
    this.#empty.hidden = true;
    return row;
  }

  #draw(row) {
    const { action, from, to, status, latency, score } = row;
    const span = clock(from) === clock(to) ? clock(from) : `${clock(from)} – ${clock(to)}`;
    const facts = [
      row.count > 1 && action === "silence" ? `${row.count} times` : null,
      score !== undefined && score !== null ? `score ${score.toFixed(2)}` : null,
      latency !== null && latency !== undefined ? duration(latency) : null,
      status && status !== "completed" ? words(status) : null,
    ].filter(Boolean);
    row.element.replaceChildren(
      make("div", { className: "thumbs" }, ...row.thumbs.map((src) => make("img", { src, alt: "", width: 64 }))),
      make("div", { className: "what" },
        make("p", { className: "head" },
          make("strong", {}, NAMES[action] ?? words(action)),
          make("time", {}, span),
          make("span", { className: "quiet facts" }, facts.join(" · "))),
        ...body(row)),
    );
  }
}

function body({ action, reasons, text, question }) {
  const why = Object.entries(reasons).sort((a, b) => b[1] - a[1]);
  const told = (reason) => WHY[reason] ?? words(reason);
  const because = why.map(([reason, n]) => (why.length > 1 ? `${told(reason)} (${n})` : told(reason))).join("; ");
  return [
    question ? make("p", { className: "question" }, question) : null,
    text ? make("p", { className: "text" }, text) : null,
    because && action !== "response" ? make("p", { className: "quiet why" }, `Why: ${because}`) : null,
  ].filter(Boolean);
}
