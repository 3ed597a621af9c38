"""From the first sound of somebody who speaks over an answer to silence, over the real detector.

``vigil serve`` speaks an answer; recorded speech is played into its session in real time, in packets of 200
ms as a page sends them, and begins anywhere within a packet. In seconds from the first sample of speech::

    told_s      the client is told to pause
    last_s      the last sound of the answer reaches the client; 0: none did
    cancelled_s the client is told that the answer is over
    detector_s  the detector alone: end of the first window that may be speech

Speech begins where it is louder than ``ONSET_RMS`` for ``ONSET_MS``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from websockets.asyncio.client import ClientConnection, connect

from bridges.vad_endpoint import EndpointRules
from bridges.vad_silero import Silero
from evals.bench.ears_bench import PACKET_S, play
from evals.bench.stand import serving
from evals.recordings import RATE_HZ, Samples, recordings, silence
from tests.fakes.engine import FakeEngine, Pace, Seen

ONSET_RMS, ONSET_MS = 0.02, 30
NOISE = 0.001
SPEECH_S, BEFORE_S, BEHIND_S = 1.2, 1.0, 0.4
WAIT_S = 20.0
STORY = (
    "And then, as far as anybody could tell, the long story went on and on, from one thing to the next. " * 4
)


@dataclass
class BargeIns:
    told_s: list[float] = field(default_factory=list)
    last_s: list[float] = field(default_factory=list)
    cancelled_s: list[float] = field(default_factory=list)
    detector_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


async def barge_ins(folder: Path, flags: Sequence[str], rounds: int, seed: int = 1) -> BargeIns:
    """:param flags: of ``vigil serve``: ears and a voice"""
    found = BargeIns()
    utterances = [_from_onset(samples) for samples, _ in recordings().values()]
    found.detector_s = [lag for speech in utterances for lag in _detector_lags(speech)]
    chance = random.Random(seed)

    def says(seen: Seen) -> str:
        return f" {STORY}" if seen.continued else "<silence>"

    async with (
        FakeEngine(says, pace=Pace(per_token_s=0.02)) as engine,
        serving(folder, engine.url, flags) as (_, url, _log),
    ):
        address = f"ws{url.removeprefix('http')}/v1/realtime?duplex=1&autostart=0"
        for number in range(rounds + 1):
            # The first one starts what has to start.
            counted = found if number else BargeIns()
            async with connect(address, max_size=None, compression=None, proxy=None) as socket:
                before_s = BEFORE_S + chance.uniform(0.0, PACKET_S)
                await _round(socket, utterances[number % len(utterances)], before_s, counted)
            found.faults += counted.faults if not number else []
    return found


async def _round(socket: ClientConnection, speech: Samples, before_s: float, found: BargeIns) -> None:
    session = {
        "turn_detection": {"type": "server_vad"},
        "modalities": ["text", "audio"],
        "include": ["vigil.playback"],
        "extra_body": {"auto_response": False},
    }
    await _send(socket, "session.update", session=session)
    content = [{"type": "input_text", "text": "Tell me a story."}]
    item = {"type": "message", "role": "user", "content": content}
    await _send(socket, "conversation.item.create", item=item)
    await _send(socket, "response.create")
    while (await _next(socket))["type"] != "response.output_audio.delta":
        pass
    whole = np.concatenate((silence(before_s, NOISE), speech, silence(BEHIND_S, NOISE)))
    begin = time.monotonic()
    onset = begin + before_s
    playing = asyncio.create_task(play(socket, whole, begin))
    told: float | None = None
    last = onset
    try:
        while True:
            event, now = await _next(socket), time.monotonic()
            match event["type"]:
                case "response.output_audio.delta":
                    last = max(last, now)
                case "vigil.playback" if event["action"] == "pause" and now > onset and told is None:
                    told = now
                case "error":
                    found.faults.append(str(event["error"]))
                case "response.done":
                    found.cancelled_s.append(now - onset)
                    break
    except TimeoutError:
        found.faults.append("the answer was not interrupted")
    await playing
    if told is None:
        found.faults.append("no pause was told")
    else:
        found.told_s.append(told - onset)
    found.last_s.append(last - onset)


async def _next(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(WAIT_S):
        event: dict[str, Any] = orjson.loads(await socket.recv())
    return event


async def _send(socket: ClientConnection, type_: str, **fields: Any) -> None:
    await socket.send(orjson.dumps({"type": type_, **fields}).decode())


def _from_onset(samples: Samples) -> Samples:
    size, run = RATE_HZ // 100, ONSET_MS // 10
    blocks = samples[: samples.size // size * size].reshape(-1, size)
    loud = np.sqrt((blocks**2).mean(axis=1)) > ONSET_RMS
    first = next(at for at in range(loud.size) if loud[at : at + run].all()) * size
    return samples[first : first + round(SPEECH_S * RATE_HZ)]


def _detector_lags(speech: Samples, places: int = 8) -> list[float]:
    """Over where speech begins within the detector's window."""
    lags: list[float] = []
    silero = Silero()
    for place in range(places):
        detector = silero.detector()
        before = RATE_HZ + detector.window * place // places
        whole = np.concatenate((silence(before / RATE_HZ, NOISE), speech))
        for start in range(0, whole.size - detector.window, detector.window):
            if detector.probability(whole[start : start + detector.window]) >= EndpointRules().suspicious:
                lags.append((start + detector.window - before) / RATE_HZ)
                break
    return lags
