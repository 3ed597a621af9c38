"""The loop of a replay: frames in order and at their pace, queries at their time, every tick written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from evals.replay.console import View
from evals.replay.drive import Drive, Frame, Sampling
from evals.replay.folder import RunFolder
from evals.replay.options import Pace, Query, ReplayError, ReplayOptions
from evals.replay.source import Source
from evals.report.summary import RunFacts
from orchestrator.exits import Exit
from orchestrator.session.backend import Clock

CLOSE_TIMEOUT_S = 10.0
"""How long the session may take to end; the files are written whatever happens."""


class Recorder:
    """The sink of a run: each tick goes to the folder with the newest frame shown, and to who looks on."""

    def __init__(self, folder: RunFolder, view: View) -> None:
        self._folder = folder
        self._view = view
        self._picture: bytes | None = None
        self.notes: list[str] = []

    def frame(self, frame: Frame) -> None:
        self._picture = frame.data
        self._view.frame(frame.media_time_ms / 1000)

    def delta(self, text: str) -> None:
        self._view.delta(text)

    def tick(self, record: Mapping[str, Any]) -> None:
        self._folder.add(record, self._picture)
        self._view.tick(record)

    def notice(self, code: str, message: str) -> None:
        # Bounded: a session that is told something at every tick must not fill the summary.
        if len(self.notes) < 100:
            self.notes.append(f"{code}: {message}")
        self._view.notice(code, message)


@dataclass(slots=True)
class Ending:
    """How a run ended. ``stop`` is set from outside (a signal) to end it early."""

    stop: asyncio.Event
    stop_code: Exit = Exit.INTERRUPTED
    exit_code: Exit = Exit.OK
    error: ReplayError | None = None

    @property
    def outcome(self) -> str:
        if self.error is not None:
            return "failed"
        return "complete" if self.exit_code is Exit.OK else "interrupted"


async def replay(
    options: ReplayOptions,
    source: Source,
    drive: Drive,
    folder: RunFolder,
    view: View,
    clock: Clock,
    ending: Ending,
    sampling: Sampling,
) -> dict[str, Any]:
    """Run until the source ends, ``ending.stop`` is set or the session fails; write the files.

    Never raises ``ReplayError``: how it went is in ``ending``. Returns the content of ``summary.json``.
    """
    recorder = Recorder(folder, view)
    started, began = datetime.fromtimestamp(clock.wall_ms() / 1000, UTC), clock.now()
    sent = 0

    async def watch() -> None:
        nonlocal sent
        await drive.open(recorder)
        queries = list(options.queries)
        async with aclosing(_paced(source.frames(sampling), options, source, clock)) as frames:
            async for frame in frames:
                for query in _due(queries, frame.media_time_ms):
                    await (drive.withdraw() if query.text is None else drive.ask(query.text))
                recorder.frame(frame)
                sent += 1
                await drive.show(frame, lossless=not source.live)
                if options.max_ticks is not None and folder.ticks >= options.max_ticks:
                    break
        await drive.settle()

    watching = asyncio.create_task(watch())
    stopping = asyncio.create_task(ending.stop.wait())
    try:
        await asyncio.wait({watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not watching.done():
            ending.exit_code = ending.stop_code
            watching.cancel()
        try:
            await watching
        except ReplayError as failed:
            ending.error, ending.exit_code = failed, failed.exit_code
        except asyncio.CancelledError:
            if not ending.stop.is_set():
                raise
    finally:
        watching.cancel()
        stopping.cancel()
        await asyncio.gather(watching, stopping, return_exceptions=True)
        with suppress(ReplayError, TimeoutError):
            await asyncio.wait_for(drive.close(), CLOSE_TIMEOUT_S)
        engine = dict(drive.engine_facts())
        warnings = [*source.warnings(), *engine.pop("warnings", ()), *recorder.notes]
        summary = folder.finish(
            RunFacts(
                outcome=ending.outcome,
                transport=drive.transport,
                started_at=started.isoformat(timespec="seconds"),
                wall_s=round(clock.now() - began, 3),
                options=options.public(),
                source=dict(source.info()),
                engine=engine,
                frames={"sent": sent, "dropped": source.dropped()},
                warnings=warnings,
                error=_error_facts(ending.error),
            )
        )
    return summary


def _error_facts(error: ReplayError | None) -> dict[str, str] | None:
    return {"code": error.code, "message": error.message} if error else None


def _due(queries: list[Query], media_time_ms: int) -> list[Query]:
    """Take the queries whose time has come out of ``queries``, oldest first."""
    due = sorted((q for q in queries if q.at_s * 1000 <= media_time_ms), key=lambda q: q.at_s)
    queries[:] = [q for q in queries if q.at_s * 1000 > media_time_ms]
    return due


async def _paced(
    frames: AsyncGenerator[Frame, None], options: ReplayOptions, source: Source, clock: Clock
) -> AsyncGenerator[Frame, None]:
    """Hold a file's frames back until their time has come; a live stream has its own pace.

    When decisions take longer than a period the frames come late, but they all come.
    """
    start: float | None = None
    async with aclosing(frames) as flow:
        async for frame in flow:
            if options.pace is Pace.REALTIME and not source.live:
                if start is None:
                    start = clock.now() - frame.media_time_ms / 1000
                wait = start + frame.media_time_ms / 1000 - clock.now()
                if wait > 0:
                    await clock.sleep(wait)
            yield frame
