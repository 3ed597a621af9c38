"""Whole replays against a real engine, in this process, with everything that came of them."""

from __future__ import annotations

import asyncio
import functools
import io
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console

from bridges.engine import ChatEngine, ChatEvent, ChatRequest, ImageBytes
from evals.bench.arms import PATIENT
from evals.bench.between import Between
from evals.bench.pictures import clip_pictures
from evals.replay.console import RunConsole
from evals.replay.core import engine_of, settings_of
from evals.replay.drive import Frame, Sampling, Sink
from evals.replay.folder import RunFolder, read_rows
from evals.replay.in_process import InProcessDrive
from evals.replay.options import Pace, Query, ReplayOptions
from evals.replay.run import Ending, replay
from memory.facts import AnyFact, FrameSeen, TickAnswered, TickBegun, parse_fact
from memory.store.base import Entry
from orchestrator.keeping import Keeper, Kept, Lasting
from orchestrator.replay_track import ReplayTrack
from orchestrator.runtime.clock import SystemClock
from orchestrator.runtime.registry import SessionSpec
from tests.engine_launch.real_engine import RealEngine

SIDE = 448
"""Of the frames, in pixels: 196 tokens each."""
SMALL_SIDE = 224
"""49 tokens each: a tick takes about half as long."""

QUERY = "Tell me what happens in front of the camera."
OnDelta = Callable[[int, str], None]
"""Told, inside the tick, of each piece of text and how many ticks were done before it."""
Through = Callable[[ChatEngine], ChatEngine]


@functools.lru_cache(maxsize=1)
def pictures(count: int, side: int = SIDE) -> tuple[bytes, ...]:
    """Pictures of real clips, no two of them equal."""
    made = tuple(clip_pictures((side, side), count, time.time_ns()))
    assert len(set(made)) == count
    return made


class Pictures:
    """A file, as far as a replay can tell: one picture a second; it waits for whoever watches it."""

    live = False

    def __init__(self, shown: Sequence[bytes]) -> None:
        self._shown = shown

    def info(self) -> Mapping[str, Any]:
        width, height = Image.open(io.BytesIO(self._shown[0])).size
        return {"name": "pictures", "width": width, "height": height}

    def warnings(self) -> Sequence[str]:
        return ()

    def dropped(self) -> int:
        return 0

    def expected(self, sampling: Sampling) -> int | None:
        return len(self._shown)

    async def frames(self, sampling: Sampling) -> AsyncGenerator[Frame, None]:
        for n, picture in enumerate(self._shown):
            yield Frame(n * sampling.period_ms, picture)


@dataclass
class Watched:
    """One replay.

    :param out: the folder of its files
    :param rows: of ``decisions.jsonl``
    :param spoken: for each row the text that was streamed inside its tick
    :param notices: codes, in order
    :param asked: the engine requests that were answered to their end
    :param facts: the session's log as far as memory reads it
    """

    out: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    spoken: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    asked: list[ChatRequest] = field(default_factory=list)
    facts: list[AnyFact] = field(default_factory=list)
    outcome: str = ""
    error: object = None
    summary: dict[str, Any] = field(default_factory=dict)

    @property
    def answered_frames(self) -> list[str]:
        """Ids of the frames of all answered ticks, in the order in which they were shown."""
        riding: dict[int, tuple[str, ...]] = {}
        shown: list[str] = []
        for fact in self.facts:
            if isinstance(fact, TickBegun):
                riding[fact.tick] = fact.frame_ids
            elif isinstance(fact, TickAnswered):
                shown += riding[fact.tick]
        return shown

    @property
    def seen_frames(self) -> list[str]:
        return [fact.frame_id for fact in self.facts if isinstance(fact, FrameSeen)]

    def kinds(self) -> Counter[str]:
        return Counter(fact.kind for fact in self.facts)


async def watch(
    engine: RealEngine,
    out: Path,
    shown: Sequence[bytes],
    *,
    seed: int,
    on_delta: OnDelta | None = None,
    family: str = "joyvl",
    through: Through | None = None,
) -> Watched:
    """Replay ``shown``, a picture a tick, with a standing query from the first on.

    The engine is found by its URL and judged by the self-check, as ``vigil replay --engine URL`` does.
    ``through`` stands between the session and the engine.
    """
    options = ReplayOptions(
        source="pictures",
        out=out,
        queries=[Query(0.0, QUERY)],
        pace=Pace.FAST,
        engine=engine.url,
        family=family,
        seed=seed,
    )
    settings = settings_of(options)
    watched = Watched(out)
    ending = Ending(asyncio.Event())
    source = Pictures(shown)
    with engine_of(settings, lambda line: None) as found:
        drive = _Drive(settings, found)
        drive.watched, drive.on_delta, drive.through = watched, on_delta, through
        sampling = await drive.prepare()
        console = RunConsole(Console(file=io.StringIO()), len(shown))
        with RunFolder(out) as folder, console:
            watched.summary = await replay(
                options, source, drive, folder, console, SystemClock(), ending, sampling
            )
            watched.rows = [dict(row) for row in read_rows(folder.path / "decisions.jsonl")]
    watched.outcome, watched.error = ending.outcome, ending.error
    return watched


class _Drive(InProcessDrive):
    """Notes what goes to the client, to the engine and into the log."""

    watched: Watched
    on_delta: OnDelta | None
    through: Through | None

    async def prepare(self) -> Sampling:
        sampling = await super().prepare()
        assert self._core is not None
        track = self._core.track
        assert isinstance(track, ReplayTrack)
        host = track.hosts.fleet.hosts[0]
        chat: ChatEngine = _Asking(host.chat, self.watched)
        host.chat = self.through(chat) if self.through else chat  # type: ignore[assignment]
        self._core.keeper = _Keeping(self._core.keeper, self.watched)
        return sampling

    async def open(self, sink: Sink) -> None:
        await super().open(_Sink(sink, self.watched, self.on_delta))


class _Sink:
    def __init__(self, sink: Sink, watched: Watched, on_delta: OnDelta | None) -> None:
        self._sink, self._watched, self._on_delta = sink, watched, on_delta
        self._said = ""

    def delta(self, text: str) -> None:
        self._said += text
        if self._on_delta:
            self._on_delta(len(self._watched.spoken), text)
        self._sink.delta(text)

    def tick(self, record: Mapping[str, Any]) -> None:
        self._watched.spoken.append(self._said)
        self._said = ""
        self._sink.tick(record)

    def notice(self, code: str, message: str) -> None:
        self._watched.notices.append(code)
        self._sink.notice(code, message)


class _Asking(Between):
    """Patient, so that a machine with other work is no failure: speed is for the benches."""

    def __init__(self, engine: ChatEngine, watched: Watched) -> None:
        super().__init__(engine)
        self._watched = watched

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        patient = replace(request, deadlines=PATIENT)
        async with aclosing(super().chat(patient, images)) as events:
            async for event in events:
                yield event
        self._watched.asked.append(request)


class _Keeping:
    """A keeper whose logs are read along."""

    def __init__(self, keeper: Keeper, watched: Watched) -> None:
        self._keeper, self._watched = keeper, watched

    async def keep(self, spec: SessionSpec, lasting: Lasting) -> Kept:
        kept = await self._keeper.keep(spec, lasting)
        kept.log.subscribe(self._note)  # type: ignore[attr-defined]
        return kept

    def _note(self, entry: Entry) -> None:
        fact = parse_fact(entry.kind, dict(entry.data))
        if fact is not None:
            self._watched.facts.append(fact)

    async def salt(self, tenant: str) -> str:
        return await self._keeper.salt(tenant)

    async def sweep(self) -> None:
        await self._keeper.sweep()

    async def aclose(self) -> None:
        await self._keeper.aclose()
