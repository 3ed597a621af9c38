// What the assistant is shown: a camera, the screen, or a file; one picture of it whenever one is asked for.

import { base64 } from "./samples.js";

const LONG_SIDE = 640;
const THUMB_SIDE = 120;
const QUALITY = 0.8, THUMB_QUALITY = 0.6;

export class Picture extends EventTarget {
  #video;
  #still;
  #canvas = document.createElement("canvas");
  #thumb = document.createElement("canvas");
  #url = null;
  kind = null;

  constructor(video, still) {
    super();
    this.#video = video;
    this.#still = still;
  }

  async camera(deviceId) {
    const video = {
      width: { ideal: 1280 }, height: { ideal: 720 }, frameRate: { ideal: 15 },
      ...(deviceId ? { deviceId: { exact: deviceId } } : { facingMode: { ideal: "environment" } }),
    };
    await this.#stream(await navigator.mediaDevices.getUserMedia({ video }), "camera");
  }

  async screen() {
    await this.#stream(await navigator.mediaDevices.getDisplayMedia({ video: true }), "screen");
  }

  /** A video runs at its own speed and ends there; a picture stays. */
  async file(file) {
    if (file.type.startsWith("image/")) {
      const bitmap = await createImageBitmap(file);
      this.stop();
      Object.assign(this.#still, { width: bitmap.width, height: bitmap.height });
      this.#still.getContext("2d").drawImage(bitmap, 0, 0);
      this.#show("still");
      return;
    }
    this.stop();
    this.#url = URL.createObjectURL(file);
    this.#video.src = this.#url;
    this.#video.onended = () => this.stop();
    await this.#video.play();
    this.#show("file");
  }

  stop() {
    const stream = this.#video.srcObject;
    for (const track of stream?.getTracks() ?? []) track.stop();
    this.#video.onended = null;
    this.#video.srcObject = null;
    if (this.#url) {
      this.#video.removeAttribute("src");
      this.#video.load();
      URL.revokeObjectURL(this.#url);
      this.#url = null;
    }
    this.#show(null);
  }

  /** {jpeg: base64, thumb: data URL} of what is to be seen now; null when nothing is. */
  async grab() {
    const source = this.kind === "still" ? this.#still : this.#video;
    const width = source.videoWidth ?? source.width, height = source.videoHeight ?? source.height;
    if (!this.kind || !width || (source === this.#video && source.readyState < 2)) return null;
    draw(this.#canvas, source, width, height, LONG_SIDE);
    draw(this.#thumb, this.#canvas, this.#canvas.width, this.#canvas.height, THUMB_SIDE);
    const blob = await new Promise((done) => this.#canvas.toBlob(done, "image/jpeg", QUALITY));
    if (!blob) return null;
    const jpeg = base64(new Uint8Array(await blob.arrayBuffer()));
    return { jpeg, thumb: this.#thumb.toDataURL("image/jpeg", THUMB_QUALITY) };
  }

  async #stream(stream, kind) {
    this.stop();
    this.#video.srcObject = stream;
    for (const track of stream.getVideoTracks()) track.onended = () => this.stop();
    await this.#video.play();
    this.#show(kind);
  }

  #show(kind) {
    this.kind = kind;
    this.#still.hidden = kind !== "still";
    this.#video.hidden = kind === "still";
    this.dispatchEvent(new Event("change"));
  }
}

function draw(canvas, source, width, height, side) {
  const scale = Math.min(1, side / Math.max(width, height));
  canvas.width = Math.max(28, Math.round(width * scale));
  canvas.height = Math.max(28, Math.round(height * scale));
  canvas.getContext("2d").drawImage(source, 0, 0, canvas.width, canvas.height);
}
