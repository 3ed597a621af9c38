// The assistant's voice: plays it, and says what of it was heard.

import { decode } from "./samples.js";

export class Player extends EventTarget {
  #node = null;
  #context = null;
  #heard = new Map(); // ms by response: what was last told
  #ended = new Set(); // responses of which all has come
  #closed = new Set(); // flushed: what still comes of them is not played
  #tickets = new Map();
  #ticket = 0;
  #received = new Map(); // samples by response
  #sounding = false;

  async open(context) {
    await context.audioWorklet.addModule("/page/player-worklet.js");
    this.#context = context;
    this.#node = new AudioWorkletNode(context, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.#node.port.onmessage = ({ data }) => this.#told(data);
    this.#node.connect(context.destination);
  }

  get sounding() {
    return this.#sounding;
  }

  play(id, text, rate) {
    if (!this.#node || this.#closed.has(id)) return;
    const samples = decode(text);
    this.#received.set(id, (this.#received.get(id) ?? 0) + samples.length);
    this.#node.port.postMessage({ id, samples, rate }, [samples.buffer]);
    this.#sound(true);
  }

  /** No more of it will come. */
  complete(id) {
    this.#ended.add(id);
  }

  /** Silence at once, and later on from where it was. A flush ends it, too. */
  pause(on) {
    this.#node?.port.postMessage({ paused: on });
  }

  /** Silence at once, for one response or for all. Resolves with [[id, ms heard]] when it is silent. */
  flush(id = null) {
    for (const each of id ? [id] : this.#received.keys()) this.#closed.add(each);
    if (!this.#node) return Promise.resolve([]);
    this.#sound(false);
    const ticket = ++this.#ticket;
    this.#node.port.postMessage({ flush: id, ticket });
    const answer = new Promise((resolve) => this.#tickets.set(ticket, resolve));
    return answer.then((all) => all.filter(([each]) => !id || each === id));
  }

  /** What of a response came and was heard: {samples, ms}. */
  account(id) {
    return { samples: this.#received.get(id) ?? 0, ms: this.#heard.get(id) ?? 0 };
  }

  #told({ ticket, played }) {
    const behind = (this.#context.outputLatency || 0) * 1000; // rendered, but still on its way to the ear
    const news = [];
    for (const [id, ms, queued] of played) {
      const whole = !queued && this.#ended.has(id) && !this.#closed.has(id);
      const heard = Math.max(this.#heard.get(id) ?? 0, Math.floor(whole ? ms + 0.5 : Math.max(0, ms - behind)));
      if (heard !== this.#heard.get(id) || ticket) news.push([id, heard]);
      this.#heard.set(id, heard);
    }
    if (ticket) {
      this.#tickets.get(ticket)?.(news);
      this.#tickets.delete(ticket);
    } else if (news.length) {
      this.dispatchEvent(new CustomEvent("heard", { detail: news }));
    }
    this.#sound(played.some(([, , queued]) => queued));
    for (const kept of [this.#heard, this.#received]) while (kept.size > 64) kept.delete(kept.keys().next().value);
    for (const kept of [this.#ended, this.#closed]) while (kept.size > 256) kept.delete(kept.values().next().value);
  }

  #sound(on) {
    if (on === this.#sounding) return;
    this.#sounding = on;
    this.dispatchEvent(new CustomEvent("sounding", { detail: on }));
  }
}
