"""Files and live streams that the service reads into a session: a camera needs no client of its own."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bridges.frames import FrameBounds
from bridges.media import MediaError, MediaFrame, MediaOptions, MediaPiece, MediaSource, open_media
from bridges.media_types import shown
from orchestrator.api.readings import Reading, Readings
from orchestrator.runtime.actor import Session
from orchestrator.session.backend import Capabilities, Clock, Ids
from orchestrator.session.commands import AppendInput
from orchestrator.session.media import rms
from orchestrator.source_rules import SourceRules
from orchestrator.source_units import TimedUnit, Units
from orchestrator.wire.errors import (
    Conflict,
    EngineUnavailable,
    Forbidden,
    InvalidRequest,
    NotFound,
    ResourceExhausted,
    Unsupported,
    VigilError,
)

_KEPT = 16
"""Ended sources of a session that can still be asked about."""
_OPEN_S = 15.0
_STOP_S = 3.0
"""Wait for a decoder to stop; one that waits for a silent camera ends later by its own deadline."""
_OVER = frozenset({"ended", "failed"})

_log = logging.getLogger(__name__)

Charge = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """Sources that play at a time, of one tenant and in all."""

    per_tenant: int = 8
    total: int = 32


@dataclass(eq=False, slots=True)
class _Reading:
    """One source of one session. Counters: see ``public``.

    :param location: as its client may see it; ``opens``: what is really opened
    """

    id: str
    tenant: str
    location: str
    opens: str
    charge: Charge
    hears: bool
    media: MediaSource | None = None
    task: asyncio.Task[None] | None = None
    state: str = "connecting"
    error: str | None = None
    message: str | None = None
    counts: Counter[str] = field(default_factory=Counter)
    newest_ms: int | None = None
    lag_ms: float = 0.0
    least_behind_ms: float | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """It has brought something, or is over."""

    def end(self, state: str, error: str | None = None, message: str | None = None) -> None:
        """Only the first end counts."""
        self.settled.set()
        if self.state not in _OVER:
            self.state, self.error = state, error
            self.message = message.replace(self.opens, self.location) if message else None

    def seen(self, media_time_ms: int, now_ms: float) -> None:
        """Something recorded at that media time is handed over now."""
        self.settled.set()
        behind = now_ms - media_time_ms
        least = self.least_behind_ms
        self.least_behind_ms = behind if least is None else min(least, behind)
        self.lag_ms = behind - self.least_behind_ms

    def public(self) -> dict[str, Any]:
        """The wire's object of a source; the README tells its fields."""
        told = self.media.statistics() if self.media else {}
        live = self.media is not None and self.media.info.kind == "live"
        state = self.state
        if state == "playing" and live and not told["connected"]:
            state = "reconnecting" if told["decoded"] else "connecting"
        return {
            "id": self.id,
            "object": "session.source",
            "source": self.location,
            "live": live,
            "state": state,
            "frames": self.counts["frames"],
            "dropped": self.counts["dropped"] + told.get("dropped", 0),
            "repeated": told.get("repeated", 0),
            "corrupt": told.get("corrupt", 0),
            "reconnects": told.get("reconnects", 0),
            "attempts": told.get("attempts", 0),
            "media_time_ms": self.newest_ms,
            "lag_ms": round(self.lag_ms),
            "sound": told.get("sound", "off") if self.hears else "not_taken",
            "sound_ms": self.counts["sound_ms"],
            "sound_dropped": self.counts["sound_dropped"] + told.get("sound_dropped", 0),
            "error": self.error,
            "message": self.message,
        }


@dataclass(eq=False, slots=True)
class _Room:
    """The sources of one session, oldest first, and who waits for its end.

    :param heard_ms: end of the newest sound, on the session's media clock
    """

    readings: list[_Reading] = field(default_factory=list)
    watch: asyncio.Task[None] | None = None
    heard_ms: int = 0


class Sources:
    """At most one source of a session plays at a time. It ends with its session.

    :param bounds: of the pictures; ``period_ms``: between them
    :param capabilities: of all sessions: whether they hear, and at which rate
    :param newest_ms: capture time of the newest frame of a session, on its media clock
    :param turn_after: the first moment after another one at which a session's engine has its turn for it
    """

    def __init__(
        self,
        rules: SourceRules,
        limits: SourceLimits,
        bounds: FrameBounds,
        capabilities: Capabilities,
        clock: Clock,
        ids: Ids,
        newest_ms: Callable[[str], int | None],
        turn_after: Callable[[str, float], float | None],
    ) -> None:
        self._rules = rules
        self._limits = limits
        inputs = (*capabilities.required_input_modalities, *capabilities.optional_input_modalities)
        self._hears = "audio" in inputs
        self._sees = "video" in inputs
        needs_sound = "audio" in capabilities.required_input_modalities
        self._silence_hz = capabilities.input_rate_hz if needs_sound else None
        self._options = MediaOptions(
            bounds,
            capabilities.chunk_period_ms,
            sound_rate_hz=capabilities.input_rate_hz if self._hears else None,
        )
        self._clock = clock
        self._ids = ids
        self._newest_ms = newest_ms
        self._turn_after = turn_after
        self._rooms: dict[str, _Room] = {}
        self._emptied: list[_Room] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._past: Counter[str] = Counter()
        self._closed = False

    def allow(self, wanted: str) -> None:
        """Raises ``VigilError`` where ``add`` would not even open it."""
        self._rules.location(wanted)

    async def add(self, session: Session, tenant: str, wanted: str, charge: Charge) -> dict[str, Any]:
        """Begin to show a source to the session. All methods raise ``VigilError``.

        :param charge: told of each unit's bytes; a unit that it refuses is dropped
        """
        location = self._rules.location(wanted)
        self._check(session, tenant)
        room = self._rooms.get(session.id)
        if room is None:
            room = self._rooms[session.id] = _Room()
            room.watch = asyncio.create_task(self._watch(session, room), name=f"sources:{session.id}")
        # From here on it counts, though it is not open yet: two requests at once don't both pass.
        reading = _Reading(self._ids("src"), tenant, shown(wanted), location, charge, self._hears)
        room.readings.append(reading)
        try:
            reading.media = await self._opened(session, reading)
        except BaseException:
            reading.end("failed")
            room.readings.remove(reading)
            raise
        if reading.state in _OVER or not session.is_open:
            reading.end("ended")
            raise Conflict("the session ended, or the source was removed meanwhile", code="source_removed")
        self._trim(room)
        reading.state = "playing"
        reading.task = asyncio.create_task(self._run(session, room, reading), name=f"source:{session.id}")
        return reading.public()

    def of(self, session: Session) -> list[dict[str, Any]]:
        room = self._rooms.get(session.id)
        return [reading.public() for reading in room.readings] if room else []

    def one(self, session: Session, source_id: str) -> dict[str, Any]:
        return self._find(session, source_id).public()

    async def begun(self, session: Session, source_id: str) -> None:
        """Return when the source has brought something, or has been given long enough to. One that failed
        first is removed, and raised."""
        reading = self._find(session, source_id)
        with suppress(TimeoutError):
            await asyncio.wait_for(reading.settled.wait(), _OPEN_S)
        told = reading.public()
        if told["state"] == "failed" and not told["frames"]:
            await self.remove(session, source_id)
            raise InvalidRequest(told["message"] or told["error"], code=told["error"], param="source")

    async def remove(self, session: Session, source_id: str) -> None:
        """Stop a source, and forget it."""
        reading = self._find(session, source_id)
        await self._stop([reading])
        room = self._rooms.get(session.id)
        if room is not None and reading in room.readings:
            room.readings.remove(reading)
            self._remember(reading)

    async def aclose(self) -> None:
        """Stop all; nothing is added any more. Idempotent."""
        self._closed = True
        for room in self._rooms.values():
            if room.watch is not None:
                room.watch.cancel()
        await self._stop(list(self._all()))
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=_STOP_S)

    def readings(self) -> Readings:
        """For the metrics: sources by state, and what all of them have done so far."""
        states: Counter[str] = Counter({"connecting": 0, "playing": 0, "reconnecting": 0})
        totals = Counter(self._past)
        lag_ms = 0
        for reading in self._all():
            told = reading.public()
            totals.update(_totals(told))
            if told["state"] not in _OVER:
                states[told["state"]] += 1
                lag_ms = max(lag_ms, told["lag_ms"])
        frames = {
            "shown": float(totals["frames"]),
            **{name: float(totals[name]) for name in ("dropped", "repeated", "corrupt")},
        }
        return {
            "sources": Reading("cameras and files that are read", states, "state"),
            "sources_lag_seconds": Reading(
                "how much later than at its best the newest picture of a source came, the worst",
                lag_ms / 1000,
            ),
            "source_frames_total": Reading("pictures that sources brought", frames, "outcome"),
            "source_reconnects_total": Reading("streams connected again", float(totals["reconnects"])),
            "source_sound_seconds_total": Reading("sound of sources shown", totals["sound_ms"] / 1000),
            "source_sound_dropped_total": Reading(
                "pieces of a source's sound that no session took", float(totals["sound_dropped"])
            ),
        }

    # --- parts ----------------------------------------------------------------------------------------------

    def _all(self) -> Iterator[_Reading]:
        for room in (*self._rooms.values(), *self._emptied):
            yield from room.readings

    def _find(self, session: Session, source_id: str) -> _Reading:
        room = self._rooms.get(session.id)
        for reading in room.readings if room else ():
            if reading.id == source_id:
                return reading
        raise NotFound(f"this session has no source {source_id}", code="unknown_source")

    def _check(self, session: Session, tenant: str) -> None:
        if self._closed:
            raise EngineUnavailable("the service is shutting down", code="draining")
        live = [reading for reading in self._all() if reading.state not in _OVER]
        room = self._rooms.get(session.id)
        if room is not None and any(reading in live for reading in room.readings):
            raise Unsupported(
                "this session has a source already; a session watches one camera", code="unsupported_cameras"
            )
        own = sum(reading.tenant == tenant for reading in live)
        if own >= self._limits.per_tenant or len(live) >= self._limits.total:
            raise ResourceExhausted(
                f"{own} of your sources play, {len(live)} in all; remove one first",
                code="source_limit_reached",
                retry_after_s=5.0,
            )

    async def _opened(self, session: Session, reading: _Reading) -> MediaSource:
        location = reading.opens
        options = replace(self._options, turn_s=self._turn_after(session.id, self._clock.now()))

        def work() -> MediaSource:
            if "://" in location:
                self._place(location)
            return open_media(location, options, self._place)

        try:
            async with asyncio.timeout(_OPEN_S):
                return await asyncio.to_thread(work)
        except MediaError as error:
            if error.code == "source_not_allowed":
                raise Forbidden(error.message, code=error.code, param="source") from None
            message = error.message.replace(location, reading.location)
            raise InvalidRequest(message, code=error.code, param="source") from None
        except TimeoutError:
            raise InvalidRequest(
                f"{reading.location} did not open within {_OPEN_S:g} s", code="unreachable", param="source"
            ) from None

    def _place(self, url: str) -> str:
        try:
            # Also of where a server redirects to.
            return self._rules.address(self._rules.location(url))
        except VigilError as refused:
            raise MediaError(refused.code, refused.message) from None
        except OSError as unknown:
            raise MediaError("unreachable", f"{shown(url)}: {unknown.strerror or unknown}") from None

    async def _watch(self, session: Session, room: _Room) -> None:
        await session.closed.wait()
        self._rooms.pop(session.id, None)
        self._emptied.append(room)  # what it counted is told until it is remembered
        try:
            await self._stop(room.readings)
        finally:
            self._emptied.remove(room)
            for reading in room.readings:
                self._remember(reading)

    async def _stop(self, readings: list[_Reading]) -> None:
        tasks = {reading.task for reading in readings if reading.task and not reading.task.done()}
        for reading in readings:
            reading.end("ended")
        for task in tasks:
            task.cancel()
        if tasks:
            self._leaving |= tasks
            for task in tasks:
                task.add_done_callback(self._leaving.discard)
            await asyncio.wait(tasks, timeout=_STOP_S)

    def _trim(self, room: _Room) -> None:
        for old in room.readings[:-_KEPT]:
            self._remember(old)
        del room.readings[:-_KEPT]

    def _remember(self, reading: _Reading) -> None:
        self._past.update(_totals(reading.public()))

    # --- one source ---------------------------------------------------------------------------------------

    async def _run(self, session: Session, room: _Room, reading: _Reading) -> None:
        assert reading.media is not None
        try:
            await self._play(session, room, reading, reading.media)
            if reading.media.statistics()["lost"]:
                reading.end("failed", "stream_lost", reading.media.statistics()["warnings"][-1])
            else:
                reading.end("ended")
        except MediaError as error:
            reading.end("failed", error.code, error.message)
        except VigilError as error:
            reading.end("ended", error.code, error.message)
        except asyncio.CancelledError:
            reading.end("ended")
            raise
        except Exception as fault:
            # Its message may hold the source's URL, with what that hides.
            _log.error("a source of session %s failed: %s", session.id, type(fault).__name__)
            reading.end("failed", "internal_error")

    async def _play(self, session: Session, room: _Room, reading: _Reading, media: MediaSource) -> None:
        newest = self._newest_ms(session.id)
        # Its clock goes on behind all that the session has seen, and heard of a source before.
        origin = max(0 if newest is None else newest + self._options.period_ms, room.heard_ms)
        units = Units(origin, self._silence_hz)
        live = media.info.kind == "live"
        began = self._clock.now()
        if not live:
            # Its pictures come at its own pace from here on: they begin at the session's turn, as many files
            # begin together where a service starts.
            began = self._turn_after(session.id, began) or began
        async with aclosing(media.feed()) as pieces:
            async for piece in pieces:
                if not live and (early := began + piece.media_time_ms / 1000 - self._clock.now()) > 0:
                    await self._clock.sleep(early)
                await self._take(session, room, reading, units, piece)
        for unit in units.finish():
            await self._show(session, room, reading, unit)

    async def _take(
        self, session: Session, room: _Room, reading: _Reading, units: Units, piece: MediaPiece
    ) -> None:
        reading.seen(piece.media_time_ms, self._clock.now() * 1000)
        if isinstance(piece, MediaFrame) and not self._sees:
            return
        before = units.dropped
        for unit in units.add(piece):
            await self._show(session, room, reading, unit)
        reading.counts["dropped"] += units.dropped - before

    async def _show(self, session: Session, room: _Room, reading: _Reading, timed: TimedUnit) -> None:
        unit, speech = timed.unit, False
        if unit.pcm:
            room.heard_ms = round(timed.start_ms + timed.duration_ms)
            speech = rms(np.frombuffer(unit.pcm, "<f4")) >= session.config.overlap_silence_rms
            unit = replace(unit, speech=speech, start_ms=float(timed.start_ms))
        try:
            reading.charge(unit.size)
            await session.submit(
                AppendInput(
                    self._ids("op"),
                    unit,
                    is_speech=speech,
                    duration_ms=timed.duration_ms,
                    start_ms=float(timed.start_ms),
                )
            )
        except ResourceExhausted:
            # The session is behind, or a quota used up; what comes next is newer anyway.
            reading.counts["dropped"] += len(unit.frames)
            reading.counts["sound_dropped"] += unit.pcm is not None
            return
        reading.counts["frames"] += len(unit.frames)
        reading.counts["sound_ms"] += round(timed.duration_ms)
        with suppress(ValueError):
            reading.newest_ms = max(frame.media_time_ms for frame in unit.frames)


def _totals(told: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in told.items() if isinstance(value, int) and name != "live"}
