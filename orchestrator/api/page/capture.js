// What the assistant hears, in chunks of 200 ms: the microphone, the sound of a shown video, or both together.

export const CHUNK_MS = 200;

export class Capture extends EventTarget {
  #node = null;
  #rate = 0;
  #loaded = null;
  #stream = null; // the microphone's
  #element = null; // a video's sound goes where this leads, once it was asked for
  #sources = new Map(); // {node, on} by name

  has(name) {
    return this.#sources.has(name);
  }

  on(name) {
    return Boolean(this.#sources.get(name)?.on);
  }

  get flowing() {
    return [...this.#sources.values()].some(({ on }) => on);
  }

  /** Dispatches `chunk` (Float32Array at `rate`), and `lost` when the device goes away. */
  async microphone(context, rate, deviceId) {
    this.remove("microphone");
    const audio = {
      echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1,
      ...(deviceId ? { deviceId: { exact: deviceId } } : {}),
    };
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    await this.#open(context, rate);
    this.#stream = stream;
    this.#add("microphone", context.createMediaStreamSource(stream));
    stream.getAudioTracks()[0].onended = () => {
      this.remove("microphone");
      this.dispatchEvent(new Event("lost"));
    };
  }

  /** The sound of a video that plays. It is for the assistant alone: a microphone would hear it, too. */
  async video(context, rate, element) {
    await this.#open(context, rate);
    if (!this.#element) {
      this.#element = context.createMediaElementSource(element);
      // Played to nobody, but played: a video whose sound leads nowhere stands still.
      const nobody = new GainNode(context, { gain: 0 });
      this.#element.connect(nobody).connect(context.destination);
    }
    this.#add("file", this.#element);
    element.muted = false;
    if (element.paused) {
      // Nobody touched this page yet, so that a browser lets it play in silence alone.
      element.muted = true;
      await element.play();
    }
  }

  turn(name, on) {
    const source = this.#sources.get(name);
    if (!source || source.on === on) return;
    source.on = on;
    if (on) source.node.connect(this.#node);
    else source.node.disconnect(this.#node);
  }

  remove(name) {
    this.turn(name, false);
    this.#sources.delete(name);
    if (name !== "microphone") return;
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = null;
  }

  #add(name, node) {
    this.turn(name, false);
    this.#sources.set(name, { node, on: false });
    this.turn(name, true);
  }

  async #open(context, rate) {
    this.#loaded ??= context.audioWorklet.addModule("/page/capture-worklet.js");
    await this.#loaded;
    if (this.#node && this.#rate === rate) return;
    const flowing = [...this.#sources].filter(([, { on }]) => on).map(([name]) => name);
    for (const name of flowing) this.turn(name, false);
    if (this.#node) this.#node.port.onmessage = null;
    this.#rate = rate;
    this.#node = new AudioWorkletNode(context, "capture", {
      numberOfOutputs: 0,
      processorOptions: { rate, chunkMs: CHUNK_MS },
    });
    this.#node.port.onmessage = ({ data }) => {
      if (this.flowing) this.dispatchEvent(new CustomEvent("chunk", { detail: data }));
    };
    for (const name of flowing) this.turn(name, true);
  }
}

/** How loud a chunk is, 0 to 1, for the eye. */
export function loudness(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return Math.min(1, Math.sqrt(sum / samples.length) * 6);
}
