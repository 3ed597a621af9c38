// The microphone as chunks of 200 ms, from the moment it is opened until it is closed.

export const CHUNK_MS = 200;

export class Microphone extends EventTarget {
  #stream = null;
  #source = null;
  #node = null;
  #loaded = null;

  get open() {
    return Boolean(this.#stream);
  }

  /** Dispatches `chunk` (Float32Array at `rate`) and `lost` when the device goes away. */
  async start(context, rate, deviceId) {
    this.stop();
    const audio = {
      echoCancellation: true, noiseSuppression: true, autoGainControl: true, channelCount: 1,
      ...(deviceId ? { deviceId: { exact: deviceId } } : {}),
    };
    const stream = await navigator.mediaDevices.getUserMedia({ audio });
    this.#loaded ??= context.audioWorklet.addModule("/page/capture-worklet.js");
    await this.#loaded;
    this.#stream = stream;
    this.#source = context.createMediaStreamSource(stream);
    this.#node = new AudioWorkletNode(context, "capture", {
      numberOfOutputs: 0,
      processorOptions: { rate, chunkMs: CHUNK_MS },
    });
    this.#node.port.onmessage = ({ data }) => {
      this.dispatchEvent(new CustomEvent("chunk", { detail: data }));
    };
    this.#source.connect(this.#node);
    stream.getAudioTracks()[0].onended = () => {
      this.stop();
      this.dispatchEvent(new Event("lost"));
    };
  }

  stop() {
    this.#source?.disconnect();
    if (this.#node) this.#node.port.onmessage = null;
    for (const track of this.#stream?.getTracks() ?? []) track.stop();
    this.#stream = this.#source = this.#node = null;
  }
}

/** How loud a chunk is, 0 to 1, for the eye. */
export function loudness(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return Math.min(1, Math.sqrt(sum / samples.length) * 6);
}
