"""One clip of a run: its frames and queries in, and a folder of its own that holds all that came of it."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, NotRequired

from pydantic import AfterValidator, Field, TypeAdapter
from typing_extensions import TypedDict

from evals.files import BadFile, read_object, write_json
from evals.readers.clip import Clip
from evals.readers.jsonl import dump_clip
from evals.replay.drive import Drive, Frame, Sampling, Sink
from evals.replay.folder import SUMMARY
from evals.replay.options import Query
from evals.replay.source import Source
from evals.runs.keeper import ClipFrames, Pictures, Watched
from evals.runs.manifest import CLIPS
from evals.runs.moments import Pulse, Turnstile
from evals.runs.tape import Tape
from evals.shapes import OPEN, Sha256, fault_of
from orchestrator.files import write_whole
from orchestrator.session.backend import Clock

CLIP, TAPE, RECORD = "clip.json", "tape.jsonl", "record.json"
RECORD_FORMAT = 1


def queries_of(clip: Clip) -> list[Query]:
    """What is asked and withdrawn when, in order. At one time the old query goes before the new one comes."""
    asked = sorted(clip.queries, key=lambda query: query.at_s)
    told: list[tuple[float, int, Query]] = []
    for query, later in zip(asked, [*asked[1:], None], strict=True):
        told.append((query.at_s, 1, Query(query.at_s, query.text)))
        if query.until_s is not None and (later is None or query.until_s <= later.at_s):
            told.append((query.until_s, 0, Query(query.until_s, None)))
    return [query for _, _, query in sorted(told, key=lambda entry: entry[:2])]


class TapedDrive:
    """A drive whose inputs are written down before they go in."""

    def __init__(self, drive: Drive, tape: Tape, pictures: Pictures) -> None:
        self._drive = drive
        self._tape = tape
        self._pictures = pictures
        self._entered = False
        self.transport = drive.transport

    async def prepare(self) -> Sampling:
        return await self._drive.prepare()

    def engine_facts(self) -> Mapping[str, Any]:
        return self._drive.engine_facts()

    async def open(self, sink: Sink) -> None:
        await self._drive.open(sink)

    async def ask(self, text: str) -> None:
        await self._enter()
        self._tape.query(text)
        await self._drive.ask(text)

    async def withdraw(self) -> None:
        await self._enter()
        self._tape.query(None)
        await self._drive.withdraw()

    async def show(self, frame: Frame, *, lossless: bool) -> None:
        await self._enter()
        self._entered = False
        self._tape.frame(frame.media_time_ms, hashlib.sha256(frame.data).hexdigest())
        await self._drive.show(frame, lossless=lossless)

    async def settle(self) -> None:
        await self._drive.settle()

    async def _enter(self) -> None:
        """Queries go in with the frame that they ride: between them nothing waits."""
        if not self._entered:
            await self._tape.enter()
            self._entered = True

    async def close(self) -> None:
        await self._tape.enter()
        self._tape.closes()
        await self._drive.close()


class KeptSource:
    """A source whose frames are kept as they come."""

    def __init__(self, source: Source, pictures: Pictures) -> None:
        self._source = source
        self._pictures = pictures
        self.live = source.live

    def info(self) -> Mapping[str, Any]:
        return self._source.info()

    def warnings(self) -> Sequence[str]:
        return self._source.warnings()

    def dropped(self) -> int:
        return self._source.dropped()

    def expected(self, sampling: Sampling) -> int | None:
        return self._source.expected(sampling)

    async def frames(self, sampling: Sampling) -> AsyncGenerator[Frame, None]:
        async with aclosing(self._source.frames(sampling)) as frames:
            async for frame in frames:
                await asyncio.to_thread(self._pictures.keep, frame.data)
                yield frame


class ClipFolder:
    """``DIR/clips/ID``. ``clip.json`` is there from the start, ``record.json`` at its end."""

    def __init__(self, run: Path, clip: Clip) -> None:
        self.path = run / CLIPS / clip.id
        self._clip = clip

    def finished(self, inputs: Mapping[str, Any]) -> bool:
        """It was watched to its end as it stands in the data set now. ``inputs``: digests of its files."""
        try:
            record = read_object(self.path / RECORD)
            summary = read_object(self.path / SUMMARY)
            line = (self.path / CLIP).read_bytes()
        except (OSError, BadFile):
            return False
        same = line == dump_clip(self._clip) + b"\n" and inputs.items() <= record.items()
        return bool(same and record.get("format") == RECORD_FORMAT and summary.get("outcome") == "complete")

    def begin(self) -> None:
        """Empty. What an earlier try left is removed."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        write_whole(self.path / CLIP, dump_clip(self._clip) + b"\n")

    def begin_tape(self, pictures: Pictures, clock: Clock) -> Watched:
        """Empty, with a new tape."""
        self.begin()
        pulse = Pulse()
        tape = Tape(self.path / TAPE, clock.now, pulse, Turnstile(pulse))
        return Watched(self._clip.id, tape, ClipFrames(pictures, tape))

    def end(self, record: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
        """It is finished. ``record``: what came of it; ``inputs``: see ``finished``."""
        write_json(self.path / RECORD, {"format": RECORD_FORMAT, **record, **inputs})


class _Record(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    format: int
    session: str


class _Taped(_Record):
    pictures: dict[str, Sha256]


def _moment(shown: list[Any]) -> list[Any]:
    if [type(each) for each in shown] != [int, str]:
        raise ValueError("is no time and digest")
    return shown


class _Asked(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    query: str
    start_s: Annotated[float, Field(ge=0, le=1e9)]
    end_s: Annotated[float, Field(gt=0, le=1e9)]


def _after(asked: _Asked) -> _Asked:
    if asked["end_s"] <= asked["start_s"]:
        raise ValueError("ends before it begins")
    return asked


class _Shown(_Record):
    shown: list[Annotated[list[Any], AfterValidator(_moment)]]
    asked: NotRequired[list[Annotated[_Asked, AfterValidator(_after)]]]


_TAPED, _SHOWN = TypeAdapter[Any](_Taped), TypeAdapter[Any](_Shown)


def read_record(folder: Path) -> dict[str, Any]:
    """``record.json`` of a clip that was watched to its end.

    :raises BadFile: it is none; ``OSError``: it is not there
    """
    record = read_object(folder / RECORD)
    if (wrong := fault_of(_TAPED if (folder / TAPE).exists() else _SHOWN, record)) is not None:
        raise BadFile(f"{folder / RECORD}: {wrong}")
    return record


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex digits. Blocks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
