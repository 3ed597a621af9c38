"""How quickly an answer is heard and how quickly it stops, for each voice there is on this machine.

``make bench-voice``, or ``python -m evals.bench.voice_bench --rounds 30 --out results.json``

A scripted engine writes answers at ``PER_TOKEN_S`` a token; ``vigil serve`` gives them a voice; a client
listens over a socket. Measured are, in ms:

    first_audio_ms   from the request that makes the engine write to the first chunk at the client
    alone_ms         the voice alone: from the first clause, whole, to its first chunk
    silence_ms       from the client's ``response.cancel`` to the last that it gets of that answer
    real_time_factor seconds of work for one second of speech, of the whole answer, in this process

The voices: flite and espeak-ng as installed, Piper where ``make voices`` was run, and a scripted speech
server that costs nothing, so that what the bridge itself takes shows. Other servers: ``--url``, ``--model``.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect

from evals.bench.machine import machine
from evals.bench.stand import serving
from evals.stats import Spread, spread
from orchestrator.runtime.clock import SystemClock
from orchestrator.setting_groups import VoiceGroup
from orchestrator.voice_setup import speaker_of
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speech_server import SpeechServer
from tests.piper import installed

PER_TOKEN_S = 0.02
GOAL_MS = 300.0
WAIT_S = 5.0
CLAUSE = "The red car has reached the bridge,"
TEXT = (
    f"{CLAUSE} and a man with a dog walks by. Then the bus goes on, the light turns"
    " green, and two children cross the street. Nothing else moves. The sky is clear."
)


@dataclass
class Figures:
    asked_at: float = 0.0
    number: int = 0
    first_s: list[float] = field(default_factory=list)
    silence_s: list[float] = field(default_factory=list)


async def voices(arguments: argparse.Namespace, scripted: SpeechServer) -> dict[str, VoiceGroup]:
    """What can be measured here, by name."""
    found: dict[str, dict[str, Any]] = {
        program: {"bridge": "system", "program": program}
        for program in ("flite", "espeak-ng")
        if shutil.which(program)
    }
    if (piper := installed()) is not None:
        found["piper"] = {"bridge": "piper", "piper_python": piper.python, "piper_model": piper.model}
    found["scripted server"] = {"bridge": "openai", "url": scripted.url, "model": "tts"}
    if arguments.url:
        found[arguments.url] = {"bridge": "openai", "url": arguments.url, "model": arguments.model}
    return {name: VoiceGroup(**group) for name, group in found.items()}


async def measured(voice: VoiceGroup, rounds: int) -> dict[str, Any]:
    figures = Figures()

    def says(seen: Seen) -> str:
        if not seen.continued:
            return "<silence>"
        figures.asked_at = time.monotonic()
        figures.number += 1
        return f" Look {figures.number}: {TEXT}"  # what is said twice would not be said again

    with tempfile.TemporaryDirectory() as folder:
        flags = [
            part
            for name, value in voice.model_dump(mode="json", exclude_defaults=True).items()
            for part in (f"--voice-{name.replace('_', '-')}", str(value))
        ]
        async with (
            FakeEngine(says, pace=Pace(per_token_s=PER_TOKEN_S)) as engine,
            serving(Path(folder), engine.url, flags) as (_, url, _log),
            connect(_address(url), max_size=None, compression=None, proxy=None) as socket,
        ):
            await _send(socket, "session.update", session={"modalities": ["text", "audio"]})
            for number in range(rounds + 1):
                await _round(socket, figures, number > 0)  # the first one starts what has to start
    first, silence = spread(figures.first_s), spread(figures.silence_s)
    alone, factor = await _alone(voice, rounds)
    return {
        "first_audio_ms": {"p50": _ms(first.p50), "p95": _ms(first.p95)},
        "alone_ms": {"p50": _ms(alone.p50), "p95": _ms(alone.p95)},
        "silence_ms": {"p50": _ms(silence.p50), "p95": _ms(silence.p95)},
        "real_time_factor": factor,
        "rounds": first.count,
    }


async def _round(socket: ClientConnection, figures: Figures, counts: bool) -> None:
    content = [{"type": "input_text", "text": "What do you see?"}]
    item = {"type": "message", "role": "user", "content": content}
    await _send(socket, "conversation.item.create", item=item)
    await _send(socket, "response.create")
    chunks, cancelled_at, last_at = 0, 0.0, 0.0
    while True:
        async with asyncio.timeout(WAIT_S):
            event = orjson.loads(await socket.recv())
        now = time.monotonic()
        if event["type"] == "response.output_audio.delta":
            chunks += 1
            last_at = now
            if chunks == 1 and counts:
                figures.first_s.append(now - figures.asked_at)
            if chunks == 5:
                cancelled_at = time.monotonic()
                await _send(socket, "response.cancel")
        elif event["type"] == "error":
            raise RuntimeError(f"the service refused: {event['error']}")
        elif event["type"] == "response.done" and chunks:
            if counts and cancelled_at:
                figures.silence_s.append(max(last_at, now) - cancelled_at)
            return


def _address(url: str) -> str:
    return f"ws{url.removeprefix('http')}/v1/realtime?duplex=1&autostart=0"


async def _alone(voice: VoiceGroup, rounds: int) -> tuple[Spread, float]:
    """What the voice itself takes to begin; and for a second of sound, over a whole answer."""
    speaker = speaker_of(voice, SystemClock())
    assert speaker is not None

    async def words(text: str) -> AsyncIterator[str]:
        yield text

    async def first(text: str) -> float:
        began = time.monotonic()
        async with aclosing(speaker.speak(words(text), None, "en")) as sound:
            async for chunk in sound:
                if chunk.pcm:
                    break
        return time.monotonic() - began

    await first("Hello.")  # a process may have to start
    alone = [await first(f"Look {number}: {CLAUSE}") for number in range(rounds)]
    began, pcm = time.monotonic(), 0
    async for chunk in speaker.speak(words(TEXT), None, "en"):
        pcm += len(chunk.pcm)
    took = time.monotonic() - began
    await speaker.aclose()
    return spread(alone), round(took / (pcm / 2 / speaker.rate_hz), 4)


async def _send(socket: ClientConnection, type_: str, **fields: Any) -> None:
    await socket.send(orjson.dumps({"type": type_, **fields}).decode())


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    async with SpeechServer() as scripted:
        groups = await voices(arguments, scripted)
        results = {name: await measured(group, arguments.rounds) for name, group in groups.items()}
    return {"machine": machine(), "per_token_s": PER_TOKEN_S, "goal_silence_ms": GOAL_MS, "voices": results}


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--url", help="a speech server to measure too")
    parser.add_argument("--model", default="tts")
    parser.add_argument("--out", type=Path)
    return parser.parse_args(arguments)


def main() -> int:
    parsed = options()
    result = asyncio.run(run(parsed))
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2).decode()
    print(text)
    if parsed.out is not None:
        parsed.out.write_text(text + "\n")
    slow = [n for n, v in result["voices"].items() if (v["silence_ms"]["p95"] or GOAL_MS + 1) > GOAL_MS]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
