"""One tick: what rides it, the engine's answer, what the client gets, what memory keeps."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from bridges.engine import (
    ChatEngine,
    ChatRequest,
    EngineError,
    EngineServerError,
    Finished,
    ImageBytes,
    Window,
)
from memory.facts import TickAnswered, TickBegun, TickFailed
from memory.plan import AuditResult, Plan, Usage
from memory.render import chat_messages
from memory.store.errors import StoreError
from orchestrator.backends.live_tick import LiveTick
from orchestrator.backends.replay.answer import canonical
from orchestrator.backends.replay.decide import Ask, DecideOptions, Reason, Verdict, judge, tick_deadlines
from orchestrator.backends.replay.engine_call import EngineCall, Reply
from orchestrator.backends.replay.journal import Journal, WaitingFrame
from orchestrator.backends.replay.operations import Operations
from orchestrator.backends.replay.place import Place
from orchestrator.backends.replay.request import Asked, EngineLimits, decision_params
from orchestrator.backends.replay.rows import Rows
from orchestrator.backends.replay.tags import Grammar
from orchestrator.backends.stream import OutputStream
from orchestrator.session.backend import (
    Action,
    Clock,
    Decision,
    Delegation,
    Metrics,
    TextDelta,
    TickDone,
    TickStarted,
    TickTimes,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from prompts.pack import Pack

_UNHEARD = 64  # responses whose report may still come
_GAPS = 256  # figures of an answer's first deltas

_log = logging.getLogger(__name__)

CANCELLED = "cancelled"
CLOSED = "closed"
SUPERSEDED = "superseded"  # words were asked for while a decision was in flight: it starts over


@dataclass(slots=True)
class Flight:
    """A tick from its beginning to its record.

    :param frames: new frames that ride it
    :param prefix: assistant text that the reply continues, if words were asked for
    :param reason: why it will be silent, if that is known before
    :param due_at: when it could have started but for its turn; the other times as in ``TickTimes``
    :param coalesced: it also stands for ticks before it that had no turn
    :param plan_frames: frames of the whole prompt
    :param shown: text that the client has
    :param abort: why its request was ended early, if it was; ``request``: what ends it, while it lasts
    """

    tick: int
    fence: Fence
    begun: TickBegun
    frames: tuple[WaitingFrame, ...]
    operations: tuple[str, ...]
    ask: Ask
    prefix: str
    reason: Reason | None
    words: bool
    started_at: float
    due_at: float
    asked_at: float | None = None
    first_token_at: float | None = None
    answered_at: float | None = None
    coalesced: bool = False
    plan_frames: int = 0
    shown: str = ""
    decided: bool = False
    abort: str | None = None
    request: asyncio.Timeout | None = None

    def times(self, judged: float) -> TickTimes:
        return TickTimes(
            self.admitted_at,
            self.due_at,
            self.started_at,
            judged,
            self.asked_at,
            self.first_token_at,
            self.answered_at,
        )

    @property
    def admitted_at(self) -> float:
        """When its newest frame was admitted; without frames, when it began."""
        return max((f.admitted_at for f in self.frames), default=self.started_at)

    def lateness_s(self, reply: Reply) -> float:
        """From when it could have been asked to when it was known what the engine decides.

        That its frames waited for the session's phase, or for a long answer before them to be said, is no
        fault of the engine; nor is the length of this one, so that words are known by their first token. A
        silence is short, and nothing before it is whole.
        """
        known_at = self.answered_at if reply.outcome.action is Action.SILENCE else self.first_token_at
        return 0.0 if self.waited_for or known_at is None else known_at - self.due_at

    @property
    def waited_for(self) -> bool:
        """Its source waits for the answer (a file): however long it takes, nothing is late."""
        return any(frame.lossless for frame in self.frames)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a tick ended: with a verdict, or with an error (an aborted one: neither)."""

    flight: Flight
    verdict: Verdict | None = None
    error: EngineError | None = None
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class TickTools:
    """What ticks need of their session. ``bias``: logit bias of the speak threshold, if one is set.

    ``delegate`` hands a delegated question on, before its tick is reported as done; the report says what
    became of it.
    """

    session_id: str
    pack: Pack
    grammar: Grammar
    limits: EngineLimits
    options: DecideOptions
    bias: float | None
    journal: Journal
    operations: Operations
    stream: OutputStream
    engine: ChatEngine
    images: ImageBytes
    clock: Clock
    place: Place
    delegate: Callable[[Fence, str, str], Awaitable[Delegation]]


class TickRunner:
    """Runs ticks, one at a time."""

    def __init__(self, tools: TickTools) -> None:
        self._tools = tools
        self._rows = Rows(tools.journal.memory, tools.place)
        self._idle = asyncio.Event()
        self._idle.set()
        self._spoken: deque[tuple[Fence, int]] = deque(maxlen=_UNHEARD)
        self._reported: OrderedDict[str, int] = OrderedDict()
        self._window: Window | None = None
        self.flight: Flight | None = None

    async def run(
        self,
        begun: TickBegun,
        fence: Fence,
        ask: Ask,
        reason: Reason | None,
        *,
        words: bool,
        coalesced: bool,
        asked: Asked,
        due_at: float,
    ) -> Ended:
        """One tick from its first fact to its record. ``words``: a reply is asked for, not a decision;
        ``coalesced``: see ``Flight``; ``due_at``: when it could have started but for its turn."""
        tools = self._tools
        tools.journal.write(begun)
        waiting = tools.journal.waiting
        flight = self.flight = Flight(
            tick=begun.tick,
            fence=fence,
            begun=begun,
            frames=tuple(waiting[f] for f in begun.frame_ids if f in waiting),
            operations=tools.operations.riding(begun.tick, begun.frame_ids),
            ask=ask,
            prefix=tools.grammar.tags.response if words and ask is Ask.ENGINE else "",
            reason=reason,
            words=words,
            started_at=tools.clock.now(),
            due_at=due_at,
            coalesced=coalesced,
        )
        self._idle.clear()
        try:
            await tools.stream.put(TickStarted(fence, begun.tick, flight.operations))
            if ask is Ask.NOBODY:
                said = tools.grammar.tags.silence
                silence = Verdict(Action.SILENCE, reason, "", None, said, said_is_generated=False)
                return await self._answered(flight, silence, None)
            return await self._ask(flight, asked)
        finally:
            self.flight = None
            self._idle.set()

    def abort(self, why: str) -> bool:
        """End the request of the tick in flight early; False when none is in flight. Shown text stands."""
        flight = self.flight
        if flight is None or flight.ask is Ask.NOBODY:
            return False
        if flight.abort is None:
            flight.abort = why
            if flight.request is not None:
                flight.request.reschedule(asyncio.get_running_loop().time())
        return True

    async def idle(self) -> None:
        """Wait until no tick is in flight."""
        await self._idle.wait()

    def heard(self, response_id: str, fence: Fence) -> int | None:
        """The tick whose response the session reports on: one it reported on before, or the oldest other."""
        if response_id in self._reported:
            return self._reported[response_id]
        fences = [spoken for spoken, _ in self._spoken]
        if fence not in fences:  # asked for while a decision was in flight, which then answered it
            fence = next((f for f in fences if f.epoch == fence.epoch), fence)
        if fence not in fences:
            return None
        for _ in range(fences.index(fence)):
            self._spoken.popleft()
        tick = self._reported[response_id] = self._spoken.popleft()[1]
        while len(self._reported) > _UNHEARD:
            self._reported.popitem(last=False)
        return tick

    # --- asking the engine --------------------------------------------------------------------------------

    async def _ask(self, flight: Flight, asked: Asked) -> Ended:
        tools = self._tools
        memory = tools.journal.memory
        prefix = flight.prefix
        call = EngineCall(
            tools.grammar,
            tools.limits,
            standing_query=memory.query,
            prefix=prefix,
            repeats=() if prefix else tools.journal.policy.lines.repeats(flight.begun.media_time_ms),
            ratio=tools.options.dedup_ratio,
            offered=(tools.grammar.tags.delegation or "") in memory.head.system,
            muted=flight.ask is Ask.PROBE,
        )
        try:
            reply = await self._unless_aborted(flight, self._converse(flight, call, asked))
        except asyncio.CancelledError:  # the session closes
            self._keep_shown(flight, CLOSED, self._rows.broken(flight, CLOSED, done_at=tools.clock.now()))
            raise
        except EngineError as problem:
            return await self._broken(flight, problem.code, problem)
        except StoreError:
            raise  # what cannot be kept must not be sent: the session ends
        except Exception as problem:
            _log.exception("session %s: decision failed", tools.session_id)
            fault = EngineServerError(f"{type(problem).__name__}: {problem}")
            return await self._broken(flight, "internal_error", fault)
        if reply is None:
            return await self._broken(flight, flight.abort or CANCELLED, None)
        if reply.finished.suspect and not flight.shown:
            fault = EngineServerError("the engine counted fewer prompt tokens than the prompt has")
            return await self._broken(flight, "prompt_mismatch", fault)
        muted = flight.ask is Ask.PROBE
        verdict = judge(tools.grammar, reply.outcome, repeat=reply.repeat, muted=muted, cut=reply.cut)
        judged = not prefix and (reply.outcome.healthy or not verdict.cut)
        return await self._answered(flight, verdict, reply, score=call.score, judged=judged)

    async def _unless_aborted(self, flight: Flight, work: Coroutine[Any, Any, Reply]) -> Reply | None:
        """``None``: ``abort`` ended it."""
        if flight.abort is not None:
            work.close()
            return None
        try:
            async with asyncio.timeout(None) as scope:
                flight.request = scope
                return await work
        except TimeoutError:
            if scope.expired():
                return None
            raise
        finally:
            flight.request = None

    async def _converse(self, flight: Flight, call: EngineCall, asked: Asked) -> Reply:
        tools = self._tools
        prefix = flight.prefix
        plan = tools.journal.memory.plan(continue_with=prefix or None)
        flight.plan_frames = tools.journal.memory.window_frames + len(flight.frames)
        params = decision_params(
            tools.journal.memory.pack,
            tools.limits,
            asked,
            tick=flight.tick,
            bias=tools.bias,
            continued=bool(prefix),
        )
        deadlines = tick_deadlines(
            tools.pack.period_ms,
            tools.pack.decide.max_tokens,
            waited_for=flight.waited_for,
        )
        request = ChatRequest(
            chat_messages(plan),
            params,
            deadlines,
            tools.session_id,
            f"decision {flight.tick}",
            self._window_of(plan),
        )
        await tools.journal.flush_shown()  # a frame is durable before it is sent
        flight.asked_at = tools.clock.now()

        async def show(text: str) -> None:
            if not flight.decided:
                action = Action.DELEGATE if call.delegating else Action.RESPONSE
                await tools.stream.put(Decision(flight.fence, flight.tick, action, call.score))
                flight.decided = True
                self._spoken.append((flight.fence, flight.tick))
            await tools.stream.put(TextDelta(flight.fence, text))
            flight.shown += text

        reply = await call.run(tools.engine, request, tools.images, show)
        flight.answered_at = tools.clock.now()
        flight.first_token_at = flight.answered_at - (reply.finished.total_ms - reply.finished.ttft_ms) / 1000
        return reply

    def _window_of(self, plan: Plan) -> Window:
        name = f"{self._tools.session_id}/{plan.window}"
        if self._window is None or self._window.name != name:
            self._window = Window(name)
        return self._window

    # --- ending a tick --------------------------------------------------------------------------------------

    async def _answered(
        self,
        flight: Flight,
        verdict: Verdict,
        reply: Reply | None,
        *,
        score: float | None = None,
        judged: bool = False,
    ) -> Ended:
        tools = self._tools
        finished = reply.finished if reply else None
        usage = _usage(finished)
        audited = self._audit(flight, verdict, usage) if usage else None
        done_at = tools.clock.now()
        if reply is not None and audited is not None:
            tools.place.answered(
                LiveTick(
                    lateness_s=flight.lateness_s(reply),
                    period_s=tools.pack.period_ms / 1000,
                    kept=min(audited.cached or 0, audited.expected),
                    promised=0 if audited.cached is None else audited.expected,
                    coalesced=flight.coalesced,
                    turn_tokens=tools.journal.memory.turn_tokens,
                    head_tokens=tools.journal.memory.head_tokens,
                )
            )
        row = self._rows.answered(flight, verdict, finished, audited, score=score, done_at=done_at)
        if not flight.decided:
            decision = Decision(flight.fence, flight.tick, verdict.action, score, verdict.reason)
            await tools.stream.put(decision)
        metrics: dict[str, Any] = {"healthy": None, "genuine_silence": False}
        if reply is not None:
            metrics["healthy"] = reply.outcome.healthy if judged else None
            metrics["genuine_silence"] = reply.outcome.genuine_silence
            metrics["oddities"] = dict(reply.outcome.oddities)
        tools.journal.write(
            TickAnswered(
                tick=flight.tick,
                media_time_ms=flight.begun.media_time_ms,
                action=verdict.action.value,
                reason=verdict.reason,
                said=verdict.said,
                said_is_generated=verdict.said_is_generated,
                text=verdict.text,
                question=verdict.question,
                raw=reply.outcome.raw if reply else "",
                status=verdict.status,
                response_id=response_key(flight.tick) if verdict.text else None,
                usage=asdict(usage) if usage else None,
                metrics=metrics | {"row": row},
            )
        )
        await tools.journal.flush()
        if verdict.question is not None:
            told = await tools.delegate(flight.fence, verdict.question, verdict.text)
            row = row | {"delegation": {"id": told.delegation_id, "status": told.status, "error": told.error}}
        if verdict.action is not Action.SILENCE:
            if finished is not None:
                await tools.stream.put(Metrics(flight.fence, {"0": _figures(finished)}))
            ended_by = verdict.reason if verdict.cut else None
            await tools.stream.put(TurnEnd(flight.fence, verdict.status, ended_by))
        await self._done(flight, row, done_at)
        return Ended(flight, verdict, suspect=finished is not None and finished.suspect)

    def _audit(self, flight: Flight, verdict: Verdict, usage: Usage) -> AuditResult:
        journal = self._tools.journal
        plan = journal.memory.plan(continue_with=flight.prefix or None)
        generated = verdict.said_is_generated
        return journal.audit.tick(
            plan,
            usage,
            said=verdict.said,
            said_is_generated=generated,
            stays=not journal.memory.instructed,
        )

    async def _broken(self, flight: Flight, code: str, error: EngineError | None) -> Ended:
        """No whole answer. What was shown stands; with nothing shown the tick leaves no scar."""
        tools = self._tools
        done_at = tools.clock.now()
        row = self._rows.broken(flight, code, done_at=done_at)
        if flight.shown:
            self._keep_shown(flight, code, row)
            await tools.journal.flush()
            await tools.stream.put(TurnEnd(flight.fence, "incomplete", code))
            await self._done(flight, row, done_at)
            return Ended(flight, error=error)
        tools.journal.write(TickFailed(tick=flight.tick, media_time_ms=flight.begun.media_time_ms, code=code))
        # What the user cancelled is told to whoever waits; what failed goes on waiting for the next tick.
        told = tools.operations.give_up(flight.operations) if code == CANCELLED else ()
        times = flight.times(done_at)
        await tools.stream.put(TickDone(flight.fence, flight.tick, told, row, code, times))
        return Ended(flight, error=error)

    def _keep_shown(self, flight: Flight, code: str, row: Mapping[str, Any]) -> None:
        if not flight.shown:
            return
        self._tools.journal.write(
            TickAnswered(
                tick=flight.tick,
                media_time_ms=flight.begun.media_time_ms,
                action="response",
                reason=code,
                said=canonical(self._tools.grammar, Action.RESPONSE, flight.shown),
                said_is_generated=False,
                text=flight.shown,
                status="incomplete",
                response_id=response_key(flight.tick),
                metrics={"healthy": None, "genuine_silence": False, "row": dict(row)},
            )
        )

    async def _done(self, flight: Flight, row: Mapping[str, Any], done_at: float) -> None:
        operations = self._tools.operations.answered(flight.tick, flight.begun.frame_ids)
        times = flight.times(done_at)
        await self._tools.stream.put(TickDone(flight.fence, flight.tick, operations, row, times=times))


def response_key(tick: int) -> str:
    """How this session's facts name the response of a tick."""
    return f"tick-{tick}"


def _figures(finished: Finished) -> dict[str, Any]:
    """Names of the protocol's stage metrics."""
    times = finished.token_times_ms[: _GAPS + 1]
    figures: dict[str, Any] = {
        "num_tokens_in": finished.prompt_tokens,
        "num_tokens_out": finished.completion_tokens,
        "vllm_ttft_ms": round(finished.ttft_ms, 3),
        "vllm_itls_ms": [round(after - before, 3) for before, after in pairwise(times)],
    }
    if finished.completion_tokens > 1:
        rest = (finished.total_ms - finished.ttft_ms) / (finished.completion_tokens - 1)
        figures["vllm_tpot_ms"] = round(rest, 3)
    return figures


def _usage(finished: Finished | None) -> Usage | None:
    if finished is None:
        return None
    return Usage(finished.prompt_tokens, finished.completion_tokens, finished.cached_tokens)
