// Plays what arrives, in order, and counts to the sample what of each response has been played.

const TOLD_EVERY_S = 0.1;
const QUEUE_MAX = 4096; // chunks

class Player extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = []; // {id, samples, rate}
    this.at = 0; // within the first chunk, in its own samples
    this.played = new Map(); // ms by response
    this.told = 0;
    this.paused = false;
    this.port.onmessage = ({ data }) => this.heed(data);
  }

  heed(data) {
    if (data.samples) {
      if (this.queue.length < QUEUE_MAX) this.queue.push(data);
    } else if ("paused" in data) {
      this.paused = data.paused;
    } else if ("flush" in data) {
      // Of one response, or of all; what was played of them is told in the same breath.
      const first = this.queue[0];
      this.queue = data.flush ? this.queue.filter((chunk) => chunk.id !== data.flush) : [];
      if (this.queue[0] !== first) this.at = 0;
      this.paused = false;
      this.tell(data.ticket);
    }
  }

  process(_, [output]) {
    const out = output[0];
    for (let i = 0; i < out.length && this.queue.length && !this.paused; i++) out[i] = this.next();
    for (const other of output.slice(1)) other.set(out);
    if (currentTime - this.told >= TOLD_EVERY_S && this.played.size) this.tell();
    return true;
  }

  next() {
    const { id, samples, rate } = this.queue[0];
    const whole = Math.floor(this.at), part = this.at - whole;
    const here = samples[whole], then = samples[whole + 1] ?? here;
    const step = Math.min(rate / sampleRate, samples.length - this.at);
    this.at += step;
    this.played.set(id, (this.played.get(id) ?? 0) + (step * 1000) / rate);
    if (samples.length - this.at < 1e-6) {
      this.queue.shift();
      this.at = 0;
    }
    return here + (then - here) * part;
  }

  /** Once told and no longer queued, a response is forgotten. */
  tell(ticket) {
    this.told = currentTime;
    const queued = new Set(this.queue.map((chunk) => chunk.id));
    this.port.postMessage({ ticket, played: [...this.played].map(([id, ms]) => [id, ms, queued.has(id)]) });
    if (this.played.size > 64)
      for (const id of this.played.keys()) if (!queued.has(id)) this.played.delete(id);
  }
}

registerProcessor("player", Player);
