"""The composition root: from settings and a checked engine to sessions, and to the HTTP application."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from bridges.engine import Deadlines
from bridges.frames import FrameGate
from bridges.image_fetch import ImageFetcher
from bridges.text_engine import TextEngine
from memory.store.errors import StoreError
from memory.store.store import DAY_MS, Keeping
from memory.tally import Tally
from orchestrator.api.access import Access
from orchestrator.api.body import BodyBudget
from orchestrator.api.context import ApiContext, ApiLimits, MemoryView, RealtimeLimits
from orchestrator.api.failed_logins import FailedLogins
from orchestrator.api.idempotency import Idempotency
from orchestrator.api.metrics import ENGINE_STATES, Metrics
from orchestrator.api.peer import OpenSockets
from orchestrator.api.quota import Meter
from orchestrator.api.server import make_api
from orchestrator.api.ticks import TickStarts
from orchestrator.backends.replay.backend import ReplayBackend, replay_capabilities
from orchestrator.backends.replay.decide import ThresholdRefused, threshold_bias
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.backends.store_faults import told_of
from orchestrator.directory import Live
from orchestrator.engine_fit import (
    BACKGROUND,
    LIVE_TICKS,
    chat_engine,
    decide_options,
    engine_limits,
    frame_bounds,
    session_limits,
    window_limits,
)
from orchestrator.engine_setup import Engine
from orchestrator.engine_watch import EngineWatch
from orchestrator.exits import Exit, SetupError
from orchestrator.keeping import DurableKeeper, Keeper, ToldLog, TransientKeeper
from orchestrator.observed import Observed
from orchestrator.records import Records, counted
from orchestrator.runtime.actor import Session, SessionParts
from orchestrator.runtime.clock import SystemClock, system_ids
from orchestrator.runtime.permits import Permits
from orchestrator.runtime.registry import Registry, RegistryLimits, SessionSpec
from orchestrator.session.backend import BackendOutput, SessionConfig, TickDone, TickStarted
from orchestrator.settings import Settings
from orchestrator.solver_setup import solver_chain
from orchestrator.sources import SourceRules, Sources
from orchestrator.summarizer_setup import summarizer_of
from orchestrator.text_access import ImageAccess, TextAccess
from orchestrator.tokenizer import learned_scale
from orchestrator.version import vigil_version

_log = logging.getLogger(__name__)

SWEEP_S = 60.0


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a live session is made of, besides its core."""

    backend: ReplayBackend
    observed: Observed
    tally: Tally


class Core:
    """Sessions with one model behind one engine. ``vigil serve`` and ``vigil replay`` both drive this.

    Open it with ``open_core``; ``aclose`` ends every session.

    :param text_scale: of new sessions' estimates, see ``orchestrator.tokenizer``
    """

    def __init__(self, settings: Settings, engine: Engine, keeper: Keeper, text_scale: float = 1.0) -> None:
        self.settings = settings
        self.engine = engine
        self.clock = SystemClock()
        self.ids = system_ids
        self.metrics = Metrics()
        self.quotas = settings.auth.quotas()
        self.ticks = TickStarts()
        self.sockets = OpenSockets()
        bounds = frame_bounds(engine.pack, settings.limits.frame_bytes)
        self.sources = Sources(
            SourceRules(frozenset(settings.sources.allow_hosts), settings.sources.folder),
            bounds,
            engine.pack.period_ms,
            self.clock,
            self.ids,
            lambda session_id: self.memory_of(session_id).media_time_ms,
        )
        self.keeper = keeper
        self.chat = chat_engine(settings, engine)
        self.solvers = solver_chain(settings)
        self.summarizer = summarizer_of(settings)
        self.permits = Permits(LIVE_TICKS, BACKGROUND)
        # Frames in flight when the engine died are tried one at a time, over all sessions.
        self._suspect_lane = asyncio.Lock()
        self.gate = FrameGate(bounds)
        self.watch = EngineWatch(
            self.chat, self.clock, period_s=settings.timeouts.watch_s, ping_s=settings.timeouts.ping_s
        )
        self.registry = Registry(
            self._build,
            self.clock,
            self.ids,
            limits=RegistryLimits(
                max_sessions=settings.limits.sessions,
                sessions_of=self.quotas.sessions_of,
                idle_ttl_s=settings.limits.idle_s,
                disconnect_grace_s=settings.realtime.grace_s,
                reaper_interval_s=settings.realtime.reaper_s,
                session=session_limits(settings),
            ),
        )
        self._decide = decide_options(settings)
        self._text_scale = text_scale
        self._limits = window_limits(engine.pack, engine.facts)
        self._parts: dict[str, _Parts] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self.records: Records | None = None
        if keeper.store is not None:
            keeper.store.observe_writes(self.metrics.store_write)
            self.records = Records(
                keeper.store,
                settings.webhook,
                self.registry,
                self.metrics,
                self.clock,
                self._live,
                self._released,
            )
        self.metrics.add_gauges(self._gauges)

    @property
    def period_ms(self) -> int:
        return self.engine.pack.period_ms

    @property
    def defaults(self) -> SessionConfig:
        """Of a session that asks for nothing else."""
        settings = self.settings
        return SessionConfig(
            model=self.engine.facts.model,
            persona=settings.persona,
            language=settings.language,
            seed=settings.decision.seed,
        )

    def engine_facts(self) -> Mapping[str, Any]:
        return {"url": self.engine.url, "family": self.engine.pack.family, **self.engine.facts.to_dict()}

    async def open_session(self, config: SessionConfig) -> Session:
        """A new session without a client's name."""
        return await self.registry.resolve("local", None, config)

    async def drain(self) -> None:
        """Admit nobody more, end every session in order, and let clients read its end."""
        await self.sources.aclose()
        await self.registry.drain(self.settings.timeouts.drain_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.realtime.last_events_s):
                await self.sockets.none_left()

    async def aclose(self) -> None:
        """End every session, then everything that was opened for them."""
        await self.sources.aclose()
        await self.registry.drain(self.settings.timeouts.drain_s)
        await asyncio.gather(*self._endings.values())
        if self.records is not None:
            await self.records.aclose()
        await self.keeper.aclose()
        await self.chat.aclose()
        if self.solvers is not None:
            await self.solvers.aclose()
        if self.summarizer is not None:
            await self.summarizer.aclose()
        self.gate.close()

    def memory_of(self, session_id: str) -> MemoryView:
        """The memory of a live session; an empty view of one that is gone."""
        parts = self._parts.get(session_id)
        if parts is None:
            return MemoryView()
        memory, observed = parts.backend.memory, parts.observed
        return MemoryView(
            long_term=tuple(passage.text for passage in memory.long_term),
            summaries=tuple(passage.text for passage in memory.summaries),
            query=memory.query,
            frames=observed.frames,
            media_time_ms=memory.now_ms if observed.frames or memory.now_ms else None,
            planned_tick=memory.planned_switch_tick,
        )

    async def _build(self, spec: SessionSpec) -> SessionParts:
        pack, facts = self.engine.pack, self.engine.facts
        try:
            kept = await self.keeper.keep(spec, pack)
        except StoreError as fault:
            _log.warning("a session could not be opened: %s", fault.message)
            raise told_of(fault) from fault
        session_id = kept.session_id
        tally = counted(kept, self.metrics)
        if self.records is not None:
            await self.records.opening(session_id, kept)
        ended, released = kept.ended, kept.released

        def on_output(output: BackendOutput) -> None:
            if isinstance(output, TickStarted):
                self.ticks.started(output)
            elif isinstance(output, TickDone) and output.record.get("prompt_tokens") is not None:
                self.quotas.spend(spec.tenant, Meter.TICKS, self.clock.now())
            self.metrics.observe(output)

        async def on_closed(reason: str) -> None:
            try:
                await ended(reason)
            finally:
                self._endings[session_id] = asyncio.create_task(self._let_go(session_id, released))

        backend = ReplayBackend(
            session_id,
            pack,
            self.chat,
            kept.frames,
            kept.log,
            self.permits,
            self.clock,
            self.ids,
            self.gate.check,
            ReplayOptions(
                tenant_key=kept.frame_key,
                engine=engine_limits(pack, facts, kept.salt, constrained=self.settings.decision.constrain),
                window=self._limits,
                decide=self._decide,
                jitter=self._jitter(),
                persona=self.settings.persona,
                language=self.settings.language,
                max_pixels=self.settings.limits.frame_pixels,
                text_scale=self._text_scale,
                max_query_chars=self.settings.limits.query_chars,
                delegations=self.settings.delegation.in_flight,
                delegation_s=self.settings.delegation.deadline_s,
                solver_frames=self.settings.delegation.frames,
                max_sessions=self.settings.limits.sessions,
            ),
            solver=self.solvers,
            summarizer=self.summarizer,
            history=kept.history,
            packs=kept.packs,
            suspect_lane=self._suspect_lane,
        )
        observed = Observed(backend, on_output, on_closed, tally.counts["frames"])
        self._parts[session_id] = _Parts(backend, observed, tally)
        return SessionParts(observed, ToldLog(kept.log), kept.record, session_id)

    def _jitter(self) -> float:
        """Where a first chunk ends. A seeded run is meant to be repeatable."""
        seed = self.settings.decision.seed
        return random.uniform(-0.2, 0.2) if seed is None else 0.0

    async def _let_go(self, session_id: str, released: Callable[[], Awaitable[None]]) -> None:
        """The session writes its last fact after its backend is closed; then nothing of it is needed."""
        self._parts.pop(session_id, None)
        session = self.registry.get(session_id)
        try:
            if session is not None:
                await session.closed.wait()
            await released()
        except StoreError:
            _log.exception("session %s: its log could not be closed", session_id)
        finally:
            del self._endings[session_id]
            if self.records is not None:
                self.records.news(session_id)

    async def _released(self, session_id: str) -> None:
        ending = self._endings.get(session_id)
        if ending is not None:
            await asyncio.shield(ending)

    def _live(self, session_id: str) -> Live | None:
        session, parts = self.registry.get(session_id), self._parts.get(session_id)
        if session is None or parts is None:
            return None
        health = {**parts.backend.health, "lag_s": parts.observed.lag_s}
        return Live(session, parts.backend.memory, parts.tally, health)

    def _gauges(self) -> Mapping[str, float | Mapping[str, float]]:
        registry = self.registry.statistics()
        sessions = [session.statistics() for session in self.registry.sessions()]
        readers: list[Any] = [reader for statistics in sessions for reader in statistics["subscriptions"]]  # type: ignore[attr-defined]
        engine = self.watch.state()
        permits = self.permits.statistics()
        solvers = self.solvers.statistics() if self.solvers else {}
        store = self.keeper.store.statistics() if self.keeper.store else {}
        return {
            "sessions": {state: float(registry[state]) for state in ("open", "opening", "closing")},
            "sessions_limit": float(registry["max_sessions"]),
            "sockets": float(len(self.sockets)),
            "draining": float(registry["draining"]),
            "mailbox_commands": float(sum(int(str(s["mailbox"])) for s in sessions)),
            "pending_input_bytes": float(sum(int(str(s["pending_input_bytes"])) for s in sessions)),
            "outbox_events": float(sum(reader["queued"] for reader in readers)),
            "outbox_dropped": float(sum(reader["dropped"] for reader in readers)),
            "lag_seconds": max((p.observed.lag_s for p in self._parts.values()), default=0.0),
            "frames_waiting": float(
                sum(p.backend.statistics()["frames"]["waiting"] for p in self._parts.values())
            ),
            "solver_in_flight": {name: float(s["in_flight"]) for name, s in solvers.items()},
            "solver_waiting": {name: float(s["waiting"]) for name, s in solvers.items()},
            "permits_waiting": {kind: float(n) for kind, n in permits["waiting"].items()},
            "permits_running": {kind: float(n) for kind, n in permits["running"].items()},
            "summary_gaps": float(
                sum(p.backend.statistics()["summaries"]["gaps"] for p in self._parts.values())
            ),
            **({"summarizer": self.summarizer.statistics()} if self.summarizer else {}),
            **({"store_writer": store["writer"], "store_open": float(store["open"])} if store else {}),
            **(self.records.gauges() if self.records else {}),
            "engine_ready": float(engine.ready),
            "engine_state": {state: float(state == engine.state) for state in ENGINE_STATES},
        }


async def open_core(settings: Settings, engine: Engine, *, durable: bool) -> Core:
    """:param durable: sessions live in the data folder; else only as long as the process
    :raises SetupError: the settings ask for what this engine cannot do
    """
    pack = engine.pack
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
    if settings.decision.constrain and not engine.facts.constrained:
        raise SetupError(
            "decision.constrain: the engine does not hold answers to a pattern (structured outputs); "
            "leave it off, or serve the model with an engine that has them",
            "constrain_refused",
            Exit.USAGE,
        )
    if settings.decision.threshold is not None:
        try:
            threshold_bias(engine_limits(pack, engine.facts, "").decision, settings.decision.threshold)
        except ThresholdRefused as refused:
            raise SetupError(f"decision.threshold: {refused}", "threshold_refused", Exit.USAGE) from refused
    scale = await asyncio.to_thread(
        learned_scale, settings.tokenizer, engine.facts, pack, settings.persona, settings.language
    )
    clock = SystemClock()
    keeper = await _durable(settings, clock) if durable else TransientKeeper(clock)
    return Core(settings, engine, keeper, scale)


async def _durable(settings: Settings, clock: SystemClock) -> DurableKeeper:
    kept, url = settings.store, settings.store.url
    keeping = Keeping(
        session_ms=None if kept.session_days is None else int(kept.session_days * DAY_MS),
        frame_ms=None if kept.frame_hours is None else int(kept.frame_hours * DAY_MS / 24),
    )
    try:
        return await DurableKeeper.open(
            settings.data, clock, url.get_secret_value() if url else None, keeping
        )
    except StoreError as error:
        where = "store.url" if url else f"the data folder {settings.data}"
        raise SetupError(f"can't use {where}: {error}", error.code, Exit.USAGE) from error
    except OSError as error:
        told = f"can't use the data folder {settings.data}: {error.strerror}; name another with --data"
        raise SetupError(told, "data_unusable", Exit.USAGE) from error


def make_app(core: Core) -> FastAPI:
    """The HTTP application. Its lifespan watches the engine and, at the end, drains and closes the core."""
    settings = core.settings
    secret = settings.engine_api_key
    texts = TextEngine(
        core.engine.url,
        api_key=secret.get_secret_value() if secret else None,
        deadlines=Deadlines(settings.timeouts.request_s, 2 * settings.timeouts.request_s),
    )
    fetcher = _fetcher(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if core.records is not None:
            await core.records.start()
        tasks = [asyncio.create_task(core.watch.run()), asyncio.create_task(_sweep(core))]
        try:
            yield
        finally:
            await core.aclose()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await texts.aclose()
            if fetcher is not None:
                await fetcher.aclose()

    return make_api(_context(core, texts, fetcher), lifespan)


async def _sweep(core: Core) -> None:
    while True:
        await core.keeper.sweep()
        await core.clock.sleep(SWEEP_S)


# --- small builders -----------------------------------------------------------------------------------


def _context(core: Core, texts: TextEngine, fetcher: ImageFetcher | None) -> ApiContext:
    settings, pack, records = core.settings, core.engine.pack, core.records
    assert records is not None, "a service keeps its sessions"
    limits = settings.limits
    return ApiContext(
        version=vigil_version(),
        model=core.engine.facts.model,
        created=core.clock.wall_ms() // 1000,
        context_tokens=core.engine.facts.context_tokens,
        period_ms=pack.period_ms,
        frames_per_append=2,
        defaults=core.defaults,
        capabilities=replay_capabilities(pack, limits.sessions),
        personas=frozenset(pack.personas),
        languages=frozenset(pack.languages),
        limits=ApiLimits(
            body_bytes=limits.body_bytes,
            frame_bytes=limits.frame_bytes,
            frames_per_request=limits.frames_per_request,
            query_chars=limits.query_chars,
            requests_per_session=limits.requests_per_session,
            body_s=settings.timeouts.body_s,
            request_s=settings.timeouts.request_s,
            event_streams=limits.event_streams,
        ),
        realtime=RealtimeLimits(
            first_message_s=settings.realtime.first_message_s,
            write_s=settings.realtime.write_s,
            last_events_s=settings.realtime.last_events_s,
        ),
        registry=core.registry,
        clock=core.clock,
        ids=core.ids,
        ticks=core.ticks,
        bodies=BodyBudget(limits.bodies_bytes),
        idempotency=Idempotency(limits.idempotency_keys, limits.idempotency_ttl_s, core.clock),
        metrics=core.metrics,
        text_engine=TextAccess(texts, core.keeper.salt),
        fetch_image=ImageAccess(fetcher) if fetcher is not None else None,
        access=Access(
            settings.auth.credentials(),
            settings.auth.origins,
            core.quotas,
            core.clock,
            FailedLogins(settings.auth.failed_logins_per_minute),
        ),
        engine_state=core.watch.state,
        memory_of=core.memory_of,
        sessions=records.directory,
        sources=core.sources,
        sockets=core.sockets,
    )


def _fetcher(settings: Settings) -> ImageFetcher | None:
    images = settings.images
    if not images.allow_hosts:
        return None
    return ImageFetcher(images.allow_hosts, limit=settings.limits.frame_bytes, timeout_s=images.fetch_s)
