// Sound as numbers, and numbers as what travels.

/** Float samples (-1 to 1) as little-endian pcm16 or pcm_f32le, in base64. */
export function encode(samples, format) {
  const wide = format === "pcm_f32le";
  const view = new DataView(new ArrayBuffer(samples.length * (wide ? 4 : 2)));
  samples.forEach((sample, i) => {
    if (wide) view.setFloat32(i * 4, sample, true);
    else view.setInt16(i * 2, Math.max(-1, Math.min(1, sample)) * 32767, true);
  });
  return base64(new Uint8Array(view.buffer));
}

/** Base64 pcm16 as float samples. A spare byte at the end is left out. */
export function decode(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length >> 1 }, (_, i) => view.getInt16(i * 2, true) / 32768);
}

export function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000)
    text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}
