"""One suite, two engines: the scripted one of ``tests.fakes`` and the genuine server, behind one face.

What a test says of both is true; where they differ, the scripted engine is wrong.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import EngineEvent, EngineLink, EngineUnit, LinkOptions, OpenedSession
from engine_launch.client import picture
from orchestrator.duplex_spec import duplex_spec
from prompts.native_loader import native_profile
from tests.fakes.duplex_engine import PROFILES, DuplexEngine
from tests.peers.peer import Peer

EVENT_S = 60.0
E = TypeVar("E")


class Stand(Protocol):
    """An engine that a test scripts."""

    url: str
    model: str

    async def script(self, script: str, *, chunk_ms: float = 5.0, think_ms: float = 5.0) -> None:
        """How the model behaves: at once, or in sessions that open later."""

    async def drop(self) -> None:
        """Every socket breaks without a close frame."""

    async def sessions(self) -> int:
        """How many places are taken."""

    async def heard(self, session_id: str) -> list[tuple[int, str]]:
        """Samples and decision of each unit the session's model got."""


class Scripted:
    def __init__(self, engine: DuplexEngine) -> None:
        self._engine = engine
        self.url, self.model = engine.url, engine.profile.model

    async def script(self, script: str, *, chunk_ms: float = 5.0, think_ms: float = 5.0) -> None:
        self._engine.script = script
        self._engine.faults.chunk_ms, self._engine.faults.think_ms = chunk_ms, think_ms

    async def drop(self) -> None:
        self._engine.drop()

    async def sessions(self) -> int:
        return len(self._engine.live)

    async def heard(self, session_id: str) -> list[tuple[int, str]]:
        session = next(session for session in self._engine.sessions if session.id == session_id)
        return [(unit.samples, unit.decision) for unit in session.units]


class Genuine:
    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self.url, self.model = peer.url, peer.model

    async def script(self, script: str, *, chunk_ms: float = 5.0, think_ms: float = 5.0) -> None:
        await asyncio.to_thread(self._peer.turn, script=script, chunk_ms=chunk_ms, think_ms=think_ms)

    async def drop(self) -> None:
        await asyncio.to_thread(self._peer.drop)

    async def sessions(self) -> int:
        return int((await asyncio.to_thread(self._peer.status))["sessions"])

    async def heard(self, session_id: str) -> list[tuple[int, str]]:
        units = (await asyncio.to_thread(self._peer.status))["units"]
        return [(unit["samples"], unit["decision"]) for unit in units if unit["session"] == session_id]


class Relay:
    """A stretch of the way to an engine that a test may take away: connections break, none is let in."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._to = (parts.hostname, parts.port)
        self._whole = True
        self._ends: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Relay:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        self._whole = False
        for end in self._ends:
            end.transport.abort()

    def mend(self) -> None:
        self._whole = True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._whole:
            writer.transport.abort()
            return
        there, back = await asyncio.open_connection(*self._to)
        ends = {writer, back}
        self._ends |= ends
        try:
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        except OSError:
            pass
        finally:
            self._ends -= ends
            for end in ends:
                end.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    raise ConnectionResetError("one end is gone")


@asynccontextmanager
async def scripted(family: str) -> AsyncIterator[Scripted]:
    async with DuplexEngine(
        "pattern:LLSE", PROFILES[family], max_sessions=2, grace_s=5.0, reaper_s=0.2
    ) as engine:
        yield Scripted(engine)


class Line:
    """A link with a session on a stand, and its events as they come."""

    def __init__(self, stand: Stand, family: str, url: str | None = None) -> None:
        self.profile = native_profile(family)
        self.spec = duplex_spec(self.profile)
        self.link: EngineLink = DuplexLink(LinkOptions(url or stand.url, stand.model))
        self.seen: list[EngineEvent] = []
        self.model = stand.model
        self._events = self.link.events()
        self._number = 0

    async def open(self, *, auto: bool = True, **changes: Any) -> OpenedSession:
        opening: Mapping[str, Any] = {**self.spec.opening(self.model), **changes}
        extra = {**opening["extra_body"], "auto_response": auto}
        return await self.link.open({**opening, "extra_body": extra})

    async def say(self, units: int = 1, *, loud: bool = True) -> list[str]:
        """Whole units, tone or silence; their event ids."""
        return [await self.link.append(self.unit(loud=loud)) for _ in range(units)]

    def unit(self, *, loud: bool = True, samples: int | None = None, frames: int = 0) -> EngineUnit:
        audio = self.profile.audio
        count = samples or audio.unit_samples
        values = [
            0.1 * math.sin(2 * math.pi * 220 * i / audio.input_rate_hz) if loud else 0.0 for i in range(count)
        ]
        if audio.input_format == "pcm16":
            pcm = struct.pack(f"<{count}h", *(round(32767 * value) for value in values))
        else:
            pcm = struct.pack(f"<{count}f", *values)
        milliseconds = count * 1000 // audio.input_rate_hz
        self._number += milliseconds
        return EngineUnit(
            pcm=pcm,
            frames=tuple(picture(number, 64) for number in range(frames)),
            format=audio.input_format,
            rate_hz=audio.input_rate_hz,
            duration_ms=milliseconds,
            end_ms=self._number,
            is_speech=loud,
        )

    async def until(self, kind: type[E]) -> E:
        """The next event of ``kind``; those before it are in ``seen``."""
        async with asyncio.timeout(EVENT_S):
            while True:
                event = await anext(self._events)
                self.seen.append(event)
                if isinstance(event, kind):
                    return event

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.seen if isinstance(event, kind)]


@asynccontextmanager
async def line(stand: Stand, family: str = "minicpmo_4_5", url: str | None = None) -> AsyncIterator[Line]:
    """A link that is closed at the end, whatever the test made of it. ``url``: by another way."""
    made = Line(stand, family, url)
    try:
        yield made
    finally:
        await made.link.close("client_close")
