"""A small data set of videos that are lists of pictures, and runs of it against the scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evals.readers.clip import Clip
from evals.replay.console import View
from evals.replay.core import engine_of
from evals.replay.options import Pace
from evals.runs.runner import Outcome, Runner, Suite
from evals.runs.ticks import SourceOf, TickWatcher
from orchestrator.settings import Settings
from tests.evals.drives import ListSource
from tests.fakes.engine import FakeEngine, Seen

SECONDS = 14


def script(seen: Seen) -> str:
    """Silence, and now and then a line that tells which request it was."""
    return f"</response> Sight {seen.tick}." if seen.tick % 4 == 2 else "</silence>"


def clip(name: str, seconds: int = SECONDS, **more: Any) -> Clip:
    queries = ({"id": "q1", "text": f"What happens in {name}?", "skill": "alert"},)
    slots = ({"id": "s1", "query": "q1", "kind": "alert", "start_s": 2.0, "end_s": 4.0},)
    data = {"id": name, "video": f"{name}.mp4", "duration_s": seconds, "queries": queries, "slots": slots}
    return Clip.model_validate(data | more)


def listed(each: Clip) -> ListSource:
    """A picture a second."""
    return ListSource(list(range(0, 1000 * int(each.duration_s or 1), 1000)))


class Quiet:
    """A ``Progress`` and a ``View`` that remember."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.summaries: dict[str, Mapping[str, Any]] = {}
        self.finished = 0
        self.ticks = 0
        self.on_tick = lambda: None

    def begins(self, clips: int, finished: int) -> None:
        self.finished = finished

    def view(self, clip: Clip, ticks: int | None) -> View:
        self.begun.append(clip.id)
        return self

    def ends(self, clip: Clip, summary: Mapping[str, Any]) -> None:
        self.summaries[clip.id] = summary

    def frame(self, media_time_s: float) -> None: ...
    def delta(self, text: str) -> None: ...
    def notice(self, code: str, message: str) -> None: ...

    def tick(self, record: Mapping[str, Any]) -> None:
        self.ticks += 1
        self.on_tick()


def settings(engine: FakeEngine, **more: Any) -> Settings:
    decision = {"seed": 3} | more.pop("decision", {})
    memory = {"chunk_frames": 6, "overlap_frames": 2} | more.pop("memory", {})
    return Settings(engine=engine.url, family="joyvl", decision=decision, memory=memory, **more)


async def watch(
    folder: Path,
    engine: FakeEngine,
    clips: Sequence[Clip],
    *,
    progress: Quiet | None = None,
    stop: asyncio.Event | None = None,
    streams: int = 2,
    source_of: SourceOf = listed,
    **more: Any,
) -> Outcome:
    """One ``vigil eval run`` in this loop."""
    wanted = settings(engine, **more)
    opening = engine_of(wanted, lambda line: None)
    # Blocks on requests that the scripted engine answers in this very loop.
    running = await asyncio.to_thread(opening.__enter__)
    try:
        runner = Runner(
            folder,
            Suite("small", "jsonl", clips),
            TickWatcher(wanted, running, source_of, Pace.FAST),
            streams=streams,
        )
        return await runner.run(progress or Quiet(), stop or asyncio.Event())
    finally:
        opening.__exit__(None, None, None)
