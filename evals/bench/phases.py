"""When in the period should the ticks begin that Vigil times itself? ``make bench-phases``.

Sessions of the real replay backend share one engine through the real fleet and its permits. The engine
batches as a stock one does (``evals.bench.batching``); time is a clock's that is moved by hand, so that
figures are the same on any machine. All sessions begin at the same moment, as after a restart, or scattered
over a period.

- ``none``: each session's ticks follow its own last one
- ``spread``: each session has a phase of its own, as shipped
- ``grouped-N``: N phases, and a share of the sessions on each

``often`` are clients that show ten frames a period, one an append; ``source`` are files that the service
plays, a frame a period. Latency is from the newest frame of a tick to its answer; it holds what that frame
waited for the tick, which for ten frames a period is up to a tenth of it whatever is done.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bridges.circuit import EngineState
from bridges.engine import ChatEvent, ChatRequest, Delta, Finished, ImageBytes
from bridges.frames import CheckedFrame
from evals.bench.batching import Batch, Cost
from evals.load.job import percentile
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.backends.replay.backend import ReplayBackend
from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.backends.replay.intake import Stored
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.engine_fit import BACKGROUND, LIVE_TICKS
from orchestrator.engines.fleet import Fleet, Home, Host
from orchestrator.engines.phases import Phases
from orchestrator.engines.room import Priority, Room
from orchestrator.runtime.permits import Permits
from orchestrator.session.backend import SessionConfig, TickDone
from orchestrator.session.fence import Fence
from orchestrator.session.units import FrameInput, InputUnit
from prompts.loader import load_pack
from prompts.pack import Pack
from tests.fakes.clock import CountingIds, VirtualClock

COST = Cost(step_s=0.010, new_s=0.015)
"""A decision of two tokens alone takes 35 ms; forty at a time 0.62 s: near the H200's in proportion."""
WARM, MEASURED = 5, 20
"""Periods."""
SIDE = 224
OFTEN = 10
VARIANTS = ("none", "spread", "grouped-8", "grouped-4", "grouped-2")
SESSIONS = (8, 24, 40)


class Grouped(Phases):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self._groups = groups

    def take(self, session: str) -> float:
        return int(super().take(session) * self._groups) / self._groups


class Alone(Home):
    """A session whose ticks follow its own last one."""

    def turn_after(self, moment: float, period_s: float) -> float | None:
        return None


class BatchedChat:
    """An engine object: decisions of two tokens, summaries of forty."""

    state = EngineState.UP

    def __init__(self, batch: Batch, pack: Pack) -> None:
        self._batch = batch
        self._pack = pack

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]:
        most = request.params["max_tokens"]
        tokens, text = 1, self._pack.tags.silence
        if most != 1:
            tokens = 2 if most == self._pack.decide.max_tokens else 40
        if tokens == 40:
            text = "A street; two people passed."
        await self._batch.token(new=True)
        yield Delta(text)
        for _ in range(tokens - 1):
            await self._batch.token(new=False)
        yield Finished("stop", 10_000, tokens, 9_900, 1000, 0, 1.0, 1.0)

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return 0

    async def ping(self, timeout_s: float) -> bool:
        return True

    async def aclose(self) -> None:
        pass

    def statistics(self) -> Mapping[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class Case:
    """:param frames: of a session in a period; ``together``: all sessions begin at the same moment"""

    sessions: int
    frames: int
    together: bool

    @property
    def name(self) -> str:
        return f"{'often' if self.frames > 1 else 'source'}, {'together' if self.together else 'scattered'}"


async def _checked(
    frames: Sequence[bytes], max_pixels: int, then: Callable[[Sequence[CheckedFrame]], Stored]
) -> Stored:
    return then([CheckedFrame(data, SIDE, SIDE, passed_through=True) for data in frames])


class Run:
    """One case with one variant."""

    def __init__(self, case: Case, variant: str, pack: Pack) -> None:
        self._case, self._variant, self._pack = case, variant, pack
        self._period_s = pack.period_ms / 1000
        self._clock = VirtualClock()
        chat = BatchedChat(Batch(COST, self._clock), pack)
        permits = Permits(LIVE_TICKS, BACKGROUND, now=self._clock.now)
        self._host = Host("engine", chat, permits, Room(None), self._clock)
        if variant.startswith("grouped"):
            self._host.phases = Grouped(int(variant.partition("-")[2]))
        self._fleet = Fleet([self._host], self._clock)
        self._latencies: list[float] = []
        self._frames = TransientFrames()

    async def go(self) -> dict[str, Any]:
        case = self._case
        begins = random.Random(case.sessions)
        offsets = [0.0 if case.together else begins.random() * self._period_s for _ in range(case.sessions)]
        tasks = [asyncio.create_task(self._session(n, offset)) for n, offset in enumerate(offsets)]
        await self._clock.advance(WARM * self._period_s)
        before = dict(self._host.room.ticks)
        await self._clock.advance(MEASURED * self._period_s)
        ticks = {of: number - before[of] for of, number in self._host.room.ticks.items()}
        await self._clock.advance(30.0)
        await asyncio.gather(*tasks)
        ordered = sorted(self._latencies)

        def ms(share: float) -> float:
            return round((percentile(ordered, share) or 0.0) * 1000)

        return {
            "case": case.name,
            "sessions": case.sessions,
            "variant": self._variant,
            "p50_ms": ms(0.5),
            "p95_ms": ms(0.95),
            "max_ms": ms(1.0),
            "ticks_a_period": round(ticks["answered"] / case.sessions / MEASURED, 3),
            **{of: ticks[of] for of in ("late", "coalesced", "refused")},
        }

    async def _session(self, number: int, offset: float) -> None:
        clock, period, name = self._clock, self._period_s, f"session-{number}"
        of = Alone if self._variant == "none" else Home
        home = of(self._fleet, self._host, name, Priority.NORMAL, "local")
        backend = ReplayBackend(
            name, self._pack, home.chat, self._frames, TransientLog(clock.wall_ms), home.permits, clock,
            CountingIds(), _checked,
            ReplayOptions(b"key", decide=DecideOptions(gate=False), jitter=(number % 8) / 20 - 0.2),
            place=home,
        )  # fmt: skip
        await backend.open(SessionConfig(model="m"))
        reader = asyncio.create_task(self._read(backend))
        await clock.sleep(offset)
        if self._case.frames == 1 and (turn := home.turn_after(clock.now(), period)) is not None:
            await clock.sleep(turn - clock.now())
        step = period / self._case.frames
        begun = clock.now()
        frame = 0
        while (due := begun + frame * step) < (WARM + MEASURED) * period:
            await clock.sleep(due - clock.now())
            unit = InputUnit((FrameInput(b"%s/%d" % (name.encode(), frame), round(frame * step * 1000)),))
            await backend.append(unit, Fence(), f"{name}/{frame}")
            frame += 1
        await clock.sleep(25.0)
        await backend.close("over")
        await reader

    async def _read(self, backend: ReplayBackend) -> None:
        async for output in backend.outputs():
            at = self._clock.now() / self._period_s
            measured = WARM <= at < WARM + MEASURED
            if measured and isinstance(output, TickDone) and output.record.get("prompt_tokens") is not None:
                self._latencies.append(output.record["latency_ms"] / 1000)


async def compare(
    pack: Pack, sessions: Sequence[int], variants: Sequence[str], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    rows = []
    for number in sessions:
        for frames, together in ((OFTEN, True), (OFTEN, False), (1, True)):
            for variant in variants:
                rows.append(await Run(Case(number, frames, together), variant, pack).go())
                tell(json.dumps(rows[-1]))
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    shown = Table(*rows[0])
    for row in rows:
        shown.add_row(*(str(value) for value in row.values()))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, nargs="*", default=SESSIONS)
    parser.add_argument("--variants", nargs="*", default=VARIANTS)
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    given = parser.parse_args()
    console = Console(width=140)

    def tell(line: str) -> None:
        console.print(line, style="dim", markup=False, highlight=False)

    rows = asyncio.run(compare(load_pack("joyvl"), given.sessions, given.variants, tell))
    console.print(table(rows))
    if given.out is not None:
        told = {"bench": "phases", "cost": {"step_s": COST.step_s, "new_s": COST.new_s}, "rows": rows}
        given.out.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
