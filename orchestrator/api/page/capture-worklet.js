// Takes what is heard apart into chunks of one length at the rate that the model hears.
//
// A chunk leaves when it is full, whatever else happens: nobody here decides what is speech.

class Capture extends AudioWorkletProcessor {
  constructor({ processorOptions: { rate, chunkMs } }) {
    super();
    this.step = sampleRate / rate; // input samples for one output sample
    this.chunk = new Float32Array(Math.round((rate * chunkMs) / 1000));
    this.filled = 0;
    this.sum = 0;
    this.weight = 0; // how much of the next output sample is there, in input samples
  }

  process([input]) {
    const channels = input.length;
    if (!channels) this.filled = this.sum = this.weight = 0; // what comes next is no continuation
    for (let i = 0; channels && i < input[0].length; i++) {
      let sample = 0;
      for (const channel of input) sample += channel[i] / channels;
      this.take(sample);
    }
    return true;
  }

  /** Each output sample is the mean of the stretch of input that it stands for. */
  take(sample) {
    let left = 1;
    while (left > 1e-9) {
      const part = Math.min(left, this.step - this.weight);
      this.sum += sample * part;
      this.weight += part;
      left -= part;
      if (this.step - this.weight > 1e-9) continue;
      this.chunk[this.filled++] = this.sum / this.weight;
      this.sum = this.weight = 0;
      if (this.filled < this.chunk.length) continue;
      this.port.postMessage(this.chunk.slice());
      this.filled = 0;
    }
  }
}

registerProcessor("capture", Capture);
