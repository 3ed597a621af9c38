"""``vigil eval run``: every clip of a data set through the session core, so many at a time."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from evals.files import write_json, write_whole
from evals.readers.clip import Clip
from evals.replay.console import View
from evals.replay.core import sampling_of
from evals.replay.folder import RunFolder
from evals.replay.in_process import SessionDrive
from evals.replay.options import Exit, Pace, ReplayError, ReplayOptions
from evals.replay.run import Ending, replay
from evals.replay.source import Source
from evals.runs.clips import ClipFolder, KeptSource, TapedDrive, file_digest, queries_of
from evals.runs.core import Watchlist, open_run_core
from evals.runs.keeper import Pictures
from evals.runs.manifest import (
    FRAMES,
    PACK,
    RUN,
    RunError,
    dataset_digest,
    differences,
    manifest,
    read_manifest,
)
from orchestrator.engine_setup import Engine
from orchestrator.runtime.clock import SystemClock
from orchestrator.settings import Settings

SourceOf = Callable[[Clip], Source]
"""What a clip shows. Raises ``ReplayError`` where there is nothing to play."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A data set that is there to be watched.

    :param format: of the files it was read from
    :param videos: files by clip id; a clip without one is made of its scene
    """

    name: str
    format: str
    clips: Sequence[Clip]
    source_of: SourceOf
    videos: Mapping[str, Path] = field(default_factory=dict)


class Progress(Protocol):
    """Who shows a run to people. ``view`` is of one clip."""

    def begins(self, clips: int, finished: int) -> None:
        """Of so many clips so many are finished already."""

    def view(self, clip: Clip, ticks: int | None) -> View:
        """A clip begins, of about so many ticks."""

    def ends(self, clip: Clip, summary: Mapping[str, Any]) -> None:
        """A clip is over; ``summary`` as in its ``summary.json``."""


@dataclass(slots=True)
class Outcome:
    """How a run went. ``failed``: clip ids with the reason; ``stopped``: from outside, or for want of the
    engine."""

    finished: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    engine_lost: bool = False

    @property
    def word(self) -> str:
        return "interrupted" if self.stopped else "failed" if self.failed else "complete"


class Runner:
    """One run in one folder. A folder that holds the same run already is gone on with.

    :param streams: clips that are watched at a time
    :raises RunError: the folder holds another run, or can't be written
    """

    def __init__(
        self, folder: Path, suite: Suite, settings: Settings, engine: Engine, *, pace: Pace, streams: int
    ) -> None:
        if streams > settings.limits.sessions:
            raise RunError(f"{streams} streams are more than limits.sessions, {settings.limits.sessions}")
        self.folder = folder
        self._suite = suite
        self._settings = settings
        self._engine = engine
        self._pace = pace
        self._streams = streams
        self._pictures = Pictures(folder / FRAMES)
        self._clock = SystemClock()
        self._watchlist = Watchlist()
        self._manifest = self._begun()

    def _begun(self) -> dict[str, Any]:
        suite = self._suite
        dataset = {
            "name": suite.name,
            "format": suite.format,
            "digest": dataset_digest(suite.clips),
            "clips": len(suite.clips),
        }
        # The key is part of every request: fresh for each run, or a second one over the same engine would
        # find what the first left in its cache.
        made = manifest(
            self._settings,
            self._engine,
            dataset,
            pace=self._pace.value,
            streams=self._streams,
            key=secrets.token_hex(32),
        )
        # As it is read back: what is compared is what was written.
        made = dict(orjson.loads(orjson.dumps(made)))
        if (self.folder / RUN).exists():
            old = read_manifest(self.folder)
            if other := differences(old, made):
                told = ", ".join(other)
                raise RunError(
                    f"{self.folder} holds a run that was made with other {told}; use another --out"
                )
            return {**made, "key": old["key"], "started_at": old["started_at"], "wall_s": old["wall_s"]}
        made |= {"started_at": datetime.now(UTC).isoformat(timespec="seconds"), "wall_s": 0.0}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / PACK, self._engine.pack.source.encode())
            write_json(self.folder / RUN, made)
        except OSError as error:
            raise RunError(f"can't write to {self.folder}: {error.strerror}") from error
        return made

    async def run(self, progress: Progress, stop: asyncio.Event) -> Outcome:
        """Watch every clip that is not finished. ``stop`` ends it early; what was finished stays."""
        outcome, began = Outcome(), time.monotonic()
        write_json(self.folder / RUN, {**self._manifest, "outcome": "running"})
        waiting = [clip for clip in self._suite.clips if not await asyncio.to_thread(self._finished, clip)]
        outcome.skipped = len(self._suite.clips) - len(waiting)
        progress.begins(len(self._suite.clips), outcome.skipped)
        waiting.reverse()
        core = await open_run_core(
            self._settings, self._engine, bytes.fromhex(self._manifest["key"]), self._watchlist, self._clock
        )

        async def stream() -> None:
            while waiting and not stop.is_set():
                clip = waiting.pop()
                drive = SessionDrive(core, self._engine, clip.id)
                await self._watch(clip, drive, progress, stop, outcome)

        word = "failed"
        try:
            async with asyncio.TaskGroup() as streams:
                for _ in range(self._streams):
                    streams.create_task(stream())
            outcome.stopped = stop.is_set()
            word = outcome.word
        finally:
            await core.aclose()
            wall_s = round(self._manifest["wall_s"] + time.monotonic() - began, 3)
            write_json(self.folder / RUN, {**self._manifest, "outcome": word, "wall_s": wall_s})
        return outcome

    def _video(self, clip: Clip) -> str | None:
        path = self._suite.videos.get(clip.id)
        return file_digest(path) if path is not None else None

    def _finished(self, clip: Clip) -> bool:
        try:
            return ClipFolder(self.folder, clip).finished(self._video(clip))
        except OSError:  # its video is gone: whoever plays it says so
            return False

    async def _watch(
        self, clip: Clip, drive: SessionDrive, progress: Progress, stop: asyncio.Event, outcome: Outcome
    ) -> None:
        files = ClipFolder(self.folder, clip)
        try:
            source = await asyncio.to_thread(self._suite.source_of, clip)
            video = await asyncio.to_thread(self._video, clip)
        except (ReplayError, OSError) as error:
            outcome.failed[clip.id] = str(error)
            return
        watched = files.begin(self._pictures, self._clock)
        self._watchlist.add(watched)
        sampling = sampling_of(self._engine)
        ending = Ending(stop)
        options = ReplayOptions(
            source=clip.video or clip.id,
            out=files.path,
            queries=queries_of(clip),
            pace=self._pace,
            persona=self._settings.persona,
            language=self._settings.language,
            seed=self._settings.decision.seed,
            threshold=self._settings.decision.threshold,
        )
        try:
            with RunFolder(files.path) as folder:
                summary = await replay(
                    options,
                    KeptSource(source, self._pictures),
                    TapedDrive(drive, watched.tape, self._pictures),
                    folder,
                    progress.view(clip, source.expected(sampling)),
                    self._clock,
                    ending,
                    sampling,
                )
        finally:
            self._watchlist.remove(watched)
            watched.tape.close()
        if ending.error is not None:
            outcome.failed[clip.id] = ending.error.message
            if ending.error.exit_code is Exit.ENGINE_UNREACHABLE:
                outcome.engine_lost = True
                stop.set()  # nobody is there for the others either
        elif ending.exit_code is Exit.OK:
            files.end(watched, video)
            outcome.finished += 1
        progress.ends(clip, summary)
