"""The replay kind of model: one engine that answers single requests, and a prompt rebuilt at each of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.engine import ChatEngine
from bridges.frames import FrameGate
from bridges.speech import Speaker
from orchestrator.api.context import EngineState
from orchestrator.api.metrics import ENGINE_STATES
from orchestrator.backends.ears import Ears, hearing_capabilities
from orchestrator.backends.hearing import HearingBackend
from orchestrator.backends.replay.backend import ReplayBackend, replay_capabilities
from orchestrator.backends.replay.decide import ThresholdRefused, threshold_bias
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.backends.solvers import Solver
from orchestrator.backends.spoken import SpokenBackend, spoken_capabilities
from orchestrator.backends.summaries import Summarizer
from orchestrator.engine_fit import (
    decide_options,
    engine_limits,
    frame_bounds,
    window_limits,
)
from orchestrator.engines_door import EnginesDoor
from orchestrator.exits import Exit, SetupError
from orchestrator.keeping import Kept, PackLasting
from orchestrator.replay_engines import Engines
from orchestrator.replay_hosts import Hosts
from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import Clock, Ids, SessionBackend, SessionConfig, TickPermits
from orchestrator.settings import Settings
from orchestrator.solver_setup import solver_chain
from orchestrator.summarizer_setup import summarizer_of
from orchestrator.text_access import TextAccess
from orchestrator.tokenizer import learned_scale
from orchestrator.track import Built, Gauges, Offer
from orchestrator.voice_setup import default_modalities, speaker_of, spoken_options, told_of


@dataclass(frozen=True, slots=True)
class Outside:
    """Whom one session asks. ``permits``: when it may ask the engine."""

    engine: ChatEngine
    permits: TickPermits
    solver: Solver | None
    summarizer: Summarizer | None


Through = Callable[[str, Outside], Outside]
"""Stands between a session, named by its id, and those whom it asks: a recorder, or a record."""


class ReplayTrack:
    """See ``Track``.

    :param hosts: the engines, as sessions ask them
    :param salt_of: the engine's ``cache_salt`` for a tenant's plain requests
    :param text_scale: of new sessions' estimates, see ``orchestrator.tokenizer``
    :param speaker: gives sessions a voice; ``ears``: what they hear with
    :param through: stands between each session and those whom it asks
    :param modalities: of sessions that ask for none
    """

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        clock: Clock,
        ids: Ids,
        salt_of: Callable[[str], Awaitable[str]],
        *,
        text_scale: float = 1.0,
        speaker: Speaker | None = None,
        modalities: tuple[str, ...] = ("text", "audio"),
        ears: Ears | None = None,
        through: Through | None = None,
    ) -> None:
        self.pack, self._facts = engines.pack, engines.facts
        self.runtime = RuntimeLimits()
        self.lasting = PackLasting(engines.pack)
        self.offer = _offer(settings, engines, speaker, modalities, ears)
        self._settings = settings
        self._clock = clock
        self._ids = ids
        self._speaker = speaker
        self._ears = ears
        self._text_scale = text_scale
        self._solvers = solver_chain(settings)
        self._summarizer = summarizer_of(settings)
        self._gate = FrameGate(self.offer.frames)
        self._decide = decide_options(settings)
        self._limits = window_limits(engines.pack, engines.facts, settings.memory)
        self._priority_of = settings.auth.priority_of
        self.hosts = Hosts(settings, engines, self._limits, clock, settings.auth.classes)
        self.texts = TextAccess(self.hosts.texts, salt_of)
        self._through = through

    async def build(self, spec: SessionSpec, kept: Kept) -> Built:
        pack, facts, settings = self.pack, self._facts, self._settings
        home = self.hosts.fleet.home(kept.session_id, self._priority_of(spec.tenant), spec.tenant)
        asked = Outside(home.chat, home.permits, self._solvers, self._summarizer)
        if self._through is not None:
            asked = self._through(kept.session_id, asked)
        backend = ReplayBackend(
            kept.session_id,
            pack,
            asked.engine,
            kept.frames,
            kept.log,
            asked.permits,
            self._clock,
            self._ids,
            self._gate.check,
            ReplayOptions(
                tenant_key=kept.frame_key,
                engine=engine_limits(pack, facts, kept.salt, constrained=settings.decision.constrain),
                window=self._limits,
                decide=self._decide,
                jitter=self._jitter(),
                persona=settings.persona,
                language=settings.language,
                max_pixels=settings.limits.frame_pixels,
                text_scale=self._text_scale,
                max_query_chars=settings.limits.query_chars,
                delegations=settings.delegation.in_flight,
                delegation_s=settings.delegation.deadline_s,
                solver_frames=settings.delegation.frames,
                max_sessions=settings.limits.sessions,
            ),
            solver=asked.solver,
            summarizer=asked.summarizer,
            history=kept.history,
            packs=kept.packs,
            place=home,
        )
        whole: SessionBackend = backend
        told: dict[str, Callable[[], Mapping[str, int]]] = {}
        if self._speaker is not None:
            spoken = SpokenBackend(whole, self._speaker, self._clock, spoken_options(settings.voice))
            whole, told["voice"] = spoken, spoken.statistics
        if self._ears is not None:
            hearing = HearingBackend(whole, self._ears, self._clock, kept.session_id)
            whole, told["ears"] = hearing, hearing.statistics
        return Built(
            whole,
            lambda: backend.memory,
            lambda: backend.health,
            lambda: {**backend.statistics(), **{part: ask() for part, ask in told.items()}},
        )

    async def watch(self) -> None:
        await self.hosts.watch()

    def state(self) -> EngineState:
        return self.hosts.state()

    def facts(self) -> Mapping[str, Any]:
        urls = [served.engine.url for served in self.hosts]
        return {"urls": urls, "family": self.pack.family, **self._facts.to_dict()}

    @property
    def engines(self) -> EnginesDoor:
        return EnginesDoor(self.hosts, self._settings)

    def gauges(self, built: tuple[Built, ...]) -> Gauges:
        engine = self.hosts.state()
        solvers = self._solvers.statistics() if self._solvers else {}
        sizes = [each.statistics() for each in built]
        return {
            "frames_waiting": float(sum(each["frames"]["waiting"] for each in sizes)),
            "summary_gaps": float(sum(each["summaries"]["gaps"] for each in sizes)),
            "solver_in_flight": {name: float(s["in_flight"]) for name, s in solvers.items()},
            "solver_waiting": {name: float(s["waiting"]) for name, s in solvers.items()},
            "permits_waiting": self.hosts.permits("waiting"),
            "permits_running": self.hosts.permits("running"),
            "sessions_refused": float(self.hosts.fleet.refused),
            "sessions_moved": {why: float(n) for why, n in self.hosts.fleet.moves.items()},
            **self.hosts.gauges(),
            **(self._hearing(sizes) if self._ears else {}),
            **(self._speaking(sizes) if self._speaker else {}),
            **({"summarizer": self._summarizer.statistics()} if self._summarizer else {}),
            "engine_ready": float(engine.ready),
            "engine_state": {state: float(state == engine.state) for state in ENGINE_STATES},
        }

    def _hearing(self, sizes: Sequence[Mapping[str, Mapping[str, int]]]) -> Gauges:
        assert self._ears is not None
        tally, transcriber = self._ears.tally, self._ears.transcriber
        return {
            "transcriber": transcriber.statistics(),
            "transcriber_seconds": transcriber.took,
            "utterances": {**tally.counts, "waiting": sum(each["ears"]["waiting"] for each in sizes)},
            "utterance_words_seconds": tally.words,
            "detector_seconds": tally.detecting,
        }

    def _speaking(self, sizes: Sequence[Mapping[str, Mapping[str, int]]]) -> Gauges:
        assert self._speaker is not None
        return {
            "voice": self._speaker.statistics(),
            "voice_first_sound_seconds": self._speaker.first_sound,
            "answers": {of: sum(each["voice"][of] for each in sizes) for of in ("speaking", "waiting")},
        }

    async def aclose(self) -> None:
        await self.hosts.aclose()
        if self._solvers is not None:
            await self._solvers.aclose()
        if self._summarizer is not None:
            await self._summarizer.aclose()
        if self._ears is not None:
            await self._ears.transcriber.aclose()
        if self._speaker is not None:
            await self._speaker.aclose()
        self._gate.close()

    def _jitter(self) -> float:
        """Where a first chunk ends. A seeded run is meant to be repeatable."""
        seed = self._settings.decision.seed
        return random.uniform(-0.2, 0.2) if seed is None else 0.0


async def replay_track(
    settings: Settings,
    engines: Engines,
    clock: Clock,
    ids: Ids,
    salt_of: Callable[[str], Awaitable[str]],
    speaker: Speaker | None = None,
    ears: Ears | None = None,
    through: Through | None = None,
) -> ReplayTrack:
    """:raises SetupError: the settings ask for what these engines cannot do"""
    check_settings(settings, engines)
    scale = await asyncio.to_thread(
        learned_scale, settings.tokenizer, engines.facts, engines.pack, settings.persona, settings.language
    )
    modalities: tuple[str, ...] = ("text", "audio")
    if speaker is None:
        speaker, modalities = speaker_of(settings.voice, clock), default_modalities(settings.voice)
    return ReplayTrack(
        settings,
        engines,
        clock,
        ids,
        salt_of,
        text_scale=scale,
        speaker=speaker,
        modalities=modalities,
        ears=ears,
        through=through,
    )


def check_settings(settings: Settings, engines: Engines) -> None:
    """:raises SetupError: the settings ask for what these engines cannot do"""
    pack, facts = engines.pack, engines.facts
    if settings.persona not in pack.personas:
        known = ", ".join(sorted(pack.personas))
        raise SetupError(
            f"the pack {pack.family} has no persona {settings.persona!r}; known are {known}",
            "unknown_persona",
            Exit.USAGE,
        )
    if settings.language not in pack.languages:
        known = ", ".join(pack.languages)
        raise SetupError(
            f"the pack {pack.family} has no language {settings.language!r}; known are {known}",
            "unknown_language",
            Exit.USAGE,
        )
    pixels = settings.limits.frame_pixels
    if pixels is not None and not pack.pixels.min <= pixels <= pack.pixels.max:
        raise SetupError(
            f"limits.frame_pixels lies between {pack.pixels.min} and {pack.pixels.max} for {pack.family}",
            "invalid_max_pixels",
            Exit.USAGE,
        )
    if settings.decision.constrain and not facts.constrained:
        raise SetupError(
            "decision.constrain: an engine does not hold answers to a pattern (structured outputs); "
            "leave it off, or serve the model with an engine that has them",
            "constrain_refused",
            Exit.USAGE,
        )
    if settings.decision.threshold is not None:
        try:
            threshold_bias(engine_limits(pack, facts, "").decision, settings.decision.threshold)
        except ThresholdRefused as refused:
            raise SetupError(f"decision.threshold: {refused}", "threshold_refused", Exit.USAGE) from refused


def _offer(
    settings: Settings,
    engines: Engines,
    speaker: Speaker | None,
    modalities: tuple[str, ...],
    ears: Ears | None,
) -> Offer:
    pack, facts = engines.pack, engines.facts
    capabilities = replay_capabilities(pack, settings.limits.sessions)
    if speaker is not None:
        capabilities = spoken_capabilities(capabilities)
    if ears is not None:
        capabilities = hearing_capabilities(capabilities)
    return Offer(
        model=facts.model,
        family=pack.family,
        context_tokens=facts.context_tokens,
        capabilities=capabilities,
        defaults=SessionConfig(
            model=facts.model,
            persona=settings.persona,
            language=settings.language,
            seed=settings.decision.seed,
            modalities=modalities,
        ),
        personas=frozenset(pack.personas),
        languages=frozenset(pack.languages),
        frames=frame_bounds(pack, settings.limits.frame_bytes),
        over_http=True,
        voice=told_of(settings.voice) if speaker is not None else "",
    )
