// What is asked of the server from time to time: memory and health, while somebody looks at them.

import { get } from "./access.js";
import { $, duration, make, words } from "./dom.js";
import { memoryView } from "./memory.js";

const EVERY_MS = 2500;

export class Insight {
  #session;
  #wire;
  #plots;
  #timeline;
  #tab = "timeline";
  #busy = false;
  #last = "";

  constructor(session, wire, plots, timeline) {
    this.#session = session;
    this.#wire = wire;
    this.#plots = plots;
    this.#timeline = timeline;
    setInterval(() => wire.open && !document.hidden && this.refresh(), EVERY_MS);
    addEventListener("resize", () => this.#paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#paint());
  }

  shown(tab) {
    this.#tab = tab;
    this.#paint();
    this.refresh();
  }

  clear() {
    this.#last = "";
    $("memory").replaceChildren();
    $("health").replaceChildren();
    $("memory-empty").hidden = false;
  }

  async refresh() {
    const id = this.#wire.sessionId;
    if (!id || this.#busy || !["memory", "signals"].includes(this.#tab)) return;
    this.#busy = true;
    try {
      const path = `/v1/sessions/${encodeURIComponent(id)}`;
      if (this.#tab === "memory") this.#memory(await get(`${path}/memory`));
      else this.#health(await get(path));
    } catch {
      // The next round tells again; a lost line is shown by the connection itself.
    } finally {
      this.#busy = false;
    }
  }

  #memory(told) {
    const text = JSON.stringify(told);
    if (text === this.#last) return; // what somebody reads or has selected stays as it is
    this.#last = text;
    $("memory").replaceChildren(...memoryView(told, (at) => this.#session.thumbAt(at)));
    $("memory-empty").hidden = true;
  }

  #health(about) {
    const facts = { ...flat(about.counts), ...flat(about.health) };
    $("health").replaceChildren(
      ...Object.entries(facts).flatMap(([name, value]) => [
        make("dt", {}, words(name)), make("dd", {}, shown(name, value))]),
    );
  }

  #paint() {
    this.#timeline.paint();
    Object.values(this.#plots).forEach((plot) => plot.paint());
  }
}

/** Plain values, those of inner objects by their path. Zeros tell nothing. */
function flat(value, prefix = "") {
  const found = {};
  for (const [name, each] of Object.entries(value ?? {})) {
    if (each && typeof each === "object") Object.assign(found, flat(each, `${prefix}${name} `));
    else if (each || each === false) found[prefix + name] = each;
  }
  return found;
}

function shown(name, value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (name.endsWith("_s")) return duration(value * 1000);
  if (name.endsWith("_ms")) return duration(value);
  return Number.isInteger(value) ? String(value) : value.toFixed(2);
}
