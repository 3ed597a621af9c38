"""A native session over the real link, in front of the scripted engine, with everybody's time sped up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import EngineLink, LinkOptions
from orchestrator.backends.native.backend import NativeBackend
from orchestrator.backends.native.options import NativeOptions
from orchestrator.engines.places import EngineSpec
from orchestrator.engines.pool import EnginePool
from orchestrator.runtime.actor import Session
from orchestrator.runtime.clock import system_ids, system_tokens
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AppendInput, PlaybackAck
from orchestrator.session.events import Event, OutputAudioDelta, ResponseDone
from orchestrator.session.limits import SessionLimits
from orchestrator.session.units import InputUnit
from prompts.native import NativeProfile
from prompts.native_loader import native_profile
from tests.backends.native.harness import frames, samples
from tests.fakes.backend import ListLog
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine, EngineProfile, ScaledClock, Script
from tests.fakes.duplex_engine.session import EngineSession

E = TypeVar("E", bound=Event)
FAMILY = "minicpmo_4_5"
REFERENCE = "data:audio/wav;base64,UklGRg=="


@dataclass
class EngineRig:
    """:param acking: acknowledge audio as soon as its response is over"""

    session: Session
    backend: NativeBackend
    engine: DuplexEngine
    pool: EnginePool
    clock: ScaledClock
    log: ListLog
    rate_hz: int
    events: list[Event] = field(default_factory=list)
    acking: bool = False
    _appended: int = 0

    @property
    def engine_session(self) -> EngineSession:
        return self.engine.sessions[-1]

    async def append(self, ms: int = 0, *pictures: bytes, speech: bool = True) -> None:
        pcm = samples(self.rate_hz * ms // 1000, 0.1 if speech else 0.0) if ms else None
        self._appended += 1
        unit = InputUnit(frames(*pictures), pcm, speech=speech if pcm else None)
        heard = speech and pcm is not None
        await self.session.submit(
            AppendInput(f"op-{self._appended}", unit, is_speech=heard, duration_ms=float(ms))
        )

    async def read(self) -> None:
        async for event in self.session.events(65536):
            self.events.append(event)
            if self.acking and isinstance(event, ResponseDone) and event.cursors.sent_ms:
                ms = event.cursors.sent_ms
                await self.session.submit(PlaybackAck(ms, response_id=event.response_id))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def audio(self) -> bytes:
        return b"".join(event.pcm for event in self.of(OutputAudioDelta))


@asynccontextmanager
async def over_engine(
    script: Script = "pattern:LLSE",
    like: EngineProfile = MINICPM_LIKE,
    *,
    scale: float = 20.0,
    profile: NativeProfile | None = None,
    family: str = FAMILY,
    max_sessions: int = 4,
    **config: Any,
) -> AsyncIterator[EngineRig]:
    """An open session; everything ends with the block."""
    clock = ScaledClock(scale)
    profile = profile or native_profile(family)
    config = {"auto_response": True, "extra_body": {"ref_audio": REFERENCE}, **config}
    async with DuplexEngine(script, like, clock=clock, max_sessions=max_sessions) as engine:
        options = LinkOptions(engine.url, like.model, connect_s=200.0, reply_s=200.0)
        pool = EnginePool([EngineSpec("engine", options, max_sessions, True)], clock)

        def link(options: LinkOptions) -> EngineLink:
            return DuplexLink(options, clock=clock)

        log = ListLog()
        session_id = system_ids("duplex-")
        backend = NativeBackend(
            session_id, profile, pool, link, log, clock, system_ids, NativeOptions(max_sessions=max_sessions)
        )
        session = await Session.open(
            session_id,
            "alias",
            SessionConfig("m", **config),
            SessionParts(backend, log),
            clock,
            ids=system_ids,
            tokens=system_tokens,
            session_limits=SessionLimits(),
            limits=RuntimeLimits(),
        )
        rig = EngineRig(session, backend, engine, pool, clock, log, profile.audio.input_rate_hz)
        reading = asyncio.create_task(rig.read())
        await asyncio.sleep(0)
        try:
            yield rig
        finally:
            await session.close("client_close")
            await session.release()
            await reading
            await pool.aclose()
