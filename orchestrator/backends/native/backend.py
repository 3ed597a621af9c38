"""``NativeBackend``: a session paired with one session of a full-duplex engine, as a ``SessionBackend``.

The engine keeps the model's state, the session keeps everything that lasts. Engine sessions come and go
behind one session: what was said is remembered as text, and a fresh engine session is told of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Sequence

from bridges.duplex_client.link import EngineLink, LinkError, Links
from memory.facts import AnyFact, DelegationDone
from memory.spoken import SpokenMemory
from memory.store.errors import StoreError
from orchestrator.backends.native import rules
from orchestrator.backends.native.advertised import native_capabilities, takes_frames_alone
from orchestrator.backends.native.delegating import Delegating
from orchestrator.backends.native.faults import GONE, told_of
from orchestrator.backends.native.horizon import slides
from orchestrator.backends.native.live import Live, LiveTools
from orchestrator.backends.native.minder import Minder
from orchestrator.backends.native.notes import Notes
from orchestrator.backends.native.options import NativeOptions
from orchestrator.backends.native.pairing import Pairing, Pairings
from orchestrator.backends.native.pictures import Pictures
from orchestrator.backends.native.remembered import Remembered
from orchestrator.backends.native.rollover import Rollover
from orchestrator.backends.native.seat import Seats
from orchestrator.backends.native.succession import Succession
from orchestrator.backends.solvers import Solver
from orchestrator.backends.stream import OutputStream
from orchestrator.backends.summaries import Summarizer
from orchestrator.session.backend import (
    BackendOutput,
    Capabilities,
    Clock,
    Closed,
    Delegation,
    FactLog,
    Ids,
    SessionConfig,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import (
    ConversationFact,
    Heard,
    QueryAsked,
    QueryCleared,
    ResponseOptions,
    ToolResult,
)
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import Conflict, EngineUnavailable, VigilError
from prompts.native import NativeProfile

KNOWN = 512
"""Operations remembered, so that none is taken twice."""
_log = logging.getLogger(__name__)


class NativeBackend:
    """One session. See ``SessionBackend`` for the methods.

    :param seats: where it takes its place on an engine; ``links``: how it talks to one
    :param history: facts that the session's log already holds, when it is resumed
    :param summarizer: writes summaries of the talk, and of the pictures where it takes any; without one those
        of the talk are cut from it, and pictures are only counted
    :param solver: answers what a model that calls tools hands over
    """

    def __init__(
        self,
        session_id: str,
        profile: NativeProfile,
        seats: Seats,
        links: Links,
        log: FactLog,
        clock: Clock,
        ids: Ids,
        options: NativeOptions,
        *,
        history: Sequence[AnyFact] = (),
        summarizer: Summarizer | None = None,
        solver: Solver | None = None,
    ) -> None:
        self._profile = profile
        self._clock = clock
        self._ids = ids
        self._options = options
        self._history = history
        self._stream = OutputStream(options.outputs)
        self._pairings = Pairings(session_id, profile, seats, links)
        self._began = clock.now()
        self._base_ms = 0
        self._memory = Remembered(log, profile, self._now_ms, summarizer=summarizer is not None)
        self._notes: Notes | None = None
        self._pictures: Pictures | None = None
        if summarizer is not None:
            self._notes = Notes(self._memory.memory, self._memory.write, summarizer, clock)
            self._memory.on_fact = self._notes.wake
            if summarizer.images:
                self._pictures = Pictures(self._memory.memory, self._memory.write, summarizer, clock, ids)
        self._delegating: Delegating | None = None
        if solver is not None and profile.tools:
            self._delegating = Delegating(
                solver, self._memory, clock, ids, self._stream.put, options.delegating
            )
        self._memory.on_frames = self._saw
        self._config = SessionConfig(model="")
        self._capabilities = native_capabilities(profile, options.max_sessions)
        self._live: Live | None = None
        self._succession: Succession | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._known: dict[str, None] = {}
        self._closing = False
        self._leaving: Pairing | None = None
        self._tried = False

    # --- SessionBackend -----------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def open(self, config: SessionConfig) -> None:
        profile, memory = self._profile, self._memory
        rules.check(profile, config)
        memory.restore(self._history)
        self._base_ms, self._history = memory.memory.now_ms, ()
        memory.persona = config.instructions
        seed = memory.seed() if memory.begun and not memory.memory.empty else None
        rollover = Rollover(
            profile.horizon,
            memory,
            unit_ms=profile.audio.unit_ms,
            spare=(self._options.places or profile.max_sessions) > 1,
            unlimited=slides({**profile.extra_body, **config.extra_body}.get("sliding_window_mode")),
            seed=seed or config.instructions,
        )
        opening = rules.body(profile, self._equipped(config), seed)
        item = rules.first_item(profile, seed)
        pairing = await self._pairings.open(opening, 0, item=item)
        try:
            memory.open(config)
            memory.engine(0, "opened", pairing.seat.engine, seed, 0)
        except BaseException:
            self._pairings.leave(pairing, "open_abandoned")
            raise
        self._config = config
        self._start(pairing, rollover)
        await self._write_off()

    def _start(self, pairing: Pairing, rollover: Rollover) -> None:
        profile, config, memory = self._profile, self._config, self._memory
        told = pairing.opened.capabilities
        auto = rules.auto(profile, config)
        engine_commits = not auto and config.turn_detection is not None
        self._capabilities = native_capabilities(
            profile, self._options.max_sessions, told, engine_commits=engine_commits
        )
        tools = LiveTools(
            profile,
            self._options,
            self._clock,
            self._stream,
            self._pairings,
            memory,
            self._ids,
            auto,
            lambda: self._config.turn_detection is not None,
            engine_commits,
            takes_frames_alone(profile, told),
            self._delegating,
        )
        live = self._live = Live(tools, pairing, rollover)
        succession = self._succession = Succession(live, lambda: self._equipped(self._config))
        succession.read(pairing)
        minder = Minder(live, succession.step)
        work = [live.intake.run, live.out.flush_late, live.out.tell_gathered, minder.run]
        work += [each.run for each in (self._notes, self._pictures) if each is not None]
        self._tasks = [asyncio.create_task(live.guard(run)) for run in work]

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        live = self._require_open()
        if operation_id in self._known:
            return
        live.responses.learn(fence)
        await live.intake.append(unit, operation_id)
        self._known[operation_id] = None
        if len(self._known) > KNOWN:
            self._known.pop(next(iter(self._known)))

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        live = self._require_open()
        match fact:
            case QueryAsked(text=text, item_id=item_id):
                live.responses.learn(fence)
                content = [{"type": "input_text", "text": text}]
                await self._command(
                    (await self._link(live)).add_item({"type": "message", "role": "user", "content": content})
                )
                self._memory.asked(item_id, text)
            case QueryCleared(item_id=item_id):
                if item_id is not None:
                    self._memory.deleted(item_id)
            case Heard(response_id=response_id, text=text, complete=complete):
                # While it is played, nothing that was said so far went unheard.
                self._memory.heard(response_id, text, complete=complete or not fact.settled)
                if fact.settled:
                    live.rollover.heard()
                    live.minding.set()
            case ToolResult(call_id=call_id, output=output):
                engine_call = live.tool_calls.engine_id(call_id, live.responses.generation)
                result = {"type": "function_call_output", "call_id": engine_call, "output": output}
                await self._command((await self._link(live)).add_item(result))
            case ResponseOptions():
                pass  # told only to backends that have them

    async def commit(self, fence: Fence, create_response: bool) -> None:
        live = self._require_open()
        live.responses.learn(fence)
        if live.detected:
            live.detected = False
            if create_response and not live.responses.adopt(fence):
                live.ask(fence).spoken = True
            return
        live.intake.close_turn()
        forward = not live.tools.auto or self._profile.forward_commit
        bound = live.ask(fence) if create_response else None
        if not forward:
            return
        try:
            await live.intake.drained()
            link = await self._link(live)
            if bound is not None:
                bound.forwarded = True
            if live.unsealed:
                live.unsealed = False
                if bound is not None:
                    bound.sealed = False
                await self._command(link.commit(create_response=create_response))
            elif bound is not None:
                bound.spoken = live.tools.engine_commits
                await self._command(link.create_response({}))
        except VigilError:
            if bound is not None:
                live.responses.end(bound)
            raise
        except asyncio.CancelledError:
            # The engine may have it all the same; then what it begins is of the old epoch.
            if bound is not None and not bound.forwarded:
                live.responses.end(bound)
            raise

    async def clear(self) -> None:
        live = self._require_open()
        await live.clear()
        if live.pairing is not None:
            await self._command(live.pairing.link.clear(), gone_is_fine=True)

    async def update(self, config: SessionConfig) -> int | None:
        live = self._require_open()
        rules.check_update(self._profile, self._config, config, heard=live.heard_anything)
        await live.intake.drained()
        changed = rules.changes(self._profile, self._equipped(self._config), self._equipped(config))
        if changed:
            await self._command((await self._link(live)).update(changed))
        self._config = config
        self._memory.persona = config.instructions
        return None

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        live = self._require_open()
        if next_fence.epoch <= cancelled.epoch or next_fence <= live.responses.fence:
            raise Conflict(
                f"a cancel of {cancelled} needs a newer fence than {next_fence}; nothing was cancelled",
                code="stale_fence",
            )
        await live.out.cancel(next_fence)

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        live = self._require_open()
        live.note_heard(response_id, fence, committed_ms)
        engine_id = live.responses.engine_id(fence)
        if engine_id is not None and live.pairing is not None:
            told = live.pairing.link.playback(engine_id, played_ms, committed_ms)
            await self._command(told, gone_is_fine=True)

    async def close(self, reason: str) -> None:
        """An engine that does not confirm is asked once more, by the next call; then its place says when
        it must have let go."""
        first, self._closing = not self._closing, True
        try:
            if first and self._live is not None:
                await self._stop(self._live)
            await self._leave(reason)
            if self._succession is not None:
                await self._succession.stop()
        finally:
            await self._stream.end(Closed(reason))

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        async for output in self._stream.read():
            yield output

    @property
    def memory(self) -> SpokenMemory:
        """What the session remembers, to look at; readable once the backend is open."""
        return self._memory.memory

    def statistics(self) -> dict[str, dict[str, int]]:
        """Sizes of everything that waits, all of it bounded."""
        live, pictures = self._live, self._pictures
        return {
            "outputs": self._stream.statistics(),
            **(live.statistics() if live is not None else {}),
            **({"pictures": pictures.statistics()} if pictures is not None else {}),
            **({"delegations": self._delegating.statistics()} if self._delegating is not None else {}),
        }

    async def _stop(self, live: Live) -> None:
        """Nothing is written any more and nothing is told; the log is complete."""
        live.closing = True
        self._leaving, live.pairing = live.pairing, None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            if self._delegating is not None:
                await self._delegating.cancel()
            live.end()
            await self._memory.flush()
        except StoreError:
            _log.exception("the end of a session's log could not be written")

    def _equipped(self, config: SessionConfig) -> SessionConfig:
        """With the tools that the model is given besides."""
        return config if self._delegating is None else self._delegating.among(config)

    def _saw(self, frames: Sequence[bytes], media_time_ms: int) -> None:
        for each in (self._pictures, self._delegating):
            if each is not None:
                each.saw(frames, media_time_ms)

    async def _write_off(self) -> None:
        """Questions that an earlier process handed over have no answer."""
        for delegation_id, question in self._memory.unanswered.items():
            self._memory.write(
                DelegationDone(
                    delegation_id=delegation_id,
                    question=question,
                    text="restarted",
                    ok=False,
                    media_time_ms=self._memory.now_ms,
                )
            )
            told = Delegation(Fence(), delegation_id, "failed", question, error="restarted")
            await self._stream.put(told)
        self._memory.unanswered.clear()

    # --- parts of the calls --------------------------------------------------------------------------------

    async def _leave(self, reason: str) -> None:
        leaving = self._leaving
        if leaving is None:
            return
        if await self._pairings.close(leaving, reason):
            self._leaving = None
            return
        if not self._tried:
            self._tried = True
            raise EngineUnavailable(
                "the engine did not say that its session is gone", code="timeout", retry_after_s=1.0
            )
        self._leaving = None
        self._pairings.lose(leaving, reason)

    async def _link(self, live: Live) -> EngineLink:
        """The link, once there is one."""
        while live.pairing is None:
            await live.linked.wait()
        return live.pairing.link

    def _now_ms(self) -> int:
        return self._base_ms + round((self._clock.now() - self._began) * 1000)

    def _require_open(self) -> Live:
        if self._closing or self._live is None:
            raise Conflict("the session is closed", code="session_closed")
        return self._live

    async def _command(self, work: Awaitable[object], *, gone_is_fine: bool = False) -> None:
        """A command to the engine; what it refuses is told under the contract's names."""
        try:
            await work
        except LinkError as error:
            if not (gone_is_fine and error.code in GONE):
                raise told_of(error) from error
