"""``vigil eval run``: every clip of a data set through the session core, so many at a time."""

from __future__ import annotations

import asyncio
import errno
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import orjson

from evals.files import write_json
from evals.readers.clip import Clip
from evals.replay.console import View
from evals.replay.options import ReplayError
from evals.runs.clips import ClipFolder, file_digest
from evals.runs.lock import alone_in, cannot_write
from evals.runs.manifest import RUN, RunError, dataset_digest, differences, read_manifest

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})


@dataclass(frozen=True, slots=True)
class Suite:
    """A data set that is there to be watched.

    :param format: of the files it was read from
    :param videos: files by clip id
    :param sounds: files by the names that clips give
    """

    name: str
    format: str
    clips: Sequence[Clip]
    videos: Mapping[str, Path] = field(default_factory=dict)
    sounds: Mapping[str, Path] = field(default_factory=dict)


class Progress(Protocol):
    """Who shows a run to people. ``view`` is of one clip."""

    def begins(self, clips: int, finished: int) -> None:
        """Of so many clips so many are finished already."""

    def view(self, clip: Clip, ticks: int | None) -> View:
        """A clip begins, of about so many ticks."""

    def ends(self, clip: Clip, summary: Mapping[str, Any]) -> None:
        """A clip is over; ``summary`` as in its ``summary.json``."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How one clip ended, its files apart from the last one being written.

    :param record: what ``record.json`` has of it, where it was watched to its end; ``None``: it was not
    :param error: why it failed; ``None``: it did not, or was stopped
    :param engine_lost: nobody is there for the other clips either
    """

    summary: Mapping[str, Any]
    record: Mapping[str, Any] | None = None
    error: str | None = None
    engine_lost: bool = False


class Stand(Protocol):
    """What is open while clips are watched."""

    async def watch(self, clip: Clip, files: ClipFolder, progress: Progress, stop: asyncio.Event) -> Ended:
        """One clip. ``stop``: set from outside to end it early.

        :raises ReplayError: there is nothing to play; nothing was written
        """


class Watcher(Protocol):
    """Whom clips are shown to. ``seats``: clips that can be watched at a time, and whose limit that is."""

    @property
    def seats(self) -> tuple[int, str]: ...

    def facts(self, suite: Suite) -> dict[str, Any]:
        """What ``run.json`` says of it and of how it is shown that, JSON-ready."""

    def keep(self, folder: Path) -> None:
        """Write beside ``run.json`` what its sessions can be done again with. Blocks."""

    def inputs(self, clip: Clip, suite: Suite) -> Sequence[Path]:
        """The files that a clip is played from, besides its video."""

    def opened(self, folder: Path, suite: Suite, key: str) -> AbstractAsyncContextManager[Stand]:
        """:param key: from which those of frames and caches are made, as hex digits"""


@dataclass(slots=True)
class Outcome:
    """How a run went. ``failed``: clip ids with the reason; ``stopped``: from outside, or for want of the
    engine, or of room on the disk (``full``)."""

    finished: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    stopped: bool = False
    engine_lost: bool = False
    full: bool = False

    @property
    def word(self) -> str:
        return "interrupted" if self.stopped else "failed" if self.failed else "complete"


class Runner:
    """One run in one folder. A folder that holds the same run already is gone on with.

    :param streams: clips that are watched at a time
    :raises RunError: the folder holds another run, or can't be written
    """

    def __init__(self, folder: Path, suite: Suite, watcher: Watcher, *, streams: int) -> None:
        most, limit = watcher.seats
        if streams > most:
            raise RunError(f"{streams} streams are more than {limit}, {most}")
        self.folder = folder
        self._suite = suite
        self._watcher = watcher
        self._streams = streams
        self._alone = ExitStack()
        self._alone.enter_context(alone_in(folder))
        try:
            self._manifest = self._begun()
        except BaseException:
            self._alone.close()
            raise

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
        made = self._watcher.facts(suite) | {
            "dataset": dataset,
            "streams": self._streams,
            "key": secrets.token_hex(32),
        }
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
            self._watcher.keep(self.folder)
        except OSError as error:
            raise cannot_write(self.folder, error) from error
        self._tell(made)
        return made

    def _tell(self, manifest: Mapping[str, Any]) -> None:
        try:
            write_json(self.folder / RUN, manifest)
        except OSError as error:
            raise cannot_write(self.folder, error) from error

    async def run(self, progress: Progress, stop: asyncio.Event) -> Outcome:
        """Watch every clip that is not finished. ``stop`` ends it early; what was finished stays.

        :raises RunError: nothing can be written any more
        """
        with self._alone:
            return await self._run(progress, stop)

    async def _run(self, progress: Progress, stop: asyncio.Event) -> Outcome:
        outcome, began = Outcome(), time.monotonic()
        self._tell({**self._manifest, "outcome": "running"})
        waiting = [clip for clip in self._suite.clips if not await asyncio.to_thread(self._finished, clip)]
        outcome.skipped = len(self._suite.clips) - len(waiting)
        progress.begins(len(self._suite.clips), outcome.skipped)
        waiting.reverse()
        word = "failed"
        try:
            async with (
                self._watcher.opened(self.folder, self._suite, self._manifest["key"]) as stand,
                asyncio.TaskGroup() as streams,
            ):
                for _ in range(self._streams):
                    streams.create_task(self._stream(stand, waiting, progress, stop, outcome))
            outcome.stopped = stop.is_set()
            word = outcome.word
        finally:
            wall_s = round(self._manifest["wall_s"] + time.monotonic() - began, 3)
            self._tell({**self._manifest, "outcome": word, "wall_s": wall_s})
        return outcome

    async def _stream(
        self, stand: Stand, waiting: list[Clip], progress: Progress, stop: asyncio.Event, outcome: Outcome
    ) -> None:
        while waiting and not stop.is_set():
            clip = waiting.pop()
            files = ClipFolder(self.folder, clip)
            try:
                inputs = await asyncio.to_thread(self._inputs, clip)
                ended = await stand.watch(clip, files, progress, stop)
                if ended.record is not None:
                    files.end(ended.record, inputs)
                    outcome.finished += 1
            except (ReplayError, OSError) as error:
                outcome.failed[clip.id] = str(error)
                if isinstance(error, OSError) and error.errno in _FULL:
                    outcome.full = True
                    stop.set()  # there is no room for the others either
                continue
            if ended.error is not None:
                outcome.failed[clip.id] = ended.error
            if ended.engine_lost:
                outcome.engine_lost = True
                stop.set()
            progress.ends(clip, ended.summary)

    def _inputs(self, clip: Clip) -> dict[str, Any]:
        """Digests of what it is played from."""
        video = self._suite.videos.get(clip.id)
        more = self._watcher.inputs(clip, self._suite)
        sounds = {"sounds": [file_digest(path) for path in more]} if more else {}
        return {"video": file_digest(video) if video is not None else None, **sounds}

    def _finished(self, clip: Clip) -> bool:
        try:
            return ClipFolder(self.folder, clip).finished(self._inputs(clip))
        except OSError:  # a file of it is gone: whoever plays it says so
            return False
