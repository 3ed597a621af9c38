"""The loop of a session's ticks: when the next one starts, and what follows when one goes wrong."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NoReturn

from bridges.engine import (
    BadImage,
    ChatEngine,
    EngineBroken,
    EngineDenied,
    EngineError,
    EngineRefused,
    EngineUnreachable,
    ImageMissing,
    TooManyImages,
)
from memory.facts import (
    EngineLost,
    EngineRecovered,
    FrameDropped,
    ItemDeleted,
    LimitsLearned,
    MoveWanted,
    TickBegun,
)
from memory.plan import WantDecision
from orchestrator.backends.replay.decide import Ask, Pace, tick_deadlines
from orchestrator.backends.replay.health import BACKOFF_FIRST_S, BACKOFF_MAX_S, EngineHealth
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.operations import Operations
from orchestrator.backends.replay.place import Place
from orchestrator.backends.replay.request import Asked
from orchestrator.backends.replay.suspects import Suspects
from orchestrator.backends.replay.tick import CANCELLED, SUPERSEDED, Ended, TickRunner
from orchestrator.backends.store_faults import RETRY_S, PictureUnread
from orchestrator.backends.stream import OutputStream
from orchestrator.backends.waiting import in_time, set_within
from orchestrator.session.backend import (
    Action,
    Clock,
    Notice,
    TickDone,
    TickPermits,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ResponseOptions
from prompts.pack import Pack

GRACE_S = 0.02  # a query alone waits this long for a frame that was sent along with it
REFUSALS = 3  # refusals in a row, with nothing left to shrink, after which what is new is dropped
ERROR_OF = {"rejected": "invalid_image", "quarantined": "frame_quarantined"}


@dataclass(frozen=True, slots=True)
class LoopTools:
    """What the loop needs of its session.

    :param place: the engine that the session is on; its ``suspect_lane`` is held by the one tick of an engine
        that shows a suspect frame
    :param stopped_by_us: our own launcher has stopped the engine
    """

    session_id: str
    pack: Pack
    journal: Journal
    operations: Operations
    suspects: Suspects
    health: EngineHealth
    runner: TickRunner
    stream: OutputStream
    engine: ChatEngine
    permits: TickPermits
    clock: Clock
    place: Place
    stopped_by_us: Callable[[], bool]


class TickLoop:
    """At most one decision in flight. ``fence``, ``auto`` and ``asked`` are set by the session's calls.

    :param wake_others: called when the engine came back
    :param caught_up: what a tick waits for before it asks the engine, besides its permit
    """

    def __init__(
        self, tools: LoopTools, wake_others: Callable[[], None], caught_up: Callable[[], Awaitable[None]]
    ) -> None:
        self._tools = tools
        self._wake_others = wake_others
        self._caught_up = caught_up
        self._wake = asyncio.Event()
        self._pace = Pace(tools.pack.period_ms, tools.place.turn_after)
        self._words: deque[ResponseOptions | None] = deque()  # replies asked for and not given yet
        self._options: tuple[Fence, ResponseOptions] | None = None
        self._held = False
        self._retrying = False
        self._retry_at = 0.0
        self._refusals = 0
        self._stopped = False
        self._news_at = 0.0
        self._calm_until = 0.0
        self._appending = 0
        self._left_window: int | None = None
        self.fence = Fence()
        self.auto = True
        self.asked = Asked()

    # --- what the session's calls do ------------------------------------------------------------------

    def wake(self) -> None:
        """A fact was written."""
        self._wake.set()

    def news(self) -> None:
        """Something new to decide on: a frame, a query, a delegated answer."""
        self._held = False
        self._news_at = self._tools.clock.now()
        self._wake.set()

    @contextmanager
    def appending(self) -> Iterator[None]:
        """An append is on its way: a query that came with it waits for its frames."""
        self._appending += 1
        try:
            yield
        finally:
            self._appending -= 1
            self._wake.set()

    def options(self, options: ResponseOptions, fence: Fence) -> None:
        """Settings of the reply that will be asked for under this fence."""
        self._options = (fence, options)

    def want_words(self, fence: Fence) -> None:
        """A reply is asked for. A decision in flight that has said nothing yet starts over as that reply."""
        told, self._options = self._options, None
        self._words.append(told[1] if told is not None and told[0] == fence else None)
        self._held = False
        flight = self._tools.runner.flight
        if flight is not None and flight.ask is Ask.ENGINE and not flight.words and not flight.decided:
            self._tools.runner.abort(SUPERSEDED)
        self._wake.set()

    async def cancel(self, next_fence: Fence) -> None:
        """Abort the decision in flight and wait for nothing else before something new arrives."""
        self.fence = next_fence
        self._words.clear()
        self._options, self._held = None, True
        if self._tools.runner.abort(CANCELLED):
            await self._tools.runner.idle()

    async def tell_unanswerable(self) -> None:
        """Answer operations of which no tick will show anything."""
        tools = self._tools
        unanswerable, tools.operations.unanswerable = tools.operations.unanswerable, []
        for operation_id, reason in unanswerable:
            await self._tell((operation_id,), reason, error_code=ERROR_OF.get(reason))

    async def _tell(self, operations: tuple[str, ...], reason: str, *, error_code: str | None) -> None:
        """Answer operations without a tick: the row has the last tick's number and status ``dropped``."""
        tick = self._tools.journal.last_tick
        row = {
            "tick": tick,
            "action": Action.SILENCE.value,
            "reason": reason,
            "text": "",
            "status": "dropped",
            "operations": list(operations),
        }
        await self._tools.stream.put(TickDone(self.fence, tick, operations, row, error_code=error_code))

    # --- the loop ---------------------------------------------------------------------------------------

    async def run(self) -> NoReturn:
        while True:
            self._wake.clear()
            if self._tools.health.lost:
                await self._recover()
                continue
            wait = self._wait_s()
            if wait == 0:
                await self._tick()
                continue
            if wait is None and not self._held:
                await self._release()
            await self._sleep(wait)

    def _wait_s(self) -> float | None:
        """Seconds until the next tick is due; ``None``: not before a wake."""
        tools, now = self._tools, self._tools.clock.now()
        want = next((w for w in tools.journal.memory.wants() if isinstance(w, WantDecision)), None)
        if not self._words and (want is None or self._held):
            return None
        if now < self._retry_at:
            return self._retry_at - now
        if self._words or want is None:
            return 0
        waiting = tools.journal.waiting.values()
        if not self.auto and len(waiting) < tools.journal.memory.budget.frames_per_tick:
            return None  # frames gather until words are asked for, or until they make a turn
        if not waiting and not self._retrying:
            if self._appending:
                return None
            return max(0.0, self._news_at + GRACE_S - now, self._calm_until - now)
        if not waiting or want.urgent or self._retrying or any(f.lossless for f in waiting):
            return 0
        newest = max(waiting, key=lambda frame: frame.media_time_ms)
        others = (f.media_time_ms for f in waiting if f.operation_id != newest.operation_id)
        return self._pace.wait_s(now, newest.media_time_ms, max(others, default=None))

    async def _release(self) -> None:
        """Nothing is left to decide: a query withdrawn before any tick showed it is answered by none."""
        tools = self._tools
        if any(isinstance(want, WantDecision) for want in tools.journal.memory.wants()):
            return
        for operation_id in tools.operations.frameless(tools.journal.last_tick):
            tools.operations.refuse(operation_id, "cleared")
        await self.tell_unanswerable()

    async def _sleep(self, seconds: float | None) -> None:
        if seconds is None:
            await self._wake.wait()
        else:
            await set_within(self._wake, self._tools.clock.sleep(seconds))

    async def _tick(self) -> None:
        tools, due_at = self._tools, self._tools.clock.now()
        self._leave_soon()
        ask, _ = tools.journal.policy.ask(words=bool(self._words), auto=self.auto)
        if ask is Ask.NOBODY:
            await self._after(await self._run_tick(due_at))
            return
        lane = tools.place.suspect_lane if tools.suspects.any(tools.journal.waiting) else nullcontext()
        async with lane:
            await self._caught_up()
            ended = None
            async with self._turn() as granted:
                if granted and self._wait_s() == 0:  # else cancelled or cleared while it waited
                    ended = await self._run_tick(due_at)
            if ended is not None:
                await self._after(ended)
            elif not granted:
                await self._turned_away()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[bool]:
        """Hold a permit of the engine, if it gives one before the tick's deadline. What comes meanwhile rides
        along: of an engine that is short the newest frames are answered."""
        tools = self._tools
        if not await in_time(tools.permits.live(tools.session_id), tools.clock.sleep(self._turn_s())):
            yield False
            return
        try:
            yield True
        finally:
            tools.permits.done(tools.session_id)

    def _turn_s(self) -> float:
        """As long as for a first token; an answer that is begun later would be of no use any more."""
        waited_for = any(frame.lossless for frame in self._tools.journal.waiting.values())
        return tick_deadlines(self._tools.pack.period_ms, 0, waited_for=waited_for).first_token_s

    async def _turned_away(self) -> None:
        """The engine has no turn for this session in time. Whoever waits for an answer is told so and may
        come again; what was shown stays, and rides the tick that gets a turn."""
        self._tools.place.refused(self._turn_s(), self._tools.pack.period_ms / 1000)
        await self._give_up("engine_overloaded")

    def _leave_soon(self) -> None:
        """An engine that is being drained is left with the next window, which then comes early."""
        tools, window = self._tools, self._tools.journal.memory.window_index
        if tools.place.leaves_soon and self._left_window != window:
            self._left_window = window
            tools.journal.write(MoveWanted(engine=tools.place.name or ""))

    async def _run_tick(self, due_at: float) -> Ended:
        tools = self._tools
        words, options = bool(self._words), self._words[0] if self._words else None
        ask, reason = tools.journal.policy.ask(words=words, auto=self.auto)
        instructions = options.instructions if options is not None else None
        begun = tools.journal.memory.begin_tick(tools.journal.last_tick + 1, instructions)
        if ask is not Ask.NOBODY:
            begun = self._apart(begun)
        coalesced = len(begun.frame_ids) > 1 and self._pace.passed_over(begun.media_time_ms)
        self._pace.started(tools.clock.now(), begun.media_time_ms)
        return await tools.runner.run(
            begun,
            self.fence,
            ask,
            reason,
            words=words,
            coalesced=coalesced,
            asked=self.asked.over(options),
            due_at=due_at,
        )

    def _apart(self, begun: TickBegun) -> TickBegun:
        """Frames that may have killed an engine ride one at a time."""
        riders = self._tools.suspects.riders(begun.frame_ids)
        if riders == begun.frame_ids:
            return begun
        newest = max(self._tools.journal.waiting[f].media_time_ms for f in riders)
        return begun.model_copy(update={"frame_ids": riders, "media_time_ms": newest})

    # --- after a tick -------------------------------------------------------------------------------------

    async def _after(self, ended: Ended) -> None:
        flight = ended.flight
        if ended.verdict is not None:
            if ended.verdict.action is Action.DELEGATE:
                # An answer within that time rides the next frame. A model that asks again whenever it is
                # answered so goes at its own pace, not at its solver's.
                self._calm_until = flight.started_at + 2 * self._tools.pack.period_ms / 1000
            if flight.words or ended.verdict.action is not Action.SILENCE:
                self._given()
            if flight.ask is not Ask.NOBODY:
                await self._engine_answered(ended)
        elif flight.shown:
            self._given()
        self._retrying = ended.error is not None
        if ended.error is not None:
            await self._failed(ended, ended.error)
        await self.tell_unanswerable()

    def _given(self) -> None:
        """A reply was given, asked for or not."""
        if self._words:
            self._words.popleft()

    async def _engine_answered(self, ended: Ended) -> None:
        tools = self._tools
        tools.suspects.answered(ended.flight.begun.frame_ids)
        self._refusals = 0
        if ended.suspect:  # it answered, but not to our prompt
            if tools.health.missed():
                await self._lose("wedged", "the engine loses prompts; waiting for it to recover")
        else:
            tools.health.answered()
        if tools.journal.policy.stopped != self._stopped:
            self._stopped = tools.journal.policy.stopped
            message = (
                "the model's answers lack its tags; speech is stopped until they are sound again"
                if self._stopped
                else "the model's answers are sound again; speech is back"
            )
            await tools.stream.put(Notice("unhealthy_output", message))

    async def _failed(self, ended: Ended, error: EngineError) -> None:
        tools, now = self._tools, self._tools.clock.now()
        if isinstance(error, EngineRefused) and not isinstance(error, EngineDenied):
            await self._refused(ended, error)
            return
        if isinstance(error, PictureUnread):  # the engine was not asked
            await self._give_up(error.code)
            self._retry_at = max(self._retry_at, now + RETRY_S)
            return
        if isinstance(error, EngineUnreachable | EngineBroken):
            self._suspect(ended)
            if tools.health.unreachable():
                await self._lose("unreachable", f"the engine went away ({error.message}); reconnecting")
        elif isinstance(error, EngineDenied):  # no picture of ours has done that
            if tools.health.unreachable():
                await self._lose("denied", f"the engine takes no request of ours ({error.message}); waiting")
        elif tools.health.missed():
            await self._lose("wedged", f"the engine does not answer in time ({error.message})")
        self._retry_at = max(self._retry_at, now + tools.health.backoff_s)

    def _suspect(self, ended: Ended) -> None:
        tools = self._tools
        in_flight = [(f.frame_id, f.uuid) for f in ended.flight.frames]
        guilty = tools.suspects.died(in_flight, stopped_by_us=tools.stopped_by_us())
        if guilty is not None:
            self._drop(guilty, "quarantined")

    async def _refused(self, ended: Ended, error: EngineRefused) -> None:
        """The engine is well and will not take this: plan smaller or drop what it cannot take; never loop."""
        tools = self._tools
        tools.health.answered()
        if isinstance(error, TooManyImages):
            tools.journal.write(LimitsLearned(max_images=error.limit))
        if len(tools.journal.memory.plan().frames) < ended.flight.plan_frames:
            return  # memory has drawn its windows in: try again at once
        self._refusals += 1
        if isinstance(error, ImageMissing):
            self._forget(error.uuid)
        elif isinstance(error, BadImage) or self._refusals >= REFUSALS:
            if self._refusals >= REFUSALS:
                await self._give_up(error.code)
            for frame in ended.flight.frames:
                self._drop(frame.frame_id, "rejected")
        if self._refusals > 1:
            wait = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(10, self._refusals - 2))
            self._retry_at = tools.clock.now() + wait

    def _drop(self, frame_id: str, reason: str) -> None:
        frame = self._tools.journal.waiting.get(frame_id)
        if frame is not None:
            dropped = FrameDropped(frame_id=frame_id, media_time_ms=frame.media_time_ms, reason=reason)
            self._tools.journal.write(dropped)

    def _forget(self, uuid: str) -> None:
        """Nobody has the bytes of a frame any more: it leaves the window, which is rebuilt without it."""
        for frame in self._tools.journal.memory.plan().frames:
            if frame.uuid == uuid:
                self._drop(frame.frame_id, "rejected")
                self._tools.journal.write(ItemDeleted(frame_id=frame.frame_id))

    async def _lose(self, reason: str, message: str) -> None:
        self._tools.journal.write(EngineLost(reason=reason))
        await self._tools.stream.put(Notice("engine_lost", message))

    async def _give_up(self, code: str) -> None:
        """Tell those who wait for an answer that none will come soon; their frames stay."""
        tools = self._tools
        waiting = tools.operations.give_up(tools.operations.impatient())
        if waiting:
            await self._tell(waiting, code, error_code=code)
        if self._words:
            self._words.clear()
            await tools.stream.put(TurnEnd(self.fence, "failed", code))

    async def _recover(self) -> None:
        """Ask for a real answer until there is one: another engine at once, the same one ever less often."""
        tools = self._tools
        if not await tools.place.lost():
            await self._give_up("engine_unavailable")
            await tools.clock.sleep(tools.health.backoff_s)
        try:
            alive = await tools.engine.ping(max(3.0, 3 * tools.pack.period_ms / 1000))
        except EngineError:
            alive = False
        if not alive:
            tools.health.unreachable()
            await self._give_up("engine_unavailable")
            return
        tools.health.answered()
        self._retry_at = 0.0
        tools.journal.write(EngineRecovered())
        await tools.stream.put(Notice("engine_recovered", "the engine answers again"))
        self._wake_others()
