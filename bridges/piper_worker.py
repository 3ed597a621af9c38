"""Piper as a program of its own: run by the interpreter of Piper's environment, never imported here.

    python piper_worker.py VOICE.onnx

One JSON line a text on the standard input, ``{"id": 1, "text": "..."}``. On the standard output a JSON line
for each piece of sound, ``{"id": 1, "rate": 22050, "bytes": 4410}``, with that many bytes of PCM16 mono
behind it; at its end ``{"id": 1, "done": true}``, or ``{"id": 1, "error": "..."}``. The first line is
``{"ready": true}``. A line ``{"cancel": 1}`` ends a text between two pieces. It ends with its input.
"""

import json
import queue
import sys
import threading
from typing import Any, BinaryIO

PIECE_BYTES = 8192


class Requests:
    """Texts as they come, and which of them are not wanted any more; filled by a thread."""

    def __init__(self, source: BinaryIO) -> None:
        self.texts: queue.Queue[dict[str, Any] | None] = queue.Queue(64)
        self._source = source
        self._newest_cancelled = 0

    def run(self) -> None:
        for line in self._source:
            request = json.loads(line)
            if "cancel" in request:
                self._newest_cancelled = request["cancel"]
            else:
                self.texts.put(request)
        self.texts.put(None)

    def wanted(self, number: int) -> bool:
        return number > self._newest_cancelled


def main(model: str) -> None:
    from piper import PiperVoice, SynthesisConfig  # type: ignore[import-not-found]

    out = sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever a library prints is no sound

    def tell(head: dict[str, Any], sound: bytes = b"") -> None:
        out.write(json.dumps(head).encode() + b"\n" + sound)
        out.flush()

    voice = PiperVoice.load(model)
    config = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)  # the same words sound the same
    requests = Requests(sys.stdin.buffer)
    threading.Thread(target=requests.run, daemon=True).start()
    tell({"ready": True})
    while (request := requests.texts.get()) is not None:
        number = request["id"]
        try:
            for chunk in voice.synthesize(request["text"], config):
                pcm = chunk.audio_int16_bytes
                for at in range(0, len(pcm), PIECE_BYTES):
                    if not requests.wanted(number):
                        break
                    piece = pcm[at : at + PIECE_BYTES]
                    tell({"id": number, "rate": chunk.sample_rate, "bytes": len(piece)}, piece)
                if not requests.wanted(number):
                    break
            tell({"id": number, "done": True})
        except Exception as error:
            tell({"id": number, "error": f"{type(error).__name__}: {error}"[:200]})


if __name__ == "__main__":
    main(sys.argv[1])
