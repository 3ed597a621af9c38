"""The composition root: from settings and checked engines to sessions. ``http_app`` serves them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridges.speech import Speaker
from memory.fold import Memory
from memory.store.errors import StoreError
from memory.store.leases import Process
from memory.store.store import DAY_MS, Keeping
from memory.tally import Tally
from orchestrator.api.context import MemoryView
from orchestrator.api.metrics import Metrics
from orchestrator.api.peer import OpenSockets
from orchestrator.api.quota import Meter
from orchestrator.api.readings import Reading, Readings
from orchestrator.api.ticks import TickStarts
from orchestrator.backends.ears import Ears
from orchestrator.backends.store_faults import told_of
from orchestrator.directory import Live
from orchestrator.engine_fit import session_limits
from orchestrator.engine_setup import Engine
from orchestrator.exits import Exit, SetupError
from orchestrator.folder_lock import FolderInUse
from orchestrator.keeping import ABANDONED, DurableKeeper, Keeper, Kept, ToldLog, TransientKeeper
from orchestrator.native_setup import NativeEngines
from orchestrator.native_track import NativeTrack
from orchestrator.observed import Observed
from orchestrator.owning import Owning
from orchestrator.records import Records, counted, store_readings
from orchestrator.replay_engines import Engines
from orchestrator.replay_track import check_settings, replay_track
from orchestrator.runtime.actor import Session
from orchestrator.runtime.clock import SystemClock, system_ids
from orchestrator.runtime.parts import SessionParts
from orchestrator.runtime.registry import Registry, RegistryLimits, SessionSpec
from orchestrator.session.backend import BackendOutput, Clock, Ids, SessionConfig, TickDone, TickStarted
from orchestrator.session_sums import SessionSums, summed
from orchestrator.settings import Settings
from orchestrator.source_rules import SourceRules
from orchestrator.sources import SourceLimits, Sources
from orchestrator.tracing import SessionTracing, TickTracing, tracing_of
from orchestrator.track import Built, Track
from orchestrator.version import vigil_version

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a live session is made of, besides its core."""

    built: Built
    observed: Observed
    tally: Tally
    trace: SessionTracing | None

    @property
    def lag_s(self) -> float | None:
        """Where the model decides tick by tick: how far that is behind what it was shown."""
        return self.observed.lag_s if isinstance(self.built.memory(), Memory) else None


class Core:
    """Sessions with one model. ``vigil serve`` and ``vigil replay`` both drive this.

    Open it with ``open_core``; ``aclose`` ends every session.
    """

    def __init__(
        self,
        settings: Settings,
        track: Track,
        keeper: Keeper,
        clock: Clock,
        ids: Ids = system_ids,
        tracing: TickTracing | None = None,
    ) -> None:
        self.settings = settings
        self.tracing = tracing
        self.track = track
        self.clock = clock
        self.ids = ids
        self.metrics = Metrics()
        self.quotas = settings.auth.quotas()
        self.ticks = TickStarts()
        self.sockets = OpenSockets()
        self.sources = Sources(
            SourceRules(frozenset(settings.sources.allow_hosts), settings.sources.folder),
            SourceLimits(settings.sources.per_tenant, settings.sources.total),
            track.offer.frames,
            track.offer.capabilities,
            self.clock,
            self.ids,
            lambda session_id: self.memory_of(session_id).media_time_ms,
            self._turn_after,
        )
        self.keeper = keeper
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
                runtime=track.runtime,
            ),
            former=keeper,
        )
        self.owning: Owning | None = None
        if keeper.store is not None and keeper.store.leases is not None:
            self.owning = Owning(
                keeper.store,
                keeper.store.leases,
                self.registry,
                self.clock,
                settings.store.heartbeat_s,
                lambda: self.defaults,
                track.beside,
            )
        self._parts: dict[str, _Parts] = {}
        self._endings: dict[str, asyncio.Task[None]] = {}
        self._abandoned: set[asyncio.Task[None]] = set()
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
        self._sums = SessionSums()
        self.metrics.add(self._readings, self._look)

    @property
    def defaults(self) -> SessionConfig:
        """Of a session that asks for nothing else."""
        return self.track.offer.defaults

    async def open_session(self, config: SessionConfig, name: str | None = None) -> Session:
        """A new session of this machine's own; without a ``name`` nobody can ask for it again."""
        return await self.registry.resolve("local", name, config)

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
        await asyncio.gather(*self._abandoned)
        await asyncio.gather(*self._endings.values())
        if self.records is not None:
            await self.records.aclose()
        await self.keeper.aclose()
        await self.track.aclose()
        if self.tracing is not None:
            await self.tracing.aclose()

    def memory_of(self, session_id: str) -> MemoryView:
        """The memory of a live session; an empty view of one that is gone."""
        parts = self._parts.get(session_id)
        if parts is None:
            return MemoryView()
        memory, observed = parts.built.memory(), parts.observed
        if not isinstance(memory, Memory):
            return MemoryView(frames=observed.frames, media_time_ms=observed.newest_ms)
        return MemoryView(
            long_term=tuple(passage.text for passage in memory.long_term),
            summaries=tuple(passage.text for passage in memory.summaries),
            query=memory.query,
            frames=observed.frames,
            media_time_ms=memory.now_ms if observed.frames or memory.now_ms else None,
            planned_tick=memory.planned_switch_tick,
        )

    def _turn_after(self, session_id: str, moment: float) -> float | None:
        parts = self._parts.get(session_id)
        return None if parts is None else parts.built.turn_after(moment)

    async def _build(self, spec: SessionSpec) -> SessionParts:
        """A session that comes to nothing leaves nothing, whatever it was refused for and whoever gave up."""
        keeping = asyncio.create_task(self.keeper.keep(spec, self.track.lasting))
        try:
            return await self._made(spec, await asyncio.shield(keeping))
        except StoreError as fault:
            _log.warning("a session could not be opened: %s", fault.message)
            await self._abandon(keeping)
            raise told_of(fault) from fault
        except BaseException:
            await self._abandon(keeping)
            raise

    async def _abandon(self, keeping: asyncio.Task[Kept]) -> None:
        """Let go of what was kept for a session that is not to be; it goes on if this is cancelled."""

        async def let_go() -> None:
            await asyncio.wait({keeping})
            if not keeping.cancelled() and keeping.exception() is None:
                kept = keeping.result()
                await self._ended(kept, ABANDONED)
                await self._released(kept.session_id)

        task = asyncio.create_task(let_go())
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)
        await asyncio.shield(task)

    async def _made(self, spec: SessionSpec, kept: Kept) -> SessionParts:
        session_id = kept.session_id
        if self.owning is not None:
            self.owning.took(session_id)
        tally = counted(kept, self.metrics)
        if self.records is not None:
            await self.records.opening(session_id, kept)
        trace = self.tracing.session(session_id, spec.tenant) if self.tracing is not None else None

        def on_output(output: BackendOutput) -> None:
            if isinstance(output, TickStarted):
                self.ticks.started(output)
            elif isinstance(output, TickDone) and (cost := _cost(output.record)):
                self.quotas.spend(spec.tenant, Meter.TICKS, self.clock.now(), cost)
            self.metrics.observe(output, spec.tenant)
            if trace is not None:
                trace.seen(output)

        built = await self.track.build(spec, kept)
        on_append = trace.appended if trace is not None else None
        observed = Observed(
            built.backend, on_output, partial(self._ended, kept), tally.counts["frames"], on_append
        )
        self._parts[session_id] = _Parts(built, observed, tally, trace)
        return SessionParts(observed, ToldLog(kept.log), kept.record, session_id)

    async def _ended(self, kept: Kept, reason: str) -> None:
        session_id = kept.session_id
        try:
            await kept.ended(reason)
        finally:
            self._endings[session_id] = asyncio.create_task(self._let_go(kept, reason))

    async def _let_go(self, kept: Kept, reason: str) -> None:
        """The session writes its last fact after its backend is closed; then nothing of it is needed."""
        session_id = kept.session_id
        parts, session = self._parts.pop(session_id, None), self.registry.get(session_id)
        try:
            if session is not None:
                await session.closed.wait()
            if parts is not None and parts.trace is not None:
                parts.trace.ended(reason)
            await kept.released()
        except StoreError as fault:
            _log.warning("session %s: its log could not be closed: %s", session_id, fault.message)
        finally:
            if self.owning is not None:
                self.owning.let_go(session_id)
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
        health = {**parts.built.health(), "lag_s": parts.lag_s}
        return Live(session, parts.built.memory(), parts.tally, health)

    async def _look(self) -> None:
        def add(sums: SessionSums, session_id: str) -> None:
            session, parts = self.registry.get(session_id), self._parts.get(session_id)
            if session is not None and parts is not None:
                sums.add(session.statistics(), parts.built.statistics(), parts.lag_s)

        self._sums = await summed(tuple(self._parts), add)

    def _readings(self) -> Readings:
        registry, sums = self.registry.statistics(), self._sums
        by_state = {state: float(registry[state]) for state in ("open", "opening", "closing")}
        return {
            "build_info": Reading("the version that runs", {vigil_version(): 1.0}, "version"),
            "sessions": Reading("sessions held here", by_state, "state"),
            "sessions_limit": Reading("sessions that may be open at a time", float(registry["max_sessions"])),
            "sessions_refused_total": Reading(
                "sessions that found no room, by what was used up",
                {**self.registry.refused, "engines": self.track.refused},
                "reason",
            ),
            "sockets": Reading("open WebSockets", float(len(self.sockets))),
            "draining": Reading("1 while this process ends and admits nobody", float(registry["draining"])),
            "mailbox_commands": Reading(
                "commands that sessions have not taken yet",
                float(sums.commands),
            ),
            "pending_input_bytes": Reading(
                "input that sessions hold and no model has yet",
                float(sums.input_bytes),
            ),
            "outbox_events": Reading("events that readers have not taken yet", float(sums.events)),
            "outbox_dropped_events_total": Reading(
                "events that readers were too slow for", float(self.registry.lost.events)
            ),
            "lag_seconds": Reading(
                "how far the session that is furthest behind is behind its newest frame",
                sums.lag_s,
            ),
            **(store_readings(self.keeper.store.statistics()) if self.keeper.store else {}),
            **(self.records.readings() if self.records else {}),
            **(self.owning.readings() if self.owning else {}),
            **(self.tracing.readings() if self.tracing else {}),
            **self.sources.readings(),
            **self.track.readings(sums.sizes),
        }


async def open_core(
    settings: Settings,
    engines: Engine | Engines | NativeEngines,
    *,
    durable: bool,
    speaker: Speaker | None = None,
    ears: Ears | None = None,
    clock: Clock | None = None,
) -> Core:
    """:param durable: sessions live in the data folder; else only as long as the process
    :param speaker: gives sessions a voice whose model only writes; ``ears``: one that only reads hears with
    :param clock: by which all of it lives; default: the system's
    :raises SetupError: the settings ask for what these engines cannot do
    """
    if isinstance(engines, Engine):
        engines = Engines.of(engines)
    if isinstance(engines, Engines):
        check_settings(settings, engines)
    clock = clock or SystemClock()
    keeper = await _durable(settings, clock) if durable else TransientKeeper(clock)
    if not isinstance(engines, Engines):
        return Core(settings, NativeTrack(settings, engines, clock, system_ids), keeper, clock)
    tracing = tracing_of(settings.tracing, clock)
    through = tracing.through if tracing is not None else None
    track = await replay_track(settings, engines, clock, system_ids, keeper.salt, speaker, ears, through)
    return Core(settings, track, keeper, clock, tracing=tracing)


async def _durable(settings: Settings, clock: Clock) -> DurableKeeper:
    kept, url = settings.store, settings.store.url
    keeping = Keeping(
        session_ms=None if kept.session_days is None else int(kept.session_days * DAY_MS),
        frame_ms=None if kept.frame_hours is None else int(kept.frame_hours * DAY_MS / 24),
    )
    try:
        return await DurableKeeper.open(
            settings.data, clock, url.get_secret_value() if url else None, keeping, _process(settings)
        )
    except StoreError as error:
        where = "store.url" if url else f"the data folder {settings.data}"
        raise SetupError(f"can't use {where}: {error}", error.code, Exit.USAGE) from error
    except FolderInUse as used:
        raise SetupError(f"{used}; name another with --data", "data_in_use", Exit.USAGE) from used
    except OSError as error:
        told = f"can't use the data folder {settings.data}: {error.strerror}; name another with --data"
        raise SetupError(told, "data_unusable", Exit.USAGE) from error


def _process(settings: Settings) -> Process | None:
    """This process, if it is one of several."""
    if settings.advertise is None:
        return None
    return Process(system_ids("process-"), settings.advertise, settings.store.life_s)


def _cost(record: Mapping[str, Any]) -> float:
    """What a decision counts for: one that the engine was asked for, or a second of a stream."""
    if (unit_ms := record.get("unit_ms")) is not None:
        return float(unit_ms) / 1000
    return float(record.get("prompt_tokens") is not None)
