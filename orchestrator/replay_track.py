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
from memory.store.base import Entry
from orchestrator.api.context import EngineState
from orchestrator.api.readings import Reading, Readings, named
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
from orchestrator.engines.fleet import Home
from orchestrator.engines_door import EnginesDoor
from orchestrator.exits import Exit, SetupError
from orchestrator.keeping import Kept, PackLasting
from orchestrator.replay_engines import Engines
from orchestrator.replay_hosts import Hosts
from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import Clock, Ids, SessionBackend, SessionConfig, TickPermits
from orchestrator.session_sums import Sizes
from orchestrator.settings import Settings
from orchestrator.solver_setup import solver_chain
from orchestrator.summarizer_setup import summarizer_of
from orchestrator.text_access import TextAccess
from orchestrator.tokenizer import learned_scale
from orchestrator.track import Built, Offer, helpers_readings
from orchestrator.voice_setup import default_modalities, speaker_of, spoken_options, told_of

_TRANSCRIBER = {
    "waiting": ("transcriber_waiting", "utterances that wait for the recogniser"),
    "in_work": ("transcriber_in_work", "utterances that the recogniser works on"),
    "worker_starts": ("transcriber_starts_total", "starts of the recogniser's process"),
}
_TRANSCRIBED = ("transcribed", "failed", "refused", "dropped")
_UTTERANCES = {
    "waiting": ("utterances_waiting", "utterances whose words are not there yet"),
    "utterances": ("utterances_total", "stretches of speech heard"),
    "held": ("answers_held_total", "answers held back because somebody may be speaking"),
    "resumed": ("answers_resumed_total", "answers held back that went on where they were"),
    "detectors_broken": ("detectors_broken_total", "speech detectors that failed"),
}
_WORDLESS = ("empty", "failed", "lost")
_VOICE = {
    "running": ("voice_running", "clauses that are being synthesised"),
    "waiting": ("voice_waiting", "clauses that wait to be synthesised"),
    "texts": ("voice_texts_total", "answers begun to be spoken"),
    "failed": ("voice_texts_failed_total", "answers that could not be spoken"),
    "cut": ("voice_texts_cut_total", "answers cut off while they were spoken"),
    "instead": ("voice_stand_in_texts_total", "answers that the system's voice had to speak"),
    "requests": ("voice_requests_total", "requests to the speech server"),
    "requests_failed": ("voice_requests_failed_total", "requests to the speech server that failed"),
    "starts": ("voice_starts_total", "starts of the voice's process"),
}


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
        home = self.hosts.fleet.home(
            kept.session_id, self._priority_of(spec.tenant), spec.tenant, answered_by(kept.past)
        )
        try:
            return self._built(kept, home)
        except BaseException:
            home.leave()
            raise

    def _built(self, kept: Kept, home: Home) -> Built:
        pack, facts, settings = self.pack, self._facts, self._settings
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
            lambda moment: home.turn_after(moment, pack.period_ms / 1000),
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

    def beside(self, sessions: int) -> None:
        self.hosts.fleet.beside = sessions

    @property
    def refused(self) -> int:
        return self.hosts.fleet.refused

    def readings(self, sizes: Sizes) -> Readings:
        return {
            "frames_waiting": Reading("frames that no tick has shown yet", float(sizes["frames"]["waiting"])),
            "memory_gaps": Reading(
                "stretches of time of which a session has neither pictures nor words",
                float(sizes["summaries"]["gaps"]),
            ),
            "permits_waiting": Reading(
                "work that waits for an engine", self.hosts.permits("waiting"), "kind"
            ),
            "permits_running": Reading(
                "work that engines do for sessions", self.hosts.permits("running"), "kind"
            ),
            "sessions_moved_total": Reading(
                "sessions that changed their engine", self.hosts.fleet.moves, "reason"
            ),
            **self.hosts.readings(),
            **(self._hearing(sizes) if self._ears else {}),
            **(self._speaking(sizes) if self._speaker else {}),
            **helpers_readings(self.hosts.state(), self._solvers, self._summarizer),
        }

    def _hearing(self, sizes: Sizes) -> Readings:
        assert self._ears is not None
        tally, transcriber = self._ears.tally, self._ears.transcriber
        heard = {**tally.counts, "waiting": sizes["ears"]["waiting"]}
        worked = transcriber.statistics()
        return {
            **named(worked, _TRANSCRIBER),
            **named(heard, _UTTERANCES),
            "transcriptions_total": Reading(
                "utterances that the recogniser was given",
                {each: worked[each] for each in _TRANSCRIBED if each in worked},
                "outcome",
            ),
            "utterances_without_words_total": Reading(
                "utterances of which no words came", {each: heard[each] for each in _WORDLESS}, "reason"
            ),
            "transcriber_seconds": Reading("recognition of an utterance, waiting apart", transcriber.took),
            "utterance_words_seconds": Reading("from an utterance's end to its words", tally.words),
            "detector_seconds": Reading("the detector's work for a piece of sound", tally.detecting),
        }

    def _speaking(self, sizes: Sizes) -> Readings:
        assert self._speaker is not None
        answers = {of: float(sizes["voice"][of]) for of in ("speaking", "waiting")}
        return {
            **named(self._speaker.statistics(), _VOICE),
            "voice_first_sound_seconds": Reading(
                "from the first words of an answer to its first sound", self._speaker.first_sound
            ),
            "answers": Reading("answers with a voice", answers, "state"),
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


def answered_by(past: Sequence[Entry]) -> str | None:
    """The engine that answered a session last, by its log."""
    ticks = (entry.data for entry in reversed(past) if entry.kind == "tick_answered")
    rows = ((tick.get("metrics") or {}).get("row") or {} for tick in ticks)
    return next((row["engine"] for row in rows if row.get("prompt_tokens") and row.get("engine")), None)


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
