"""The open turn: what waits for the next tick, what rides the one in flight, and what is thinned.

A tick takes a frozen copy (``Flight``). What arrives meanwhile belongs to the next turn. A failed tick
gives its frames back; its notes were never taken away, since notes are derived from state.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from dataclasses import dataclass

from memory.facts import FrameSeen
from memory.plan import FrameRef, Part
from memory.recent import RecentIds

RECENT_IDS = 256  # frame ids remembered to tell a repeat; older repeats are late by their time
MAX_INTERRUPTIONS = 4
MAX_DELIVERIES = 32


@dataclass(frozen=True, slots=True)
class Waiting:
    """A frame not yet shown, with what it costs."""

    ref: FrameRef
    tokens: int
    lossless: bool


@dataclass(frozen=True, slots=True)
class Note:
    """A line of a user turn before its time tag. ``query_id`` for the note that asks a query."""

    text: str
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delegated answer on its way to the model, clipped."""

    question: str
    text: str
    ok: bool
    media_time_ms: int


@dataclass(frozen=True, slots=True)
class Flight:
    """A tick in flight: exactly what it shows, and how much of each queue that is.

    :param lasting: the parts that stay once it is answered: all but instructions for its reply alone
    """

    tick: int
    media_time_ms: int
    frames: tuple[Waiting, ...]
    notes: tuple[Note, ...]
    parts: tuple[Part, ...]
    lasting: tuple[Part, ...]
    standing: tuple[str, ...]
    interruptions: int
    delivered: tuple[Delivery, ...]


class OpenTurn:
    """Frames and tail facts that no answered turn shows yet."""

    def __init__(self) -> None:
        self.frames: list[Waiting] = []
        self.interruptions: list[tuple[str, str]] = []
        self.deliveries: list[Delivery] = []
        self.flight: Flight | None = None
        self.late: list[FrameRef] = []
        self.dropped: Counter[str] = Counter()
        self._tail_ms: int | None = None
        self._ids = RecentIds(RECENT_IDS)
        self._doomed: set[str] = set()

    @property
    def tail_ms(self) -> int | None:
        """Media time of the newest frame that is shown or in flight; older ones come too late."""
        riding = [w.ref.media_time_ms for w in self.flight.frames] if self.flight else []
        known = riding if self._tail_ms is None else [*riding, self._tail_ms]
        return max(known, default=None)

    def see(self, fact: FrameSeen, tokens: int) -> bool:
        """Take a new frame in capture order; False for a repeat (ignored) or a late one (to be dropped)."""
        if fact.frame_id in self._ids:
            self.dropped["duplicate"] += 1
            return False
        self._ids.add(fact.frame_id)
        ref = FrameRef(fact.frame_id, fact.uuid, fact.media_time_ms, fact.width, fact.height)
        tail = self.tail_ms
        if tail is not None and fact.media_time_ms < tail:
            self.late.append(ref)
            return False
        insort(self.frames, Waiting(ref, tokens, fact.lossless), key=lambda w: w.ref.media_time_ms)
        return True

    def drop(self, frame_id: str, reason: str) -> None:
        """A logged drop. A repeat has the id of a frame that stays."""
        self.dropped[reason] += 1
        if reason == "duplicate":
            return
        self.late = [ref for ref in self.late if ref.frame_id != frame_id]
        self.forget(frame_id)

    def forget(self, frame_id: str) -> None:
        """A deleted frame is not shown, unless it is riding already."""
        self.frames = [w for w in self.frames if w.ref.frame_id != frame_id]
        if self.rides(frame_id):
            self._doomed.add(frame_id)

    def rides(self, frame_id: str) -> bool:
        return self.flight is not None and any(w.ref.frame_id == frame_id for w in self.flight.frames)

    def interrupt(self, response_id: str, heard: str) -> None:
        """A spoken text was cut short: the next turn says what was heard of it."""
        riding = self.flight.interruptions if self.flight else 0
        waiting = [entry for entry in self.interruptions[riding:] if entry[0] != response_id]
        waiting.append((response_id, heard))
        self.interruptions[riding:] = waiting[-MAX_INTERRUPTIONS:]

    def deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        riding = len(self.flight.delivered) if self.flight else 0
        if len(self.deliveries) > riding + MAX_DELIVERIES:
            del self.deliveries[riding]
            self.dropped["delivery"] += 1

    def surplus(self, keep: int) -> list[FrameRef]:
        """Frames to thin so that ``keep`` may ride: from the middle, where neighbours are closest."""
        frames = [w.ref for w in self.frames if not w.lossless]
        gone: list[FrameRef] = []
        while len(frames) > max(1, keep):
            if len(frames) == 2:
                gone.append(frames.pop(0))
                continue
            gaps = [
                (frames[i + 1].media_time_ms - frames[i - 1].media_time_ms, i)
                for i in range(1, len(frames) - 1)
            ]
            gone.append(frames.pop(min(gaps)[1]))
        return gone

    def next_frames(self, most: int) -> tuple[Waiting, ...]:
        """What would ride now, oldest first: frames of an unanswered tick before newer ones."""
        back = self.flight.frames if self.flight else ()
        waiting = sorted((*back, *self.frames), key=lambda w: w.ref.media_time_ms)
        return tuple(waiting[:most])

    def begin(self, flight: Flight) -> None:
        riding = {w.ref.frame_id for w in flight.frames}
        self.frames = [w for w in self.frames if w.ref.frame_id not in riding]
        self.flight = flight

    def fail(self) -> None:
        """The tick in flight came to nothing: its frames wait again, before the newer ones."""
        if self.flight is not None:
            back = [w for w in self.flight.frames if w.ref.frame_id not in self._doomed]
            self.frames = sorted((*back, *self.frames), key=lambda w: w.ref.media_time_ms)
            self.flight = None
            self._doomed.clear()

    def commit(self) -> Flight:
        """The tick in flight was answered: what it showed is no longer open."""
        flight = self.flight
        assert flight is not None
        del self.interruptions[: flight.interruptions]
        del self.deliveries[: len(flight.delivered)]
        self._tail_ms = self.tail_ms
        self.flight = None
        self._doomed.clear()
        return flight
