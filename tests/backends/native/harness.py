"""A native session in the real ``Session``, over a scripted link, on a clock that only tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from memory.facts import AnyFact
from orchestrator.backends.native.backend import NativeBackend
from orchestrator.backends.native.options import NativeOptions
from orchestrator.backends.solvers import Solver
from orchestrator.backends.summaries import Summarizer
from orchestrator.runtime.actor import Session
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.subscription import Subscription
from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AppendInput, CommitInput
from orchestrator.session.events import Event
from orchestrator.session.limits import SessionLimits
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.audio import AudioFormat, Codec
from prompts.native import (
    Audio,
    Horizon,
    NativeProfile,
    ReferenceAudio,
    Seed,
    SilenceContinuation,
    VoiceRule,
)
from tests.fakes.backend import ListLog
from tests.fakes.clock import CountingIds, VirtualClock, settle
from tests.fakes.link import FakeSeats, ScriptedLink, ScriptedLinks
from tests.runtime.conftest import counting_tokens

E = TypeVar("E", bound=Event)
SESSION = "duplex-1"
JPEG = b"\xff\xd8 a picture"

DUPLEX = NativeProfile(
    family="made_up",
    digest="0",
    session_mode="duplex",
    audio=Audio(1000, 16000, 16000, "pcm16", 24000),
    horizon=Horizon(None, 12.0, 64, 100, Seed.INSTRUCTIONS, 512),
    required_input=("audio",),
    optional_input=("video",),
    output=("text", "audio"),
    adapter_patterns=("scheduler_data_plane",),
    input_modes=("append_audio_chunk",),
    auto_response=True,
    barge_in=True,
    server_vad=True,
    response_create=True,
    resume=True,
    forward_commit=False,
    silence_continuation=SilenceContinuation.ENGINE,
    target_barge_in_latency_ms=1000,
    max_lead_units=2,
    max_sessions=4,
    frame_units=True,
    frames_per_unit=2,
    tools=False,
    voice=VoiceRule.ANY,
    default_voice=None,
    persona=False,
    reference_audio=ReferenceAudio.OPTIONAL,
    text_follows_audio=True,
    concurrent_turns=False,
    max_transcript_bytes=65536,
    reserved_keys=("secret", "own_*"),
    extra_body={"always": 1},
    capabilities={"implementation_level": "model_native_duplex", "supports_barge_in": True},
    quirks={},
)
"""Units of a second; the model decides."""
VISION = replace(DUPLEX, required_input=(), optional_input=("audio", "video"))
"""Takes frames alone."""
TURN = replace(VISION, session_mode="turn", auto_response=False, forward_commit=True, response_create=True)
"""Answers commits."""
FRAMES = replace(
    DUPLEX,
    audio=Audio(80, 1920, 24000, "pcm_f32le", 24000, resample=False),
    optional_input=(),
    barge_in=False,
    server_vad=False,
    response_create=False,
    resume=False,
    voice=VoiceRule.BUNDLED,
    default_voice="FIRST.pt",
    persona=True,
    reference_audio=ReferenceAudio.REFUSED,
    capabilities={"implementation_level": "model_native_duplex", "supports_barge_in": False},
)
"""Units of 80 ms in one format, a bundled voice, a persona."""


def advertised(profile: NativeProfile) -> dict[str, Any]:
    """What an engine of that profile would say of itself."""
    return {
        **profile.capabilities,
        "chunk_period_ms": profile.audio.unit_ms,
        "required_input_modalities": sorted(profile.required_input),
        "optional_input_modalities": sorted(profile.optional_input),
    }


def samples(count: int, value: float = 0.1) -> bytes:
    """Float32 samples, louder than silence."""
    return np.full(count, value, np.float32).tobytes()


def ramp(count: int, start: int = 0) -> bytes:
    """Samples that are told apart: 0, 1, 2 ... in 1/32768."""
    return (np.arange(start, start + count, dtype=np.float32) / np.float32(32768)).tobytes()


def frames(*data: bytes) -> tuple[FrameInput, ...]:
    return tuple(FrameInput(each, 0) for each in data)


@dataclass
class Rig:
    """A session with its scripted parts."""

    session: Session
    backend: NativeBackend
    links: ScriptedLinks
    seats: FakeSeats
    clock: VirtualClock
    log: ListLog
    profile: NativeProfile
    subscription: Subscription
    seen: list[Event] = field(default_factory=list)
    _appended: int = 0

    @property
    def link(self) -> ScriptedLink:
        return self.links.made[-1]

    async def append(
        self,
        ms: int = 0,
        *pictures: bytes,
        pcm: bytes | None = None,
        speech: bool = True,
        operation_id: str | None = None,
    ) -> str:
        """Submit one append of that many ms of audio and these pictures."""
        rate = self.profile.audio.input_rate_hz
        if pcm is None and ms:
            pcm = samples(rate * ms // 1000, 0.1 if speech else 0.0)
        self._appended += 1
        operation_id = operation_id or f"op-{self._appended}"
        unit = InputUnit(frames(*pictures), pcm, speech=speech if pcm else None)
        duration = len(pcm or b"") / 4 * 1000 / rate
        heard = speech and pcm is not None
        await self.session.submit(
            AppendInput(
                operation_id, unit, is_speech=heard, duration_ms=duration, event_id=f"e-{operation_id}"
            )
        )
        await settle()
        return operation_id

    async def commit(self, *, create: bool = False) -> None:
        await self.session.submit(CommitInput(create))
        await settle()

    async def say(self, *events: Any) -> None:
        self.link.emit(*events)
        await settle()

    def events(self) -> list[Event]:
        """Everything emitted so far."""
        queue = self.subscription._queue
        self.seen.extend(queue)
        queue.clear()
        return self.seen

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events() if isinstance(event, kind)]

    def types(self) -> list[str]:
        return [event.type for event in self.events()]

    def kinds(self) -> list[str]:
        return self.log.kinds()

    def facts(self, kind: str) -> list[dict[str, Any]]:
        return [dict(data) for each, data in self.log.entries if each == kind]

    async def finish(self) -> None:
        """End it, whatever state it is in."""
        for link in self.links.made:
            link.closes = True
            for name in tuple(link._gates):
                link.free(name)
        closing = asyncio.ensure_future(self.session.close("test_over"))
        while not closing.done():
            await self.clock.advance(20)
        await self.session.release()

    def codes(self) -> list[str]:
        """Of every error that the client was told."""
        return [event.error.code for event in self.events() if event.type == "error"]  # type: ignore[attr-defined]


OPENED: list[Rig] = []
"""Of the test that runs."""


async def open_rig(
    profile: NativeProfile = DUPLEX,
    *,
    told: dict[str, Any] | None = None,
    limits: SessionLimits | None = None,
    options: NativeOptions | None = None,
    seats: FakeSeats | None = None,
    history: Sequence[AnyFact] = (),
    prepare: Any = None,
    script: Any = None,
    clock: VirtualClock | None = None,
    session_id: str = SESSION,
    summarizer: Summarizer | None = None,
    solver: Solver | None = None,
    **config: Any,
) -> Rig:
    """Open a session; ``told``: what the engine advertises besides what the profile expects."""
    clock, log = clock or VirtualClock(), ListLog()
    links = ScriptedLinks(clock, {**advertised(profile), **(told or {})})
    if prepare is not None:
        links.prepare = prepare
    if script is not None:
        links.script = script
    seats = seats or FakeSeats()
    audio = profile.audio
    exact = None if audio.resample else AudioFormat(Codec(audio.input_format), audio.input_rate_hz)
    if exact is not None:
        config.setdefault("input_format", exact)
    backend = NativeBackend(
        session_id,
        profile,
        seats,
        links,
        log,
        clock,
        CountingIds(),
        options or NativeOptions(),
        history=history,
        summarizer=summarizer,
        solver=solver,
    )
    session = await Session.open(
        session_id,
        "alias",
        SessionConfig("m", **config),
        SessionParts(backend, log),
        clock,
        ids=CountingIds(),
        tokens=counting_tokens(),
        session_limits=limits or SessionLimits(),
        limits=RuntimeLimits(),
    )
    rig = Rig(session, backend, links, seats, clock, log, profile, session.events(4096))
    OPENED.append(rig)
    return rig
