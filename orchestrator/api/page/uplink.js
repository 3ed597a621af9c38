// What goes up, and when: sound every 200 ms while unmuted, one picture a second always.
//
// While sound goes up a picture rides on it; muted, each picture is a unit of its own. Sound goes up while
// the assistant speaks, too, and nothing here commits: what is speech and whose turn it is, others decide.

import { CHUNK_MS } from "./capture.js";
import { encode } from "./samples.js";

export const FRAME_MS = 1000;
const SOUND_LATE_MS = 3 * CHUNK_MS;

export class Uplink {
  #wire;
  #input = { format: "pcm16", rate: 16000 };
  #hears = false;
  #needsSound = false;
  #waiting = null;
  #soundAt = -Infinity;
  #now;
  muted = true;

  constructor(wire, now = () => performance.now()) {
    this.#wire = wire;
    this.#now = now;
  }

  /** What the session takes, from its capabilities and the server's word on sound. */
  fit(capabilities, input) {
    const required = capabilities.required_input_modalities ?? [];
    this.#needsSound = required.includes("audio");
    this.#hears = this.#needsSound || (capabilities.optional_input_modalities ?? []).includes("audio");
    this.#input = { format: input?.exact ? input.format : "pcm16", rate: (input?.exact && input.rate_hz) || 16000 };
  }

  get hears() {
    return this.#hears;
  }

  get input() {
    return this.#input;
  }

  sound(samples) {
    if (this.muted || !this.#hears) return;
    this.#soundAt = this.#now();
    const frame = this.#waiting;
    this.#waiting = null;
    this.#append({
      audio: encode(samples, this.#input.format),
      format: this.#input.format,
      sample_rate_hz: this.#input.rate,
      duration_ms: CHUNK_MS,
      ...(frame ? shown(frame) : {}),
    });
  }

  /** `at`: media time in ms. False when nothing can take it now. */
  frame(jpeg, at) {
    const frame = { jpeg, at };
    const flows = !this.muted && this.#hears && this.#now() - this.#soundAt < SOUND_LATE_MS;
    if (flows) {
      this.#waiting = frame;
      return true;
    }
    this.#waiting = null;
    return this.#needsSound ? false : this.#append(shown(frame));
  }

  #append(fields) {
    return this.#wire.send({ type: "input_audio_buffer.append", ...fields }, { media: true });
  }
}

function shown({ jpeg, at }) {
  return { video_frames: [jpeg], frame_times_ms: [Math.round(at)] };
}
