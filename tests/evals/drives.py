"""A scripted session and source for tests of the replay loop, and a clock that moves by sleeping."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from bridges.frames import FrameBounds
from evals.replay.drive import Frame, Sampling, Sink
from evals.replay.options import ReplayError
from tests.evals.rows import picture

SAMPLING = Sampling(1000, FrameBounds(1, 512 * 512))


class StepClock:
    """``now`` starts at 100 s; ``sleep`` returns at once and moves it."""

    def __init__(self) -> None:
        self.time = 100.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return 1_767_323_045_000 + int((self.time - 100) * 1000)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class ListSource:
    """Frames from a list of media times in ms."""

    def __init__(self, times: Sequence[int], live: bool = False, fault: Exception | None = None) -> None:
        self.times = list(times)
        self.live = live
        self.fault = fault

    def info(self) -> Mapping[str, Any]:
        return {"name": "list.mp4", "width": 448, "height": 252}

    def warnings(self) -> Sequence[str]:
        return ("the file is cut short",) if self.fault else ()

    def dropped(self) -> int:
        return 0

    def expected(self, sampling: Sampling) -> int | None:
        return len(self.times)

    async def frames(self, sampling: Sampling) -> AsyncGenerator[Frame, None]:
        for n, time in enumerate(self.times):
            yield Frame(time, picture(n, 64, 48))
        if self.fault:
            raise self.fault


class ScriptedDrive:
    """Answers every frame by ``script(tick)``; keeps what it was given in ``seen``."""

    transport = "in_process"

    def __init__(self, script: Callable[[int], Mapping[str, Any]] | None = None) -> None:
        self.script = script or (lambda tick: {})
        self.seen: list[tuple[str, Any]] = []
        self.closed = 0
        self.fails_at: tuple[int, ReplayError] | None = None
        self.before_tick: Callable[[int], Any] | None = None
        self._sink: Sink | None = None
        self._ticks = 0

    async def prepare(self) -> Sampling:
        return SAMPLING

    async def open(self, sink: Sink) -> None:
        self._sink = sink

    def engine_facts(self) -> Mapping[str, Any]:
        return {"model": "scripted", "url": "none", "warnings": ["small cache"]}

    async def ask(self, text: str) -> None:
        self.seen.append(("ask", text))

    async def withdraw(self) -> None:
        self.seen.append(("withdraw", None))

    async def show(self, frame: Frame, *, lossless: bool) -> None:
        assert self._sink is not None
        tick, self._ticks = self._ticks, self._ticks + 1
        self.seen.append(("frame", frame.media_time_ms))
        if self.fails_at and self.fails_at[0] == tick:
            raise self.fails_at[1]
        if self.before_tick:
            await self.before_tick(tick)
        record = {
            "tick": tick,
            "media_time_s": frame.media_time_ms / 1000,
            "action": "silence",
            "reason": "model",
            "text": "",
            "window": 0,
            "prompt_tokens": 100 + tick,
            "cached_tokens": 96,
            "latency_ms": 12.5,
            "status": "completed",
            "lossless": lossless,
        } | dict(self.script(tick))
        for piece in str(record["text"]).split(" "):
            if piece:
                self._sink.delta(piece + " ")
        self._sink.tick(record)

    async def settle(self) -> None:
        self.seen.append(("settle", None))

    async def close(self) -> None:
        self.closed += 1
