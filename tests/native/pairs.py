"""Whole native sessions over the scripted engine's sockets, in scaled time: only the client is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import EngineLink, LinkOptions
from orchestrator.backends.native.backend import NativeBackend
from orchestrator.backends.native.options import NativeOptions
from orchestrator.engines.places import EngineSpec
from orchestrator.engines.pool import EnginePool
from orchestrator.runtime.actor import RuntimeLimits, Session, SessionParts
from orchestrator.runtime.clock import system_ids, system_tokens
from orchestrator.runtime.subscription import Subscription
from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AppendInput, PlaybackAck
from orchestrator.session.events import Event, OutputAudioDelta, ResponseDone
from orchestrator.session.limits import SessionLimits
from orchestrator.session.units import InputUnit
from prompts.native import Horizon, NativeProfile, Seed
from tests.backends.native.harness import DUPLEX
from tests.fakes.backend import ListLog
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine, ScaledClock, Unit

ENGINE = replace(MINICPM_LIKE, needs_reference=False)
STEP = 8
"""Between the samples of one marked unit and the next, in 1/32768."""


QUIET_S = 60
"""After talk, for all that is still under way on a busy machine."""


class FastClock(ScaledClock):
    """Scaled time for Vigil's side; deadlines shrink with it."""

    def wall_ms(self) -> int:
        return round(self.now() * 1000)


def two_minutes(profile: NativeProfile = DUPLEX) -> NativeProfile:
    """A context that holds two minutes of talk."""
    return replace(profile, horizon=Horizon(1440, 12.0, 64, 40, Seed.INSTRUCTIONS, 320))


def marked(number: int, speech: bool) -> bytes:
    """One second of speech or silence, by whose first sample it is known again (up to 4000 of them)."""
    samples = np.full(16000, 0.1 if speech else 0.0, np.float32)
    samples[0] = (number + 1) * STEP / 32768
    return samples.tobytes()


def mark_of(unit: Unit) -> int:
    return round(float(unit.pcm[0]) * 32768 / STEP) - 1


@dataclass
class Client:
    """A session, and a player that plays and acknowledges everything at once."""

    session: Session
    log: ListLog
    subscription: Subscription
    clock: FastClock
    seen: list[Event] = field(default_factory=list)
    _sent: dict[str, int] = field(default_factory=dict)
    _appended: int = 0

    async def append(self, number: int, speech: bool) -> None:
        self._appended += 1
        unit = InputUnit(pcm=marked(number, speech), speech=speech)
        await self.session.submit(
            AppendInput(f"op{self._appended}", unit, is_speech=speech, duration_ms=1000)
        )

    async def play(self) -> None:
        """Take what was emitted, and acknowledge responses that are over."""
        queue = self.subscription._queue
        events = list(queue)
        queue.clear()
        self.seen += events
        for event in events:
            if isinstance(event, OutputAudioDelta):
                played = self._sent.get(event.response_id, 0)
                self._sent[event.response_id] = played + round(len(event.pcm) / 48)
            elif isinstance(event, ResponseDone) and event.response_id in self._sent:
                ms = self._sent[event.response_id]
                await self.session.submit(PlaybackAck(ms, response_id=event.response_id))

    def facts(self, kind: str) -> list[Mapping[str, Any]]:
        return [data for each, data in self.log.entries if each == kind]

    async def talk(self, first: int, count: int, *, silence: int = 0) -> None:
        """That many marked seconds in real time; after every three of speech come ``silence`` quiet ones."""
        began = self.clock.now()
        for number in range(count):
            await self.append(first + number, number % (3 + silence) < 3)
            await self.play()
            await self.clock.sleep(max(0.0, began + number + 1 - self.clock.now()))
        await self.clock.sleep(QUIET_S)
        await self.play()

    async def close(self) -> None:
        await self.session.close("client_close")
        await self.session.release()


class House:
    """One Vigil before one engine."""

    def __init__(
        self, engine: DuplexEngine, profile: NativeProfile, *, rolls_over: bool, scale: float
    ) -> None:
        self.engine, self.profile = engine, profile
        self.clock = FastClock(scale)
        spec = EngineSpec("a", LinkOptions(engine.url, "m"), engine.max_sessions, rolls_over)
        self.pool = EnginePool([spec], self.clock)
        self._made = 0

    async def open(self, **config: Any) -> Client:
        self._made += 1
        session_id, log = f"duplex-{self._made}", ListLog()

        def links(options: LinkOptions) -> EngineLink:
            return DuplexLink(options, clock=self.clock)

        backend = NativeBackend(
            session_id, self.profile, self.pool, links, log, self.clock, system_ids, NativeOptions()
        )
        session = await Session.open(
            session_id,
            session_id,
            SessionConfig("m", **config),
            SessionParts(backend, log),
            self.clock,
            ids=system_ids,
            tokens=system_tokens,
            session_limits=SessionLimits(),
            limits=RuntimeLimits(open_s=600),
        )
        return Client(session, log, session.events(65536), self.clock)
