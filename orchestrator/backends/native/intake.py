"""Input on its way to the engine: prepare, submit, commit. One writer, in order, on the stream's own clock.

An append is *prepared* when its bytes have a place, *submitted* unit by unit, and *committed* when the link
has written them. What fails while its append waits is rolled back to the byte; what fails later is a gap.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from bridges.duplex_client.link import EngineLink, EngineUnit, LinkCode, LinkError
from orchestrator.backends.native.faults import GONE, told_of
from orchestrator.backends.native.units import Held, Origin, Splitter, StreamClock, Unit
from orchestrator.backends.waiting import in_time, set_within
from orchestrator.session.backend import Clock
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import ResourceExhausted, ServerFault, VigilError

REMEMBERED = 256
"""Appends that failed half way and may come again."""


@dataclass(slots=True)
class Ticket:
    """An append that waits to learn what became of it."""

    operation_id: str
    before: Held
    units: tuple[Unit, ...]
    written: int = 0
    error: VigilError | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True, eq=False)
class Queued:
    """``guard``: asked right before the write; a unit that it turns down is dropped."""

    unit: Unit
    guard: Callable[[], bool] | None = None


class Intake:
    """:param encode: a unit as the engine takes it
    :param paced: units are released on the stream's clock; otherwise as fast as they are taken
    :param on_sent: told of every written unit, its event id, and the link that wrote it
    :param on_refused: told of a unit that was lost after its append had been taken
    """

    def __init__(
        self,
        splitter: Splitter,
        clock: Clock,
        *,
        unit_s: float,
        lead: int,
        paced: bool,
        encode: Callable[[Unit], EngineUnit],
        on_sent: Callable[[Unit, str, EngineLink], Awaitable[None]],
        on_refused: Callable[[Unit, VigilError], Awaitable[None]],
        patience_s: float,
        max_bytes: int,
    ) -> None:
        self._splitter = splitter
        self._clock = clock
        self._unit_s = unit_s
        self._pace = StreamClock(unit_s, lead) if paced else None
        self._encode = encode
        self._on_sent = on_sent
        self._on_refused = on_refused
        self._patience_s = patience_s
        self._max_bytes = max_bytes
        self._queue: deque[Queued] = deque()
        self._bytes = 0
        self._most_bytes = 0
        self._link: EngineLink | None = None
        self._former: EngineLink | None = None
        self._writing: Queued | None = None
        self._writing_since = 0.0
        self._changed = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._ticket: Ticket | None = None
        self._half: dict[str, tuple[int, int]] = {}  # bytes and frame groups that were written
        self._failed = False
        self.last_audio_at: float | None = None
        """When audio came last from the client, in monotonic seconds."""
        self.allows: Callable[[Unit], bool] = lambda _: True
        """Asked before every write; what it turns down waits for another engine session."""

    # --- calls ----------------------------------------------------------------------------------------

    def switch(self, link: EngineLink | None) -> None:
        """Write to this link from the next unit on; ``None``: wait for one."""
        self._link = link
        self._wake()

    def leave(self) -> None:
        """This link is left on purpose: the next one gets the unit that is being written, however its write
        here ends, for nothing that is said to it here is told any more."""
        self._former, self._link = self._link, None
        self._wake()

    async def append(self, given: InputUnit, operation_id: str) -> None:
        """Take a unit, or raise and keep nothing of it that was not written."""
        size = given.size
        if self.pending_bytes + size > self._max_bytes:
            raise ResourceExhausted(
                f"{self.pending_bytes} bytes of input wait for the engine; send this append again later",
                code="input_backpressure",
            )
        if not self._splitter.waits(len(given.parts or (given,))):
            raise ResourceExhausted("too many frames wait for audio to ride", code="input_backpressure")
        self._rest()
        before = self._splitter.held
        units = self._splitter.append(self._left(given, operation_id), operation_id, flowing=self._flowing)
        if given.pcm:
            self.last_audio_at = self._clock.now()
        if not units:
            return
        ticket = self._ticket = Ticket(operation_id, before, units)
        self._enqueue(units)
        await self._learn(ticket)
        if ticket.error is not None:
            raise ticket.error

    async def _learn(self, ticket: Ticket) -> None:
        """Wait until the ticket is settled; a write that is stuck was waited for once already."""
        patience_s = self._patience_s
        if self._writing is not None:
            patience_s -= self._clock.now() - self._writing_since
        if patience_s <= 0:
            self._ticket = None
            return
        try:
            await in_time(ticket.settled.wait(), self._clock.sleep(patience_s))
        finally:
            self._ticket = None

    def close_turn(self) -> tuple[Unit, ...]:
        """Fill the residual up and queue it; nothing at an exact boundary."""
        if self.failed():
            raise ServerFault("the append before this commit failed; append again", code="commit_aborted")
        self._rest()
        units = self._splitter.tail()
        self._enqueue(units)
        return units

    def silence(self, guard: Callable[[], bool]) -> None:
        """Queue one unit of silence, for as long as ``guard`` holds; what is left of speech goes first."""
        if self._splitter.held.samples:
            self._enqueue(self._splitter.tail())
        else:
            self._enqueue((self._splitter.silence(),), guard)

    def clear(self) -> tuple[str, ...]:
        """Drop what was not written; the appends it came in. A unit that is being written stays."""
        keep = 1 if self._writing is not None and self._queue and self._queue[0] is self._writing else 0
        dropped: list[str] = []
        while len(self._queue) > keep:
            dropped += self._take_back(self._queue[-1]).unit.operations
        dropped += self._splitter.drop()
        self._settle()
        self._wake()
        return tuple(dropped)

    async def drained(self) -> None:
        """Return when all that was queued is written."""
        await self._drained.wait()

    def failed(self) -> bool:
        """A unit was lost since this was asked last."""
        failed, self._failed = self._failed, False
        return failed

    def note_failure(self) -> None:
        """A unit that was written was refused after all: the commit behind it does not go through."""
        self._failed = True

    # --- what can be seen -----------------------------------------------------------------------------

    @property
    def pending_bytes(self) -> int:
        return self._bytes + self._splitter.held.size

    @property
    def waits(self) -> bool:
        """The client's own input waits: whole units, or one that is being filled."""
        return bool(self._queue) or bool(self._splitter.held.samples and self._flowing)

    def statistics(self) -> dict[str, int]:
        return {
            "queued": len(self._queue),
            "bytes": self.pending_bytes,
            "most_bytes": self._most_bytes,
            "max_bytes": self._max_bytes,
        }

    # --- the writer -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write what is queued, until cancelled."""
        while True:
            while not self._queue or self._link is None or not self.allows(self._queue[0].unit):
                self._settle()
                await self._news()
            queued = self._queue[0]
            if not await self._due(queued):
                continue
            if queued.guard is not None and not queued.guard():
                self._take_back(queued)
                if not self._queue:
                    self._splitter.give_back(queued.unit)
                continue
            await self._write(queued, self._link)

    async def _write(self, queued: Queued, link: EngineLink) -> None:
        self._writing, self._writing_since = queued, self._clock.now()
        try:
            event_id = await link.append(self._encode(queued.unit))
        except LinkError as error:
            if link is self._former:
                pass
            elif error.code in GONE:
                # Not written: it goes first to whatever link comes next.
                if self._link is link:
                    self._link = None
            elif error.code == LinkCode.BACKPRESSURE:
                await self._clock.sleep(self._unit_s / 4)
            else:
                await self._refuse(queued, told_of(error))
            return
        finally:
            self._writing = None
        if link is self._former:
            return
        self._take_back(queued)
        ticket = self._ticket
        if ticket is not None and any(unit is queued.unit for unit in ticket.units):
            ticket.written += 1
            if ticket.written == len(ticket.units):
                ticket.settled.set()
        if queued.unit.pcm is not None and self._pace is not None:
            self._pace.went(self._clock.now())
        await self._on_sent(queued.unit, event_id, link)

    async def _due(self, queued: Queued) -> bool:
        """Wait for the stream's clock; False when something changed meanwhile."""
        due = self._pace.due() if self._pace is not None and queued.unit.pcm is not None else None
        if due is None or due <= self._clock.now():
            return True
        self._settle()
        self._changed.clear()
        await set_within(self._changed, self._clock.sleep(due - self._clock.now()))
        return False

    async def _refuse(self, queued: Queued, error: VigilError) -> None:
        """The engine has it not and will not have it."""
        ticket = self._ticket
        if ticket is not None and any(unit is queued.unit for unit in ticket.units):
            self._roll_back(ticket, error)
            return
        self._take_back(queued)
        self._failed = True
        await self._on_refused(queued.unit, error)

    def _roll_back(self, ticket: Ticket, error: VigilError) -> None:
        """Put back what the append found, less what of it was written meanwhile."""
        for queued in [each for each in self._queue if any(each.unit is unit for unit in ticket.units)]:
            self._take_back(queued)
        done = ticket.units[: ticket.written]
        if done:
            audio = sum(len(unit.pcm or b"") for unit in done) - len(ticket.before.samples)
            shown = sum(bool(unit.frames) for unit in done)
            own = max(0, shown - len(ticket.before.groups))
            self._half[ticket.operation_id] = (max(0, audio), own)
            while len(self._half) > REMEMBERED:
                self._half.pop(next(iter(self._half)))
            groups = ticket.before.groups[shown:]
            number = ticket.before.number + sum(unit.pcm is not None for unit in done)
            self._splitter.held = Held(groups=groups, number=number)
        else:
            self._splitter.held = ticket.before
        ticket.error = error
        ticket.settled.set()

    def _left(self, given: InputUnit, operation_id: str) -> InputUnit:
        """What of an append that comes again was not written the first time."""
        skip, shown = self._half.pop(operation_id, (0, 0))
        if not skip and not shown:
            return given
        parts: list[InputUnit] = []
        for part in given.parts or (given,):
            pcm, frames = part.pcm or b"", part.frames
            if frames and shown:
                frames, shown = (), shown - 1
            cut = min(skip, len(pcm))
            skip -= cut
            if pcm[cut:] or frames:
                parts.append(replace(part, pcm=pcm[cut:] or None, frames=frames))
        return InputUnit(pcm=b"".join(part.pcm or b"" for part in parts) or None, parts=tuple(parts))

    # --- small parts ----------------------------------------------------------------------------------

    @property
    def _flowing(self) -> bool:
        at = self.last_audio_at
        return at is not None and self._clock.now() - at < 2 * self._unit_s

    def _rest(self) -> None:
        if self._pace is not None and not self._queue and self._link is not None:
            self._pace.rested(self._clock.now())

    def _enqueue(self, units: tuple[Unit, ...], guard: Callable[[], bool] | None = None) -> None:
        for unit in units:
            self._queue.append(Queued(unit, guard))
            self._bytes += unit.size
        self._most_bytes = max(self._most_bytes, self.pending_bytes)
        if units:
            self._drained.clear()
            self._wake()

    def _take_back(self, queued: Queued) -> Queued:
        self._queue.remove(queued)
        self._bytes -= queued.unit.size
        if not self._queue:
            self._drained.set()
        return queued

    def _settle(self) -> None:
        """Nothing is being written: an append that waits was taken."""
        if self._ticket is not None:
            self._ticket.settled.set()

    def _wake(self) -> None:
        self._changed.set()

    async def _news(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def real(self) -> bool:
        """Units of the client wait to be written."""
        return any(each.unit.origin is not Origin.SILENCE for each in self._queue)
