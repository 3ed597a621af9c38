"""``ReplayBackend``: a vision model behind a stateless engine, as a ``SessionBackend``.

The client's calls become facts; one loop turns what waits into ticks, at most one in flight; two background
lanes write summaries and keep windows warm. Everything that lasts is in the log of facts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from bridges.engine import ChatEngine
from memory.audit import PrefixAudit
from memory.facts import (
    AnyFact,
    FrameDropped,
    FrameSeen,
    HeadFrozen,
    TickFailed,
    WindowSwitched,
)
from memory.fold import Memory
from memory.store.base import FrameStore
from memory.store.errors import StoreError
from orchestrator.backends.replay.background import Background, BackgroundTools
from orchestrator.backends.replay.conversation import Conversation
from orchestrator.backends.replay.decide import DecisionPolicy, threshold_bias
from orchestrator.backends.replay.delegation import Delegations
from orchestrator.backends.replay.health import EngineHealth
from orchestrator.backends.replay.intake import FrameCheck, Intake
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.loop import LoopTools, TickLoop
from orchestrator.backends.replay.operations import Operations
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.backends.replay.place import Place, Settled
from orchestrator.backends.replay.request import Asked
from orchestrator.backends.replay.settings import SessionSettings
from orchestrator.backends.replay.suspects import Suspects
from orchestrator.backends.replay.tags import Grammar
from orchestrator.backends.replay.tick import TickRunner, TickTools
from orchestrator.backends.solvers import Solver
from orchestrator.backends.store_faults import pictures_of, told_of
from orchestrator.backends.stream import OutputStream
from orchestrator.backends.summaries import Summarizer
from orchestrator.session.backend import (
    BackendOutput,
    Capabilities,
    Clock,
    Closed,
    Delegation,
    FactLog,
    Failed,
    Ids,
    SessionConfig,
    TickPermits,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import (
    ConversationFact,
    Heard,
    QueryAsked,
    QueryCleared,
    ResponseOptions,
)
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import Conflict, ServerFault, VigilError
from prompts.pack import Pack

_log = logging.getLogger(__name__)


def replay_capabilities(pack: Pack, max_sessions: int) -> Capabilities:
    """What every session of this pack offers. Without a speech bridge it neither hears nor speaks."""
    return Capabilities(
        chunk_period_ms=pack.period_ms,
        optional_input_modalities=("video",),
        supports_barge_in=True,
        response_options=True,
        max_sessions=max_sessions,
    )


class ReplayBackend:
    """One session. See ``SessionBackend`` for the methods.

    :param check: decodes and bounds a frame; raises ``bridges.frames.FrameError``
    :param history: facts that the session's log already holds, when it is resumed; ``packs``: the prompt
        packs that they name. A window made with another pack than ``pack`` finishes on it
    :param summarizer: writes summaries and long-term blocks; without one the engine itself does
    :param place: which engine ``engine`` is now; without one it is always the same
    :param stopped_by_us: True while our own launcher has stopped the engine
    """

    def __init__(
        self,
        session_id: str,
        pack: Pack,
        engine: ChatEngine,
        frames: FrameStore,
        log: FactLog,
        permits: TickPermits,
        clock: Clock,
        ids: Ids,
        check: FrameCheck,
        options: ReplayOptions,
        *,
        solver: Solver | None = None,
        summarizer: Summarizer | None = None,
        history: Sequence[AnyFact] = (),
        packs: Sequence[Pack] = (),
        place: Place | None = None,
        stopped_by_us: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pack = pack
        self._options = options
        self._history = history
        self._place = place or Settled()
        self._config = SessionConfig(model="")
        self._opened = False
        self._closing = False
        self._closed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        grammar = Grammar(pack.tags, pack.control_tokens)
        threshold = options.decide.threshold
        # Refused here, with the reason, rather than ignored at every tick.
        bias = None if threshold is None else threshold_bias(options.engine.decision, threshold)
        self._stream = OutputStream(options.outputs)
        self._operations = Operations()
        self._suspects = Suspects()
        self._health = EngineHealth()
        policy = DecisionPolicy(pack, options.decide)
        audit = PrefixAudit(options.engine.block_tokens)
        self._journal = Journal(log, Memory(*packs, pack), policy, audit, clock.now, self._on_fact)
        self._settings = SessionSettings(self._journal, pack, options)
        self._intake = Intake(
            self._journal,
            self._operations,
            self._suspects,
            check,
            frames,
            options.tenant_key,
            pack.tokens_per_pixel,
            ids,
        )
        self._delegations = Delegations(
            solver,
            pack,
            self._journal,
            frames,
            clock,
            ids,
            self._stream.put,
            self._news,
            cap=options.delegations,
            timeout_s=options.delegation_s,
            recent=options.solver_frames,
        )
        images = pictures_of(frames)
        self._runner = TickRunner(
            TickTools(
                session_id=session_id,
                pack=pack,
                grammar=grammar,
                limits=options.engine,
                options=options.decide,
                bias=bias,
                journal=self._journal,
                operations=self._operations,
                stream=self._stream,
                engine=engine,
                images=images,
                clock=clock,
                place=self._place,
                delegate=self._delegations.ask,
            )
        )
        self._background = Background(
            BackgroundTools(
                session_id=session_id,
                pack=pack,
                grammar=grammar,
                limits=options.engine,
                engine=engine,
                summarizer=summarizer,
                images=images,
                permits=permits,
                clock=clock,
                health=self._health,
                journal=self._journal,
            )
        )
        self._loop = TickLoop(
            LoopTools(
                session_id=session_id,
                pack=pack,
                journal=self._journal,
                operations=self._operations,
                suspects=self._suspects,
                health=self._health,
                runner=self._runner,
                stream=self._stream,
                engine=engine,
                permits=permits,
                clock=clock,
                place=self._place,
                stopped_by_us=stopped_by_us,
            ),
            self._background.wake,
            self._background.caught_up,
        )
        self._conversation = Conversation(
            self._journal, self._operations, self._loop, self._runner, options.max_query_chars
        )

    # --- SessionBackend -----------------------------------------------------------------------------------

    def capabilities(self) -> Capabilities:
        return replay_capabilities(self._pack, self._options.max_sessions)

    async def open(self, config: SessionConfig) -> None:
        if self._history:
            config = self._settings.known(config)
            await self._restore(config)
        else:
            self._settings.open(config)
        self._configure(config)
        self._opened = True
        work = (
            ("ticks", self._loop.run),
            ("prewarms", self._background.prewarms),
            ("texts", self._background.texts),
        )
        self._tasks = [asyncio.create_task(self._guard(run), name=name) for name, run in work]

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        self._require_open()
        if self._operations.known(operation_id):
            return
        with self._loop.appending():
            frames = await self._intake.admit(unit)
            self._require_open()
            self._loop.fence = max(self._loop.fence, fence)
            async with self._kept():
                self._intake.take(frames, operation_id, lossless=unit.lossless)
            self._loop.news()
        await self._loop.tell_unanswerable()

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        self._require_open()
        async with self._kept():
            match fact:
                case QueryAsked():
                    self._loop.fence = max(self._loop.fence, fence)
                    await self._conversation.asked(fact)
                case QueryCleared():
                    self._loop.fence = max(self._loop.fence, fence)
                    self._conversation.cleared(fact)
                case Heard(settled=True):
                    self._conversation.heard(fact, fence)
                case Heard():
                    pass  # it is still being played: how much of it was heard is told when that is over
                case ResponseOptions():
                    self._loop.options(fact, fence)

    async def commit(self, fence: Fence, create_response: bool) -> None:
        self._require_open()
        self._loop.fence = max(self._loop.fence, fence)
        if create_response:
            self._loop.want_words(fence)

    async def update(self, config: SessionConfig) -> int | None:
        self._require_open()
        async with self._kept():
            self._settings.update(config)
        self._configure(config)
        self._loop.wake()
        return self._journal.memory.planned_switch_tick

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        self._require_open()
        if next_fence.epoch <= cancelled.epoch or next_fence <= self._loop.fence:
            raise Conflict(
                f"a cancel of {cancelled} needs a newer fence than {next_fence}; nothing was cancelled",
                code="stale_fence",
            )
        await self._loop.cancel(next_fence)

    async def clear(self) -> None:
        """What was seen stays seen."""

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        """Text is heard when it is emitted; the session tells what was heard."""

    async def close(self, reason: str) -> None:
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        cancelled: list[Delegation] = []
        try:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            cancelled = await self._delegations.cancel(self._loop.fence)
            if self._opened:
                self._delegations.write_off(cancelled)
                await self._journal.flush()
        except StoreError:
            _log.exception("the end of a session's log could not be written")
        finally:
            self._place.leave()
            await self._stream.end(Closed(reason), *cancelled)
            self._closed.set()

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        async for output in self._stream.read():
            yield output

    @property
    def memory(self) -> Memory:
        """What the session remembers, to look at; readable once the backend is open."""
        return self._journal.memory

    @property
    def health(self) -> dict[str, bool]:
        """``engine_lost``: it gives no answers; ``gated``: silent until the first query; ``speech_stopped``:
        by the breaker, after unhealthy answers."""
        policy = self._journal.policy
        return {
            "engine_lost": self._health.lost,
            "gated": policy.gated,
            "speech_stopped": policy.stopped,
        }

    def statistics(self) -> dict[str, dict[str, int]]:
        """Sizes of everything that waits, all of it bounded."""
        return {
            "outputs": self._stream.statistics(),
            "operations": self._operations.statistics(),
            "delegations": self._delegations.statistics(),
            "frames": {"waiting": len(self._journal.waiting)},
            "summaries": {"gaps": self._journal.memory.gaps if self._opened else 0},
        }

    # --- parts of the calls --------------------------------------------------------------------------------

    def _configure(self, config: SessionConfig) -> None:
        self._config = config
        self._loop.auto = self._options.auto if config.auto_response is None else config.auto_response
        self._loop.asked = Asked(config.seed, config.temperature, config.max_output_tokens)

    async def _restore(self, config: SessionConfig) -> None:
        """Continue the log: what was in flight when it ended has failed and leaves no scar. What was set
        up otherwise meanwhile shows at an early handover."""
        self._journal.restore(self._history)
        for fact in self._history:
            if isinstance(fact, FrameSeen):
                self._intake.restored(fact.frame_id)
        tick = self._journal.memory.in_flight
        if tick is not None:
            now_ms = self._journal.memory.now_ms
            self._journal.write(TickFailed(tick=tick, media_time_ms=now_ms, code="restarted"))
        await self._delegations.restored(self._loop.fence, self._history)
        self._history = ()
        self._settings.take_over(config)

    def _require_open(self) -> None:
        if self._closing or not self._opened:
            raise Conflict("the session is closed", code="session_closed")

    # --- facts and tasks ---------------------------------------------------------------------------------

    def _news(self) -> None:
        self._loop.news()

    def _on_fact(self, fact: AnyFact) -> None:
        match fact:
            case FrameSeen():
                self._delegations.saw(fact)
            case FrameDropped(frame_id=frame_id, reason=reason) if reason != "duplicate":
                self._operations.dropped(frame_id, reason)
            case HeadFrozen() if self._opened:
                self._place.handover_begun()
            case WindowSwitched():
                self._suspects.window_over()
                if self._opened:
                    self._place.switched()
            case _:
                pass
        self._background.wake()

    async def _guard(self, run: Callable[[], Awaitable[None]]) -> None:
        """A fault of one task ends this session, with a word to the client, and no other one."""
        try:
            await run()
        except StoreError as fault:
            _log.exception("a session can't be kept any more")
            await self._end_with(told_of(fault))
        except Exception as fault:
            _log.exception("a task of a session failed")
            await self._end_with(ServerFault(f"internal fault: {type(fault).__name__}"))

    @asynccontextmanager
    async def _kept(self) -> AsyncIterator[None]:
        """A fact that the log does not take ends the session: it may go on from what is durable."""
        try:
            yield
        except StoreError as fault:
            _log.exception("a session can't be kept any more")
            error = told_of(fault)
            await self._end_with(error)
            raise error from fault

    async def _end_with(self, error: VigilError) -> None:
        await self._stream.put(Failed(self._loop.fence, error.code, error.message, fatal=True))
