"""``vigil eval rerun``: a run's sessions once more, through the orchestrator as it is now, with the answers
that were recorded.

A tape is gone through from its first moment to its last. What came from outside (frames, queries, permits,
pieces of answers) is let in at its place, one by one, each when the one before has had its effect, as it was
when the tape was made; for what the session did of itself (facts, requests) the next moment waits. Time is
the tape's: a timer goes off when that is what the tape waits for. So everything happens in the order in which
it happened, however fast this machine is, and an unchanged orchestrator does the same again, bit for bit.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from evals.files import BadFile, read_object, write_json
from evals.readers.clip import Clip
from evals.readers.jsonl import parse_clip
from evals.replay.drive import Frame
from evals.replay.folder import SUMMARY, RunFolder, read_summary
from evals.replay.in_process import SessionDrive
from evals.report.summary import RunFacts
from evals.runs.answers import Desk
from evals.runs.clips import CLIP, RECORD, RECORD_FORMAT, TAPE, file_digest, read_record
from evals.runs.core import Watchlist
from evals.runs.differences import Difference, clip_differences
from evals.runs.keeper import ClipFrames, Pictures, RunKeeper, Watched
from evals.runs.manifest import CLIPS, FRAMES, PACK, RUN, RunError, engine_of, read_taped, settings_of
from evals.runs.moments import Pulse, TapeClock
from evals.runs.recorder import recorded
from evals.runs.tape import Tape, What
from evals.runs.tape_reader import Moment, read_tape
from evals.shapes import OPEN, Number, Stamp, fault_of
from orchestrator.app import Core
from orchestrator.files import write_whole
from orchestrator.replay_engines import Engines
from orchestrator.replay_track import Outside, ReplayTrack
from orchestrator.runtime.clock import system_ids

DIFFERENCES = "rerun.json"
FROM_OUTSIDE = frozenset({"frame", "kept", "query", "clear", "close", "grant", "delta", "end"})
"""Moments that are let in; the others are waited for."""
FRAME_S = 30.0
"""How long a frame may be looked at by the service's own threads, in real seconds."""


class Rerun:
    """One clip of a run, once more.

    :param run: folder of the run, ``manifest``: its ``run.json``; ``name``: the clip
    :param out: folder of the rerun
    :raises RunError: the clip was not watched to its end; ``BadFile``, ``DatasetError``, ``TapeError``: not
        all of it can be read
    """

    def __init__(self, run: Path, manifest: Mapping[str, Any], name: str, out: Path) -> None:
        self._run = run
        self._manifest = manifest
        self._name = name
        self._old = run / CLIPS / name
        self._new = out / CLIPS / name
        try:
            self._clip: Clip = parse_clip((self._old / CLIP).read_bytes(), str(self._old / CLIP))
            self._record = read_record(self._old)
            self._summary = read_summary(self._old)
        except OSError as error:
            raise RunError(f"the clip {name} of {run} was not watched to its end: {error}") from error
        if (wrong := fault_of(_SUMMARY, self._summary)) is not None:
            raise BadFile(f"{self._old / SUMMARY}: {wrong}")
        self._moments = read_tape(self._old / TAPE)
        self._clock = TapeClock()
        self._pulse = Pulse()
        self._desk = Desk(self._moments, self._pulse.beat)
        self._facts: Counter[str] = Counter()
        self._pictures = Pictures(run / FRAMES)
        self._tasks: list[asyncio.Task[None]] = []
        self._before: What | None = None

    async def go(self) -> None:
        """Leaves the clip's files as ``vigil eval run`` does."""
        self._new.mkdir(parents=True, exist_ok=True)
        write_whole(self._new / CLIP, (self._old / CLIP).read_bytes())
        tape = _CountedTape(self._new / TAPE, self._clock.now, self._pulse, self._facts)
        frames = _HeldFrames(self._pictures, tape)
        watched = Watched(self._name, tape, frames)
        core = self._core(watched)
        drive = SessionDrive(core, engine_of(self._run, self._manifest), self._name)
        with RunFolder(self._new) as folder:
            sink = _Rows(folder, self._pulse.beat)
            try:
                await drive.open(sink)
                for moment in self._moments:
                    await self._next(moment, drive, sink, tape, frames)
                await self._pulse.rest()
            finally:
                await drive.close()
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await core.aclose()
                tape.close()
            folder.finish(self._told())
        record = {**self._record, "format": RECORD_FORMAT, "tape": file_digest(self._new / TAPE)}
        write_json(self._new / RECORD, record)

    def _core(self, watched: Watched) -> Core:
        manifest, watchlist = self._manifest, Watchlist()
        watchlist.add(watched)
        settings, told = settings_of(manifest["settings"]), manifest["settings"]
        outside = self._desk.outside(
            solver=bool(told["solvers"]),
            summarizer=told["summarizer"]["model"] is not None,
            images=bool(told["summarizer"]["images"]),
        )

        def answered(_session: str, _outside: Outside) -> Outside:
            return recorded(outside, watched.tape)

        keeper = RunKeeper(bytes.fromhex(manifest["key"]), watchlist.named, self._clock.wall_ms)
        track = ReplayTrack(
            settings,
            Engines.of(engine_of(self._run, manifest)),
            self._clock,
            self._ids,
            keeper.salt,
            text_scale=self._text_scale(),
            through=answered,
        )
        return Core(settings, track, keeper, self._clock, self._ids)

    def _ids(self, prefix: str) -> str:
        """The session is named as it was: its responses are named after it."""
        named = str(self._record["session"])
        return named if named.startswith(prefix) else system_ids(prefix)

    def _text_scale(self) -> float:
        """What the engine's tokenizer had taught."""
        for moment in self._moments:
            if moment.what == "fact" and moment.data["kind"] == "memory_opened":
                return float(moment.data["data"].get("text_scale", 1.0))
        return 1.0

    # --- moment by moment -----------------------------------------------------------------------------------

    async def _next(
        self, moment: Moment, drive: SessionDrive, sink: _Rows, tape: Tape, frames: _HeldFrames
    ) -> None:
        data = moment.data
        if moment.what in FROM_OUTSIDE and not self._together(moment):
            await self._pulse.rest()
            self._clock.move(moment.t)
        self._before = moment.what
        match moment.what:
            case "fact":
                kind = str(data["kind"])
                sink.wanted[kind] += 1
                await self._until(moment.t, lambda: self._facts[kind] >= sink.wanted[kind])
            case "ask":
                await self._until(moment.t, lambda: self._desk.claimed(int(data["id"])))
            case "want":
                await self._until(moment.t, lambda: self._desk.wished(int(data["id"])))
            case "grant":
                self._desk.grant(int(data["id"]))
            case "delta" | "end":
                self._desk.say(moment)
            case "query" | "clear":
                tape.query(data.get("text"))
                await (drive.withdraw() if moment.what == "clear" else drive.ask(str(data["text"])))
            case "frame":
                await self._show(moment, drive, sink, tape, frames)
            case "kept":
                frames.let_in(str(data["uuid"]))
            case "close":
                tape.closes()
                self._tasks.append(asyncio.create_task(drive.close()))

    def _together(self, moment: Moment) -> bool:
        """It went in at once with the moment before: queries with the frame that they ride."""
        return moment.what in ("query", "clear", "frame") and self._before in ("query", "clear")

    async def _show(
        self, moment: Moment, drive: SessionDrive, sink: _Rows, tape: Tape, frames: _HeldFrames
    ) -> None:
        sha256 = str(moment.data["sha256"])
        try:
            frame = Frame(int(moment.data["media_time_ms"]), self._pictures.read(sha256))
        except KeyError as gone:
            raise RunError(f"the picture {sha256} of the clip {self._name} is gone") from gone
        tape.frame(frame.media_time_ms, sha256)
        sink.picture = frame.data
        frames.came.clear()
        # Its tick is waited for by the tape, not here. What is waited for is the thread that looks at it: how
        # long that takes must not decide what comes first.
        showing = asyncio.create_task(drive.show(frame, lossless=True))
        looked_at = asyncio.create_task(frames.came.wait())
        await asyncio.wait({looked_at, showing}, timeout=FRAME_S, return_when=asyncio.FIRST_COMPLETED)
        looked_at.cancel()
        self._tasks.append(showing)

    async def _until(self, t: float, holds: Callable[[], bool]) -> None:
        """Let the session work, and timers that were due by ``t`` go off, until something has happened.

        Gives up when nothing more moves: that it did not happen shows when the tapes are compared.
        """
        while not holds():
            await self._pulse.rest()
            if holds() or not self._clock.wake_one(t):
                break
        self._clock.move(t)

    def _told(self) -> RunFacts:
        names = ("outcome", "transport", "started_at", "wall_s", "options", "source", "engine", "frames")
        told = {name: self._summary[name] for name in names}
        return RunFacts(**told, warnings=self._summary["warnings"], error=self._summary["error"])


class _Query(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    at_s: Number
    text: str | None


class _Options(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    queries: list[_Query]
    loop: NotRequired[int]


class _Summary(TypedDict):
    """What a rerun says again of itself."""

    __pydantic_config__ = OPEN  # type: ignore[misc]

    transport: str
    started_at: Stamp
    wall_s: Number
    options: _Options
    source: dict[str, Any]
    engine: dict[str, Any]
    frames: dict[str, Any]
    warnings: list[str]
    error: dict[str, str] | None


_SUMMARY = TypeAdapter[Any](_Summary)


class _CountedTape(Tape):
    """Counts facts by kind."""

    def __init__(self, path: Path, now: Callable[[], float], pulse: Pulse, facts: Counter[str]) -> None:
        super().__init__(path, now, pulse)
        self._facts = facts

    def fact(self, kind: str, data: Mapping[str, Any]) -> None:
        super().fact(kind, data)
        self._facts[kind] += 1


class _HeldFrames(ClipFrames):
    """Frames that the service's threads have looked at wait here for their moment."""

    def __init__(self, pictures: Pictures, tape: Tape) -> None:
        super().__init__(pictures, tape)
        self._places: defaultdict[str, deque[asyncio.Event]] = defaultdict(deque)
        self.came = asyncio.Event()

    async def put(self, uuid: str, data: bytes) -> None:
        place = asyncio.Event()
        self._places[uuid].append(place)
        self.came.set()
        await place.wait()
        self._tape.kept(uuid)

    def let_in(self, uuid: str) -> None:
        """The one that has waited longest, if one does."""
        if self._places[uuid]:
            self._places[uuid].popleft().set()


class _Rows:
    """A ``Sink``: rows go to the folder. ``wanted``: facts of the tape that was, by kind, up to now."""

    def __init__(self, folder: RunFolder, beat: Callable[[], None]) -> None:
        self._folder = folder
        self._beat = beat
        self.picture: bytes | None = None
        self.wanted: Counter[str] = Counter()

    def delta(self, text: str) -> None:
        self._beat()

    def tick(self, record: Mapping[str, Any]) -> None:
        self._folder.add(record, self.picture)
        self._beat()

    def notice(self, code: str, message: str) -> None:
        self._beat()


async def rerun(run: Path, out: Path, tell: Callable[[str, Sequence[Difference]], None]) -> list[Difference]:
    """Every finished clip of a run once more; what differs. ``tell``: of each clip as it is done.

    :raises RunError: there is no run, or a clip is not all there; ``BadFile``, ``BadRow``, ``DatasetError``,
        ``TapeError``: a file can't be read
    """
    if await asyncio.to_thread(lambda: run.resolve() == out.resolve()):
        raise RunError(f"{out} is the run itself: a rerun has a folder of its own")
    manifest = read_taped(run)
    names = finished_clips(run)
    if not names:
        raise RunError(f"no clip of {run} was watched to its end")
    _begin(run, manifest, out)
    found: list[Difference] = []
    for name in names:
        await Rerun(run, manifest, name, out).go()
        differ = clip_differences(run, out, name)
        tell(name, differ)
        found += differ
    write_json(out / DIFFERENCES, [each.to_dict() for each in found])
    return found


def _begin(run: Path, manifest: Mapping[str, Any], out: Path) -> None:
    if (out / RUN).exists() and read_object(out / RUN).get("rerun_of") != manifest["started_at"]:
        raise RunError(f"{out} holds another run; name another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(run / PACK, out / PACK)
    write_json(out / RUN, {**manifest, "rerun_of": manifest["started_at"]})


def finished_clips(run: Path) -> Sequence[str]:
    """The clips of a run that were watched to their end, by name."""
    return sorted(path.parent.name for path in (run / CLIPS).glob(f"*/{RECORD}"))
