"""Clips shown to a model that is asked tick by tick, each to a session of its own on tape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from evals.readers.clip import Clip
from evals.replay.core import sampling_of
from evals.replay.folder import RunFolder
from evals.replay.in_process import SessionDrive
from evals.replay.options import Pace, ReplayOptions
from evals.replay.run import Ending, replay
from evals.replay.source import Source
from evals.runs.clips import TAPE, ClipFolder, KeptSource, TapedDrive, file_digest, queries_of
from evals.runs.core import Watchlist, open_run_core
from evals.runs.keeper import Pictures
from evals.runs.manifest import FRAMES, PACK, facts_of
from evals.runs.runner import Ended, Progress, Stand, Suite
from orchestrator.app import Core
from orchestrator.engine_setup import Engine
from orchestrator.exits import Exit
from orchestrator.files import write_whole
from orchestrator.runtime.clock import SystemClock
from orchestrator.settings import Settings

SourceOf = Callable[[Clip], Source]
"""What a clip shows. Raises ``ReplayError`` where there is nothing to play."""


class TickWatcher:
    """A ``Watcher``: an engine that answers requests."""

    def __init__(self, settings: Settings, engine: Engine, source_of: SourceOf, pace: Pace) -> None:
        self.settings = settings
        self.engine = engine
        self.source_of = source_of
        self.pace = pace

    @property
    def seats(self) -> tuple[int, str]:
        return self.settings.limits.sessions, "limits.sessions"

    def facts(self, suite: Suite) -> dict[str, Any]:
        return facts_of(self.settings, self.engine) | {"pace": self.pace.value}

    def keep(self, folder: Path) -> None:
        write_whole(folder / PACK, self.engine.pack.source.encode())

    def inputs(self, clip: Clip, suite: Suite) -> Sequence[Path]:
        return ()

    @asynccontextmanager
    async def opened(self, folder: Path, suite: Suite, key: str) -> AsyncIterator[Stand]:
        watchlist, clock = Watchlist(), SystemClock()
        core = await open_run_core(self.settings, self.engine, bytes.fromhex(key), watchlist, clock)
        try:
            yield _Sessions(self, core, watchlist, Pictures(folder / FRAMES), clock)
        finally:
            await core.aclose()

    def options(self, clip: Clip, out: Path) -> ReplayOptions:
        return ReplayOptions(
            source=clip.video or clip.id,
            out=out,
            queries=queries_of(clip),
            pace=self.pace,
            persona=self.settings.persona,
            language=self.settings.language,
            seed=self.settings.decision.seed,
            threshold=self.settings.decision.threshold,
        )


class _Sessions:
    def __init__(
        self, watcher: TickWatcher, core: Core, watchlist: Watchlist, pictures: Pictures, clock: SystemClock
    ) -> None:
        self._watcher = watcher
        self._core = core
        self._watchlist = watchlist
        self._pictures = pictures
        self._clock = clock

    async def watch(self, clip: Clip, files: ClipFolder, progress: Progress, stop: asyncio.Event) -> Ended:
        watcher = self._watcher
        source = await asyncio.to_thread(watcher.source_of, clip)
        watched = files.begin_tape(self._pictures, self._clock)
        self._watchlist.add(watched)
        sampling, ending = sampling_of(watcher.engine), Ending(stop)
        try:
            with RunFolder(files.path) as folder:
                summary = await replay(
                    watcher.options(clip, files.path),
                    KeptSource(source, self._pictures),
                    TapedDrive(
                        SessionDrive(self._core, watcher.engine, clip.id), watched.tape, self._pictures
                    ),
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
            lost = ending.error.exit_code is Exit.ENGINE_UNREACHABLE
            return Ended(summary, error=ending.error.message, engine_lost=lost)
        if ending.exit_code is not Exit.OK:
            return Ended(summary)
        tape = await asyncio.to_thread(file_digest, files.path / TAPE)
        return Ended(summary, {"session": watched.session_id, "tape": tape, "pictures": watched.frames.index})
