"""Whole native sessions over the scripted engine's sockets, in scaled time: only the client is left out."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import EngineLink, LinkOptions
from orchestrator.backends.native.backend import NativeBackend
from orchestrator.backends.native.options import NativeOptions
from orchestrator.engines.places import EngineSpec
from orchestrator.engines.pool import EnginePool
from orchestrator.runtime.actor import Session
from orchestrator.runtime.clock import system_ids, system_tokens
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.subscription import Subscription
from orchestrator.session.backend import Clock, SessionConfig
from orchestrator.session.commands import AppendInput, PlaybackAck
from orchestrator.session.events import Event, OutputAudioDelta
from orchestrator.session.limits import SessionLimits
from orchestrator.session.units import InputUnit
from prompts.native import Audio, Horizon, NativeProfile, Seed
from tests.backends.native.harness import DUPLEX
from tests.fakes.backend import ListLog
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine, ScaledClock, Unit

ENGINE = replace(MINICPM_LIKE, needs_reference=False)
OPTIONS = NativeOptions(cancel_s=100.0, wedged_s=1000.0)
STEP = 8
"""Between the samples of one marked unit and the next, in 1/32768."""


LONG_S = 1000.0
"""Deadlines that a busy machine keeps though time is scaled."""
PATIENCE_S, LOST_S = 30.0, 2.0
"""Real seconds in which a unit has to come, and those after which one that may be lost counts as lost."""
QUIET_S = 6
"""After talk, for what is still said to it."""


def two_minutes(profile: NativeProfile = DUPLEX) -> NativeProfile:
    """A context that holds two minutes of talk."""
    return replace(profile, horizon=Horizon(1440, 12.0, 64, 40, Seed.INSTRUCTIONS, 320))


def marked(number: int, speech: bool, count: int = 16000) -> bytes:
    """A unit of speech or silence, by whose first sample it is known again (up to 4000 of them)."""
    samples = np.full(count, 0.1 if speech else 0.0, np.float32)
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
    clock: Clock
    engine: DuplexEngine
    audio: Audio
    seen: list[Event] = field(default_factory=list)
    _sent: dict[str, float] = field(default_factory=dict)
    _appended: int = 0

    async def append(self, number: int, speech: bool) -> None:
        self._appended += 1
        unit = InputUnit(pcm=marked(number, speech, self.audio.unit_samples), speech=speech)
        ms = self.audio.unit_ms
        await self.session.submit(AppendInput(f"op{self._appended}", unit, is_speech=speech, duration_ms=ms))

    async def play(self) -> None:
        """Take what was emitted, and acknowledge all of it that was played."""
        queue = self.subscription._queue
        events = list(queue)
        queue.clear()
        self.seen += events
        heard: dict[str, None] = {}
        for event in events:
            if isinstance(event, OutputAudioDelta):
                self._sent[event.response_id] = self._sent.get(event.response_id, 0) + len(event.pcm) / 48
                heard[event.response_id] = None
        for response_id in heard:
            await self.session.submit(PlaybackAck(round(self._sent[response_id]), response_id=response_id))

    def _reached(self, number: int) -> bool:
        newest = (session.model.newest for session in self.engine.sessions[-4:])
        return any(unit is not None and mark_of(unit) == number for unit in newest)

    def facts(self, kind: str) -> list[Mapping[str, Any]]:
        return [data for each, data in self.log.entries if each == kind]

    async def talk(self, first: int, count: int, *, silence: int = 0, loses: bool = False) -> None:
        """That many marked units, each in its time; after every three of speech come ``silence`` quiet ones.

        Each has to reach the engine while time stands still: none may wait for anything that takes time.

        :param loses: units may be lost
        """
        assert isinstance(self.clock, ScaledClock)
        for number in range(first, first + count):
            with self.clock.held():
                await self.append(number, (number - first) % (3 + silence) < 3)
                await self.play()
                with suppress(TimeoutError) if loses else nullcontext():
                    await self.engine.until(partial(self._reached, number), LOST_S if loses else PATIENCE_S)
            await self.clock.sleep(self.audio.unit_ms / 1000)
        await self.clock.sleep(QUIET_S)
        await self.play()

    async def close(self) -> None:
        await self.session.close("client_close")
        await self.session.release()


class House:
    """One Vigil before one engine.

    :param clock: the engine's too
    """

    def __init__(
        self, engine: DuplexEngine, profile: NativeProfile, clock: Clock, *, rolls_over: bool
    ) -> None:
        self.engine, self.profile, self.clock = engine, profile, clock
        options = LinkOptions(
            engine.url, "m", connect_s=LONG_S, open_s=LONG_S, reply_s=LONG_S, write_s=LONG_S, close_s=LONG_S,
            silence_s=LONG_S, resume_s=LONG_S,
        )  # fmt: skip
        spec = EngineSpec("a", options, engine.max_sessions, rolls_over)
        self.pool = EnginePool([spec], self.clock)
        self._made = 0

    async def open(self, **config: Any) -> Client:
        self._made += 1
        session_id, log = f"duplex-{self._made}", ListLog()

        def links(options: LinkOptions) -> EngineLink:
            return DuplexLink(options, clock=self.clock)

        backend = NativeBackend(
            session_id, self.profile, self.pool, links, log, self.clock, system_ids, OPTIONS
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
        return Client(session, log, session.events(65536), self.clock, self.engine, self.profile.audio)
