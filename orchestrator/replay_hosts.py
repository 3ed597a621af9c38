"""The replay track's engines at work: each with its client, permits, watch and figures, in one fleet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bridges.engine import Deadlines, EngineError
from bridges.engine_metrics import EngineLoad, EngineMetrics
from bridges.text_engine import TextEngine
from bridges.timing import Durations
from memory.budget import LimitsTooSmall, derive
from memory.plan import Limits
from memory.tokens import estimate
from orchestrator.api.context import EngineState
from orchestrator.api.readings import ByTwo, Reading, Readings
from orchestrator.checks import Checks
from orchestrator.engine_address import twin
from orchestrator.engine_fit import BACKGROUND, LIVE_TICKS, TEXTS, chat_engine, image_bytes, token_route
from orchestrator.engine_setup import Engine, token_facts_again
from orchestrator.engine_watch import EngineWatch
from orchestrator.engines.fleet import Fleet, Host
from orchestrator.engines.placement import engine_name, ranked
from orchestrator.engines.room import Caches, Need, Priority, Room
from orchestrator.replay_engines import Engines, covers
from orchestrator.runtime.permits import KINDS, Permits
from orchestrator.session.backend import Clock
from orchestrator.settings import Settings
from orchestrator.token_watch import TokenWatch
from prompts.pack import Pack

_log = logging.getLogger(__name__)

CHECKED, CHECKS_WAITING = 2, 4
"""Engines that are checked at a time to be added, and that wait for it."""
_TURN_MARKS = 12
"""Tokens of a turn besides its picture."""
_STATES = ("ready", "slow", "starting", "wedged", "dead")
"""Best first."""


@dataclass(slots=True)
class Served:
    """One engine and everything of it that lives as long as it is ours. ``waits``: for permits, by kind."""

    engine: Engine
    host: Host
    watch: EngineWatch
    tokens: TokenWatch
    texts: TextEngine
    metrics: EngineMetrics
    waits: Mapping[str, Durations]
    load: EngineLoad = field(default_factory=EngineLoad)
    tasks: tuple[asyncio.Task[None], ...] = ()

    async def aclose(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.host.chat.aclose()
        await self.texts.aclose()
        await self.metrics.aclose()


class Hosts:
    """:param facts: what holds for all engines; an engine that comes later must keep to it
    :param limits: of a session's windows
    :param classes: of sessions that there may be
    """

    def __init__(
        self,
        settings: Settings,
        engines: Engines,
        limits: Limits,
        clock: Clock,
        classes: frozenset[Priority] = frozenset({Priority.NORMAL}),
    ) -> None:
        self._settings = settings
        self._facts = engines.facts
        self._clock = clock
        self._classes = classes
        self._need = session_need(settings, engines.pack, limits)
        self._watching = False
        self._changing = asyncio.Lock()
        self.checks = Checks(CHECKED, CHECKS_WAITING)
        """Of engines that are to be added."""
        self._served = {engine_name(engine.url): self._make(engine) for engine in engines.each}
        self.fleet = Fleet([served.host for served in self._served.values()], clock)

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    async def watch(self) -> None:
        """Look after all engines, those to come too, until cancelled."""
        self._watching = True
        for served in self._served.values():
            self._look_after(served)
        await asyncio.Event().wait()

    def state(self) -> EngineState:
        """As good as the best engine."""
        states = {name: served.watch.state() for name, served in self._served.items()}
        name = min(states, key=lambda each: _STATES.index(states[each].state))
        best = states[name]
        if len(states) == 1:
            return best
        ready = sum(state.ready for state in states.values())
        return EngineState(best.ready, best.state, f"{ready} of {len(states)} engines answer; {best.reason}")

    def texts(self, tenant: str) -> TextEngine:
        """Plain requests of one tenant go to one engine, as long as that answers."""
        order = [self._served[name] for name in ranked(tenant, self._served)]
        return next((served.texts for served in order if served.watch.state().ready), order[0].texts)

    def about(self) -> list[dict[str, Any]]:
        """Every engine as plain data."""
        told = []
        figures = self.fleet.statistics()
        for name, served in self._served.items():
            state, now = served.watch.state(), figures[name]
            told.append(
                {
                    "name": name,
                    "url": served.engine.url,
                    "state": state.state,
                    "reason": state.reason,
                    "sessions": int(now["sessions"]),
                    "limit": served.host.room.most,
                    "cold": int(now["cold_reading"]),
                    "draining": served.host.draining,
                    "late": round(now["late"], 3),
                    "reuse": round(now["reuse"], 4),
                }
            )
        return told

    async def add(self, engine: Engine) -> str:
        """Sessions may come to it from now on; its name.

        :raises ValueError: it is there already, maybe under another name
        :raises SetupError: it can't take the other engines' sessions
        """
        covers(self._facts, engine.url, engine.facts)
        name = engine_name(engine.url)
        async with self._changing:
            known = [served.engine.url for served in self._served.values()]
            if (same := await self.checks.run(lambda: twin(engine.url, known))) is not None:
                raise ValueError(f"there is an engine {name} already: {same}")
            served = self._make(engine)
            self.fleet.add(served.host)
            self._served[name] = served
            if self._watching:
                self._look_after(served)
        return name

    async def remove(self, name: str) -> None:
        """See ``Fleet.remove``. An engine that this process started is stopped by it at its end, not here."""
        async with self._changing:
            self.fleet.remove(name)
            served = self._served.pop(name)
        await served.aclose()

    async def aclose(self) -> None:
        await asyncio.gather(*(served.aclose() for served in self._served.values()))

    def readings(self) -> Readings:
        """By engine."""
        figures, loads = self.fleet.statistics(), {name: s.load for name, s in self._served.items()}

        def of(key: str, text: str) -> Reading:
            return Reading(text, {name: each[key] for name, each in figures.items()}, "engine")

        def told(read: Callable[[EngineLoad], float | None], text: str) -> Reading:
            known = {name: read(load) for name, load in loads.items()}
            return Reading(
                text, {name: float(value) for name, value in known.items() if value is not None}, "engine"
            )

        return {
            "engine_up": of("up", "1 while the engine answers"),
            "engine_draining": of("draining", "1 while the engine takes no new sessions"),
            "engine_sessions": of("sessions", "sessions that are at home on the engine, or prepare to be"),
            "engine_sessions_limit": Reading(
                "sessions that the engine's caches carry, as far as it tells",
                {name: each["most"] for name, each in figures.items() if each["most"]},
                "engine",
            ),
            "engine_lateness_periods": of(
                "late", "p95 of the engine's answers of late, in the model's periods"
            ),
            "engine_reuse_ratio": of("reuse", "share of the tokens promised of late that the cache had"),
            "engine_cold_sessions": of("cold_reading", "sessions that the engine reads in anew"),
            "engine_kv_usage_ratio": told(
                lambda load: load.kv_usage, "share of the engine's KV cache in use"
            ),
            "engine_kv_tokens": told(lambda load: load.kv_tokens, "tokens that the engine's KV cache holds"),
            "engine_requests_running": told(lambda load: load.running, "requests in the engine's batch"),
            "engine_requests_waiting": told(
                lambda load: load.waiting, "requests that wait for the engine's batch"
            ),
            "engine_preemptions_total": told(
                lambda load: load.preemptions, "requests thrown out of the engine's batch for lack of KV"
            ),
            "engine_ticks_total": Reading(
                "live ticks: answered, of them late or standing for others that had no turn, and refused",
                ByTwo(
                    {
                        (name, of): each[f"ticks_{of}"]
                        for name, each in figures.items()
                        for of in ("answered", "late", "coalesced", "refused")
                    },
                    ("engine", "outcome"),
                ),
            ),
            "engine_wait_seconds": Reading(
                "how long work waited for its turn at the engine",
                ByTwo(
                    {
                        (name, kind): took
                        for name, s in self._served.items()
                        for kind, took in s.waits.items()
                    },
                    ("engine", "kind"),
                ),
            ),
            "engine_longest_wait_seconds": Reading(
                "how long whoever waits longest for the engine has done so",
                ByTwo(
                    {
                        (name, kind): seconds
                        for name, s in self._served.items()
                        for kind, seconds in s.host.permits.longest_wait_s().items()
                    },
                    ("engine", "kind"),
                ),
            ),
        }

    def permits(self, key: str) -> dict[str, float]:
        """``waiting`` or ``running``, by kind, over all engines."""
        sums: dict[str, float] = {}
        for served in self._served.values():
            for kind, number in served.host.permits.statistics()[key].items():
                sums[kind] = sums.get(kind, 0.0) + number
        return sums

    def _make(self, engine: Engine) -> Served:
        settings, facts = self._settings, engine.facts
        chat = chat_engine(settings, engine)
        secret, longest = settings.engine_api_key, settings.timeouts.request_s
        key = secret.get_secret_value() if secret else None
        waits = {kind: Durations() for kind in KINDS}
        room = Room(Caches(self._need, facts.kv_tokens, facts.image_cache_bytes), self._classes)
        permits = Permits(
            *(LIVE_TICKS, BACKGROUND, TEXTS),
            now=self._clock.now,
            waited=lambda kind, took: waits[kind].add(took),
        )
        host = Host(engine_name(engine.url), chat, permits, room, self._clock)
        watch = EngineWatch(
            chat, self._clock, period_s=settings.timeouts.watch_s, ping_s=settings.timeouts.ping_s
        )
        tokens = TokenWatch(
            chat,
            lambda: token_route(token_facts_again(settings, engine)),
            self._clock,
            period_s=settings.timeouts.watch_s,
        )
        texts = TextEngine(engine.url, api_key=key, deadlines=Deadlines(longest, 2 * longest))
        return Served(engine, host, watch, tokens, texts, EngineMetrics(engine.url, api_key=key), waits)

    def _look_after(self, served: Served) -> None:
        served.tasks = (
            asyncio.create_task(served.watch.run()),
            asyncio.create_task(served.tokens.run()),
            asyncio.create_task(self._read_load(served)),
        )

    async def _read_load(self, served: Served) -> None:
        """The engine's own figures; one that tells none is left alone for a while."""
        while True:
            try:
                served.load = await served.metrics.load()
                if served.load.kv_tokens:
                    served.host.room.holds(served.load.kv_tokens)
            except EngineError as problem:
                served.load = EngineLoad()
                _log.debug("engine %s tells no figures: %s", served.host.name, problem.message)
            await self._clock.sleep(self._settings.timeouts.watch_s)


def session_need(settings: Settings, pack: Pack, limits: Limits) -> Need | None:
    """What a session takes of an engine, as far as pack and limits tell; ``None``: they hold none."""
    pixels = settings.limits.frame_pixels or pack.pixels.max
    turn = round(pack.tokens_per_pixel * pixels) + _TURN_MARKS
    system = estimate(pack.persona(settings.persona, settings.language))
    try:
        budget = derive(
            limits, system_tokens=system, turn_tokens=turn, summary_target=pack.summary_span_tokens
        )
    except (LimitsTooSmall, KeyError):
        return None
    # A head grows from nothing to all that its history may hold; on average half of that is there.
    head = system + budget.query_tokens // 4 + budget.qa_tokens // 2 + budget.history_tokens // 2
    return Need(
        head=head,
        full_head=system + budget.query_tokens + budget.qa_tokens + budget.history_tokens,
        full_after=budget.chunk_frames * limits.rollup_chunks * (budget.long_term_max + 2),
        turn=turn,
        least_images=budget.overlap_frames,
        most_images=budget.overlap_frames + budget.chunk_frames,
        image_bytes=image_bytes(pixels),
    )
