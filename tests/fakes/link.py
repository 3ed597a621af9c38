"""A scripted ``EngineLink`` in this process, and the seats that go with it: no socket, an injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridges.duplex_client.link import (
    AudioChunk,
    EngineEvent,
    EngineUnit,
    InputCommitted,
    LinkCode,
    LinkEnded,
    LinkError,
    LinkLost,
    LinkOptions,
    LinkResumed,
    Listening,
    OpenedSession,
    ResponseCreated,
    ResponseDone,
    Speaking,
    SpokenText,
)
from orchestrator.session.backend import Clock
from orchestrator.wire.errors import ResourceExhausted

Script = Callable[["ScriptedLink", EngineUnit], Iterable[EngineEvent]]
"""What the engine says to each unit."""
RATE = 24000
TONE = 4000


def listen(reason: str | None = "model_listen", response_id: str | None = None) -> Listening:
    return Listening(response_id, reason, reason == "model_listen")


def tone(ms: int, rate: int = RATE) -> bytes:
    """PCM16 that is not silent."""
    return TONE.to_bytes(2, "little", signed=True) * (rate * ms // 1000)


def spoken(
    response_id: str, *chunks: tuple[str, int], done: bool = True, status: str = "completed"
) -> list[EngineEvent]:
    """A whole spoken response: (words, ms) of each chunk, as an engine says it."""
    events: list[EngineEvent] = [ResponseCreated(response_id), Speaking(response_id)]
    total, characters, marks = 0, 0, []
    for words, ms in chunks:
        total, characters = total + ms, characters + len(words)
        marks.append((characters, total))
        events += [
            AudioChunk(response_id, tone(ms), RATE, tuple(marks)),
            SpokenText(response_id, words),
        ]
    if done:
        events.append(ResponseDone(response_id, status))
    return events


class ScriptedLink:
    """Records what it is told. ``hold(name)`` blocks commands of that name until ``free``."""

    def __init__(self, options: LinkOptions, clock: Clock, capabilities: Mapping[str, Any]) -> None:
        self.options = options
        self.capabilities = capabilities
        self.session: dict[str, Any] = {}
        self.script: Script = lambda link, unit: ()
        self.body: Mapping[str, Any] = {}
        self.units: list[EngineUnit] = []
        self.unit_times: list[float] = []
        self.commands: list[tuple[str, Any]] = []
        self.refuse_open: LinkError | None = None
        self.closes = True
        self.closed = False
        self.ended = False
        self.cancels_at_once = True
        self._clock = clock
        self._failures: dict[str, list[LinkError]] = {}
        self._gates: dict[str, asyncio.Event] = {}
        self._up = asyncio.Event()
        self._up.set()
        self._events: asyncio.Queue[EngineEvent] = asyncio.Queue(maxsize=4096)
        self._open: list[str] = []

    # --- what a test does -----------------------------------------------------------------------------

    def emit(self, *events: EngineEvent) -> None:
        for event in events:
            if isinstance(event, ResponseCreated):
                self._open.append(event.response_id)
            elif isinstance(event, ResponseDone) and event.response_id in self._open:
                self._open.remove(event.response_id)
            self._events.put_nowait(event)

    def hold(self, name: str) -> None:
        self._gates[name] = asyncio.Event()

    def free(self, name: str) -> None:
        self._gates.pop(name).set()

    def fail(self, name: str, code: str, times: int = 1) -> None:
        self._failures.setdefault(name, []).extend(LinkError(code, "scripted") for _ in range(times))

    def drop(self) -> None:
        """The socket is gone."""
        self._up.clear()
        self.emit(LinkLost("scripted"))

    def resume(self, *unconfirmed: str) -> None:
        self.emit(LinkResumed(unconfirmed))
        self._up.set()

    def end(self, reason: str = LinkCode.LINK_LOST, *, confirmed: bool = False) -> None:
        """The session is over, and the link says so."""
        if not self.ended:
            self.ended = True
            self._up.set()
            self.emit(LinkEnded(reason, confirmed))

    def named(self, name: str) -> list[Any]:
        return [what for each, what in self.commands if each == name]

    # --- EngineLink -----------------------------------------------------------------------------------

    async def open(self, session: Mapping[str, Any]) -> OpenedSession:
        self.body = session
        await self._called("open", session)
        if self.refuse_open is not None:
            raise self.refuse_open
        return OpenedSession("engine-1", {**self.session, "capabilities": self.capabilities}, True)

    async def append(self, unit: EngineUnit) -> str:
        await self._called("append", unit)
        self.units.append(unit)
        self.unit_times.append(self._clock.now())
        self.emit(*self.script(self, unit))
        return f"evt_{len(self.units)}"

    async def commit(self, *, create_response: bool) -> None:
        await self._called("commit", create_response)
        self.emit(InputCommitted("item"))

    async def create_response(self, options: Mapping[str, Any]) -> None:
        await self._called("create_response", options)

    async def clear(self) -> None:
        await self._called("clear", None)

    async def add_item(self, item: Mapping[str, Any]) -> None:
        await self._called("add_item", item)

    async def update(self, session: Mapping[str, Any]) -> Mapping[str, Any]:
        await self._called("update", session)
        return session

    async def cancel(self, response_id: str | None) -> None:
        await self._called("cancel", response_id)
        ending = [each for each in self._open if response_id in (None, each)]
        if self.cancels_at_once:
            self.emit(*(ResponseDone(each, "cancelled", "client_cancelled") for each in ending))

    async def playback(self, response_id: str, played_ms: int, committed_ms: int) -> None:
        await self._called("playback", (response_id, played_ms, committed_ms))

    async def close(self, reason: str) -> bool:
        self.commands.append(("close", reason))
        if (gate := self._gates.get("close")) is not None:
            await gate.wait()
        if self.closes:
            self.closed = True
            self.end("client_close", confirmed=True)
        return self.closes

    async def events(self) -> AsyncIterator[EngineEvent]:
        while True:
            event = await self._events.get()
            yield event
            if isinstance(event, LinkEnded):
                return

    def statistics(self) -> Mapping[str, Any]:
        return {}

    async def _called(self, name: str, what: Any) -> None:
        if (gate := self._gates.get(name)) is not None:
            await gate.wait()
        await self._up.wait()
        if self.ended:
            raise LinkError(LinkCode.LINK_LOST, "the link has ended")
        if failures := self._failures.get(name):
            raise failures.pop(0)
        self.commands.append((name, what))


class ScriptedLinks:
    """Makes links and keeps them. ``prepare`` is told of each before it opens."""

    def __init__(self, clock: Clock, capabilities: Mapping[str, Any]) -> None:
        self.made: list[ScriptedLink] = []
        self.capabilities = capabilities
        self.script: Script = lambda link, unit: ()
        self.prepare: Callable[[ScriptedLink], None] = lambda link: None
        self._clock = clock

    def __call__(self, options: LinkOptions) -> ScriptedLink:
        link = ScriptedLink(options, self._clock, self.capabilities)
        link.script = self.script
        self.prepare(link)
        self.made.append(link)
        return link


@dataclass
class FakeSeat:
    engine: str
    options: LinkOptions
    state: str = "taken"
    paces: list[tuple[int, float]] = field(default_factory=list)
    close: Callable[[], Awaitable[bool]] | None = None

    @property
    def over(self) -> bool:
        return self.state not in ("taken", "opened")

    def opened(self) -> None:
        self.state = "opened"

    def failed(self, code: str) -> None:
        self._end(f"failed:{code}")

    def freed(self) -> None:
        self._end("freed")

    def lost(self, close: Callable[[], Awaitable[bool]] | None = None) -> None:
        if not self.over:
            self.close = close
        self._end("lost")

    def paced(self, unit_ms: int, took_ms: float) -> None:
        self.paces.append((unit_ms, took_ms))

    def _end(self, state: str) -> None:
        if not self.over:
            self.state = state


class FakeSeats:
    """At most ``limit`` places; one more for a rollover."""

    def __init__(self, limit: int = 4) -> None:
        self.limit = limit
        self.seats: list[FakeSeat] = []

    async def take(self, session_id: str, *, rollover: bool = False) -> FakeSeat:
        taken = sum(not seat.over or seat.state == "lost" for seat in self.seats)
        if taken >= self.limit + rollover:
            raise ResourceExhausted(f"all {self.limit} places are taken", retry_after_s=1.0)
        seat = FakeSeat("engine", LinkOptions(url="ws://engine", model="served"))
        self.seats.append(seat)
        return seat

    @property
    def states(self) -> list[str]:
        return [seat.state for seat in self.seats]
