"""From one engine session to the next: carries out what ``Rollover`` wants, and reports how it ended.

It serves two ends alike: a context that fills, and an engine session that was lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from bridges.duplex_client.link import (
    EngineEvent,
    EngineUnit,
    LinkEnded,
    LinkError,
    Listening,
    ResponseCreated,
    ResponseDone,
)
from orchestrator.backends.native.live import Live
from orchestrator.backends.native.pairing import Pairing
from orchestrator.backends.native.rollover import (
    CloseFresh,
    CloseOld,
    EndClearly,
    OpenFresh,
    Switch,
    Want,
    Warm,
)
from orchestrator.backends.native.rules import body, first_item
from orchestrator.backends.waiting import in_time
from orchestrator.session.backend import Notice, SessionConfig
from orchestrator.wire.errors import VigilError

WARM_S = 3.0
"""For the first word of a fresh session; then it counts as warm all the same."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Fresh:
    pairing: Pairing
    seed: str
    said: asyncio.Event = field(default_factory=asyncio.Event)
    responses: list[str] = field(default_factory=list)


class Succession:
    """:param config: the session's, as it is now"""

    def __init__(self, live: Live, config: Callable[[], SessionConfig]) -> None:
        self._live = live
        self._config = config
        self._fresh: _Fresh | None = None
        self._old: Pairing | None = None
        self._lost = False
        self._tasks: set[asyncio.Task[None]] = set()
        live.on_lost = self._on_lost
        live.on_other = self._on_other

    async def step(self, now: float) -> None:
        """Carry out what is wanted now."""
        live = self._live
        while not live.closing and (wants := live.rollover.wants(now)):
            for want in wants:
                await self._carry_out(want, now)
            now = live.tools.clock.now()

    async def stop(self) -> None:
        """The session ends: nothing fresh is needed."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._fresh = None
        self._live.tools.pairings.leave_all("not_needed")

    def read(self, pairing: Pairing) -> None:
        """Take the events of an engine session in a task of its own."""
        self._spawn(self._live.guard(lambda: self._live.read(pairing)))

    # --- wants ----------------------------------------------------------------------------------------

    async def _carry_out(self, want: Want, now: float) -> None:
        live = self._live
        match want:
            case OpenFresh(generation=generation, seed=seed):
                self._spawn(live.guard(lambda: self._open(generation, seed)))
            case Warm(generation=generation):
                self._spawn(live.guard(lambda: self._warm(generation)))
            case CloseFresh(generation=generation, reason=reason):
                fresh, self._fresh = self._fresh, None
                if fresh is None:
                    live.rollover.fresh_closed(generation)
                else:
                    live.tools.pairings.leave(fresh.pairing, reason, lambda: self._closed_fresh(generation))
            case Switch():
                await self._switch(want)
            case CloseOld(generation=generation, reason=reason, end_response=ending):
                await self._close_old(generation, reason, ending, now)
            case EndClearly(code=code, message=message):
                await live.give_up(code, message)

    async def _open(self, generation: int, seed: str) -> None:
        live, rollover, clock = self._live, self._live.rollover, self._live.tools.clock
        try:
            profile = live.tools.profile
            opening, item = body(profile, self._config(), seed), first_item(profile, seed)
            pairing = await live.tools.pairings.open(opening, generation, item=item, rollover=True)
        except VigilError as error:
            _log.warning("no fresh engine session: %s", error)
            rollover.fresh_failed(clock.now(), generation, error.retry_after_s)
        else:
            self._fresh = _Fresh(pairing, seed)
            rollover.fresh_opened(generation)
            self.read(pairing)
        live.minding.set()

    async def _warm(self, generation: int) -> None:
        """One silent unit makes it read its seed. A model that answers turns gets none: it would wait."""
        live, fresh = self._live, self._fresh
        rollover, tools = live.rollover, live.tools
        if fresh is None or fresh.pairing.generation != generation:
            return
        fed_ms = 0
        if tools.auto:
            audio = tools.profile.audio
            width = 2 if audio.input_format == "pcm16" else 4
            silence = EngineUnit(
                bytes(width * audio.unit_samples),
                (),
                audio.input_format,
                audio.input_rate_hz,
                audio.unit_ms,
                audio.unit_ms,
                False,
            )
            try:
                await fresh.pairing.link.append(silence)
            except LinkError:
                return  # its last event says so
            fed_ms = audio.unit_ms
            await in_time(fresh.said.wait(), tools.clock.sleep(WARM_S))
        rollover.fresh_warm(generation, fed_ms)
        live.minding.set()

    async def _switch(self, want: Switch) -> None:
        live, fresh = self._live, self._fresh
        if fresh is None or fresh.pairing.generation != want.generation:
            return
        self._fresh = None
        old = live.pairing
        if old is not None:
            live.intake.leave()
        if want.end_response is not None:
            await live.out.end_open(want.end_response, None)
        lost, self._lost = self._lost, False
        live.tools.memory.engine(
            want.generation,
            "engine_lost" if lost else "rolled_over",
            fresh.pairing.seat.engine,
            fresh.seed,
            want.gap_ms,
        )
        await live.take_over(fresh.pairing, tuple(fresh.responses))
        self._old = old
        live.rollover.switched(want.generation)
        if lost:
            message = "the engine session was lost; the conversation goes on from memory in a fresh one"
            await live.out.put(Notice("engine_recovered", message))
        else:
            message = "the conversation goes on from memory in a fresh engine session"
            if want.gap_ms:
                message += f"; nobody listened for {want.gap_ms} ms"
            await live.out.put(Notice("rolled_over", message))

    async def _close_old(self, generation: int, reason: str, ending: str | None, now: float) -> None:
        """Leave an engine session: the former one, or the current one to make room."""
        live = self._live
        if reason == "make_room":
            leaving, live.pairing = live.pairing, None
            live.linked.clear()
            live.intake.leave()
            if ending is not None:
                await live.out.end_open(ending, None)
        else:
            leaving, self._old = self._old, None
        if leaving is None:
            live.rollover.old_closed(now, generation)
        else:
            live.tools.pairings.leave(leaving, reason, lambda: self._closed_old(generation))

    # --- reports --------------------------------------------------------------------------------------

    def _closed_old(self, generation: int) -> None:
        self._live.rollover.old_closed(self._live.tools.clock.now(), generation)
        self._live.minding.set()

    def _closed_fresh(self, generation: int) -> None:
        self._live.rollover.fresh_closed(generation)
        self._live.minding.set()

    async def _on_lost(self) -> None:
        self._lost = True

    async def _on_other(self, pairing: Pairing, event: EngineEvent) -> None:
        """An event of a session that is not the current one: nothing of it is told."""
        fresh = self._fresh
        if fresh is None or fresh.pairing is not pairing:
            return
        match event:
            case LinkEnded(confirmed=confirmed, reason=reason):
                self._fresh = None
                if confirmed:
                    self._live.tools.pairings.ended(pairing)
                else:
                    self._live.tools.pairings.lose(pairing, reason)
                now = self._live.tools.clock.now()
                self._live.rollover.fresh_failed(now, pairing.generation)
            case ResponseCreated(response_id=response_id):
                fresh.responses.append(response_id)
                fresh.said.set()
                self._spawn(self._hush(pairing, response_id))
            case Listening() | ResponseDone():
                fresh.said.set()
            case _:
                pass

    async def _hush(self, pairing: Pairing, response_id: str) -> None:
        """It speaks to a silence that only served to warm it."""
        try:
            await pairing.link.cancel(response_id)
        except LinkError as error:
            _log.warning("an engine did not take a cancel: %s", error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
