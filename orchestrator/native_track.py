"""The native kind of model: engine sessions that listen and speak, each paired with a session of ours."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from bridges.duplex_client.link import LinkOptions
from bridges.engine import EngineUnreachable
from bridges.frames import FrameBounds
from memory.spoken_described import SPOKEN_RENDERER
from orchestrator.api.context import EngineState
from orchestrator.api.readings import Reading, Readings
from orchestrator.backends.native.advertised import native_capabilities
from orchestrator.backends.native.backend import NativeBackend
from orchestrator.backends.native.options import DelegatingOptions, NativeOptions
from orchestrator.backends.native.rules import exact_input
from orchestrator.backends.native.units import SAMPLE_BYTES
from orchestrator.counted_link import CountedLink, LinkCounts
from orchestrator.engines.placement import engine_name
from orchestrator.engines.places import EngineSpec
from orchestrator.engines.pool import EnginePool
from orchestrator.instances import EngineInstances
from orchestrator.keeping import Kept
from orchestrator.native_setup import NativeEngines
from orchestrator.runtime.calls import CallDeadlines
from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.runtime.registry import SessionSpec
from orchestrator.session.backend import DEFAULT_INPUT, Clock, Ids, SessionConfig
from orchestrator.session_sums import Sizes
from orchestrator.settings import Settings
from orchestrator.solver_setup import solver_chain
from orchestrator.summarizer_setup import summarizer_of
from orchestrator.track import Built, Offer, helpers_readings
from prompts.native import NativeProfile, Seed
from prompts.pack import Pack

_log = logging.getLogger(__name__)

_SLACK_S = 20.0
"""What a session's deadlines leave to its link's own."""

_PIXELS = FrameBounds(28 * 28, 1920 * 1920)
"""A picture goes to the engine as it came; this only bounds those that the service reads itself."""

_READY = frozenset({"up", "behind"})


def specs_of(settings: Settings, engines: NativeEngines) -> list[EngineSpec]:
    """Where each engine is, and what it holds and admits."""
    profile = engines.profile
    secret = settings.engine_api_key
    key = secret.get_secret_value() if secret else None
    limit = settings.limits.engine_sessions or profile.max_sessions
    rolls_over = profile.horizon.seed is not Seed.NONE and profile.horizon.context_tokens is not None
    return [
        EngineSpec(engine_name(url), LinkOptions(url, engines.model, key), limit, rolls_over)
        for url in engines.urls
    ]


class NativeLasting:
    """A native session goes on from its log of facts, whatever has become of its profile."""

    renderer = SPOKEN_RENDERER
    source: str | None = None

    def __init__(self, profile: NativeProfile) -> None:
        self.family = profile.family
        self.digest = profile.digest

    def goes_on_from(self, old: Pack | None) -> bool:
        """A log that names a prompt pack is of the other kind."""
        return False


class NativeTrack:
    """See ``Track``."""

    texts = None

    @property
    def engines(self) -> EnginePool:
        return self.pool

    def __init__(
        self,
        settings: Settings,
        engines: NativeEngines,
        clock: Clock,
        ids: Ids,
    ) -> None:
        profile = self._profile = engines.profile
        self._engines = engines
        self._clock = clock
        self._ids = ids
        self._counts = LinkCounts()
        specs = specs_of(settings, engines)
        self._places = sum(spec.max_sessions for spec in specs)
        self.pool = EnginePool(specs, clock)
        one = specs[0].options
        self._instances = EngineInstances(
            dict(zip((spec.name for spec in specs), engines.urls, strict=True)), one.api_key
        )
        self._summarizer = summarizer_of(settings)
        self._solvers = solver_chain(settings)
        if self._solvers is not None and not profile.tools:
            _log.warning("%s calls no tools, so nothing is handed to solvers", profile.family)
        delegation = settings.delegation
        self._delegating = DelegatingOptions(delegation.in_flight, delegation.deadline_s, delegation.frames)
        self._watch_s = settings.timeouts.watch_s
        self._pending_bytes = settings.realtime.input_bytes
        # An update goes behind all input that waits, and that leaves on the stream's clock.
        backlog_s = self._pending_bytes / (SAMPLE_BYTES * profile.audio.input_rate_hz)
        self.runtime = RuntimeLimits(
            open_s=one.connect_s + one.open_s + _SLACK_S,
            deadlines=CallDeadlines(
                call_s=backlog_s + one.reply_s + one.resume_s + _SLACK_S, close_s=one.close_s + _SLACK_S
            ),
        )
        self.lasting = NativeLasting(profile)
        self.offer = Offer(
            model=engines.model,
            family=profile.family,
            context_tokens=profile.horizon.context_tokens or 0,
            capabilities=native_capabilities(profile, self.pool.capacity),
            defaults=SessionConfig(
                model=engines.model,
                language=settings.language,
                modalities=profile.output,
                input_format=exact_input(profile) or DEFAULT_INPUT,
            ),
            personas=frozenset(),
            languages=frozenset({settings.language}),
            frames=_PIXELS,
            over_http=False,
        )

    async def build(self, spec: SessionSpec, kept: Kept) -> Built:
        backend = NativeBackend(
            kept.session_id,
            self._profile,
            self.pool,
            lambda options: CountedLink(options, self._counts, self._clock),
            kept.log,
            self._clock,
            self._ids,
            NativeOptions(
                max_sessions=self.pool.capacity,
                places=self._places,
                max_pending_bytes=self._pending_bytes,
                delegating=self._delegating,
            ),
            history=kept.history,
            summarizer=self._summarizer,
            solver=self._solvers,
        )
        return Built(backend, lambda: backend.memory, dict, backend.statistics)

    async def watch(self) -> None:
        """Notice engines that were started anew, what they held is gone, and those that are not there."""
        while True:
            for name in self._instances.names:
                try:
                    instance = await self._instances.of(name)
                except EngineUnreachable:
                    self.pool.away(name)
                else:
                    self.pool.seen(name, instance)
            await self._clock.sleep(self._watch_s)

    def state(self) -> EngineState:
        states = [str(figures["state"]) for figures in self.pool.statistics().values()]
        ready = sum(state in _READY for state in states)
        told = f"{ready} of {len(states)} engines take sessions"
        if set(states) == {"draining"}:
            return EngineState(False, "draining", told)
        if "up" in states:
            return EngineState(True, "ready", told)
        if ready or "late" in states:
            return EngineState(bool(ready), "slow", told)
        return EngineState(False, "wedged" if "wedged" in states else "dead", told)

    def facts(self) -> Mapping[str, Any]:
        return {
            "urls": list(self._engines.urls),
            "family": self._profile.family,
            "model": self._engines.model,
            "sessions": self.pool.capacity,
        }

    def beside(self, sessions: int) -> None:
        """The engines count their sessions themselves, but know nothing of the places that are kept."""
        self.pool.beside = sessions

    @property
    def refused(self) -> int:
        return self.pool.refused

    def readings(self, sizes: Sizes) -> Readings:
        by_name = self.pool.statistics()

        def of(key: str, text: str) -> Reading:
            return Reading(text, {name: float(told[key]) for name, told in by_name.items()}, "engine")

        def links(counts: Mapping[str, int], text: str) -> Reading:
            by_engine = {engine_name(url): float(counts.get(url, 0)) for url in self._engines.urls}
            return Reading(text, by_engine, "engine")

        counts = self._counts
        return {
            "engine_up": of("answers", "1 while the engine answers"),
            "engine_draining": of("draining", "1 while the engine takes no new sessions"),
            "engine_sessions": of("sessions", "sessions that the engine holds or opens"),
            "engine_sessions_limit": of("limit", "sessions that the engine may hold"),
            "engine_real_time_factor": of(
                "real_time_factor", "time of a unit by its length; above 1: behind"
            ),
            "seats_opening": of("opening", "sessions that are being opened at the engine"),
            "seats_closing": of("closing", "places whose session's end the engine has not confirmed"),
            "seats_expired_total": of("expired", "places that were freed by time alone"),
            "seats_failed_total": of("failed", "sessions that the engine did not open"),
            "links_lost_total": links(counts.lost, "sockets to the engine that broke"),
            "links_resumed_total": links(counts.resumed, "sockets to the engine that were taken up again"),
            "links_unconfirmed_total": links(
                counts.unconfirmed, "sessions whose end the engine did not confirm"
            ),
            "units_waiting": Reading("units of input that no engine has yet", float(sizes["input"]["units"])),
            **helpers_readings(self.state(), self._solvers, self._summarizer),
        }

    async def aclose(self) -> None:
        await self.pool.aclose()
        if self._summarizer is not None:
            await self._summarizer.aclose()
        if self._solvers is not None:
            await self._solvers.aclose()
        await self._instances.aclose()
