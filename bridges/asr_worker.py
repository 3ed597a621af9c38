"""The process in which faster-whisper runs: one request after the other, on its standard input and output.

A message is a line of JSON; a request's is followed by ``bytes`` bytes of float32 samples. Run as
``python -m bridges.asr_worker MODEL THREADS``.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

import numpy as np


def main(model: str, threads: int) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        from faster_whisper import WhisperModel

        whisper = WhisperModel(
            model, device="cpu", compute_type="int8", cpu_threads=threads, local_files_only=True
        )
    except Exception as fault:  # told to whoever started it, in words
        _answer(answers, {"error": f"{type(fault).__name__}: {fault}"})
        return
    _answer(answers, {"ready": True})
    requests = sys.stdin.buffer
    while line := requests.readline():
        request = json.loads(line)
        samples = np.frombuffer(requests.read(request["bytes"]), np.float32)
        try:
            _answer(answers, {"segments": _segments(whisper, samples, request.get("language"))})
        except Exception as fault:  # the request's own: the next one may do
            _answer(answers, {"error": f"{type(fault).__name__}: {fault}"})


def _segments(whisper: Any, samples: Any, language: str | None) -> list[dict[str, Any]]:
    spoken = language if whisper.model.is_multilingual else "en"
    found, _ = whisper.transcribe(
        samples,
        language=spoken,
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    # It is recognised only as it is read.
    return [
        {
            "text": each.text,
            "no_speech_prob": each.no_speech_prob,
            "avg_logprob": each.avg_logprob,
            "compression_ratio": each.compression_ratio,
        }
        for each in found
    ]


def _answer(answers: IO[bytes], message: dict[str, Any]) -> None:
    answers.write(json.dumps(message).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
