"""Memory's background wants, carried out beside the ticks: summaries, roll-ups and prewarms.

Two lanes, one want at a time in each, so that a slow summary never holds up the prewarm of a handover.
Both rest while the engine is lost: no attempt is spent on an engine that is known to be away.

Texts are written by the engine itself at low priority, or by a summarizer of their own. What that one can't
do (it rests, it takes no pictures, two attempts came to nothing) the engine does after all: a summarizer
that fails costs the engine some work, never the session its memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from bridges.engine import (
    ChatEngine,
    ChatRequest,
    Deadlines,
    Delta,
    EngineDenied,
    EngineError,
    EngineUnreachable,
    Finished,
    ImageBytes,
    Window,
)
from memory.facts import Prewarmed, RollupFailed, RollupLanded, SummaryFailed, SummaryLanded
from memory.plan import Want, WantPrewarm, WantRollup, WantSummary
from memory.render import Message, chat_messages, rollup_messages, summary_messages
from orchestrator.backends.replay.engine_call import stream_of
from orchestrator.backends.replay.health import BACKOFF_FIRST_S, BACKOFF_MAX_S, EngineHealth
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.request import EngineLimits, prewarm_params, summary_params
from orchestrator.backends.replay.summary_check import summary_fault
from orchestrator.backends.replay.tags import Grammar
from orchestrator.backends.summaries import CHARS_PER_TOKEN, Summarizer, shortened
from orchestrator.backends.waiting import in_time
from orchestrator.session.backend import Clock, TickPermits
from prompts.pack import Pack, Sampling

SUMMARY = Deadlines(first_token_s=120.0, total_s=180.0)
"""Long, for it waits behind ticks: cut short, it is written again from its start. Nothing waits for it."""
PREWARM_BEHIND_S, SUMMARY_BEHIND_S = 0.2, 0.5
"""How long the engine lets ticks go first. With longer ones it falls behind wherever ticks wait for ticks."""
PREWARM = Deadlines(first_token_s=20.0, total_s=20.0)
TRIES = 3
_GONE = (EngineUnreachable, EngineDenied)
"""Nobody is there to do it: it is done once somebody is, and no try is spent."""

Pick = Callable[[], Want | None]


@dataclass(frozen=True, slots=True)
class BackgroundTools:
    """What background work needs of its session. Without a ``summarizer`` the engine writes all texts."""

    session_id: str
    pack: Pack
    grammar: Grammar
    limits: EngineLimits
    engine: ChatEngine
    summarizer: Summarizer | None
    images: ImageBytes
    permits: TickPermits
    clock: Clock
    health: EngineHealth
    journal: Journal


class Background:
    """Run ``prewarms`` and ``texts`` as tasks; call ``wake`` after every fact."""

    def __init__(self, tools: BackgroundTools) -> None:
        self._tools = tools
        self._wakes: dict[Pick, asyncio.Event] = {
            self._next_prewarm: asyncio.Event(),
            self._next_text: asyncio.Event(),
        }
        self._looks = False
        self._caught_up = asyncio.Event()
        self._caught_up.set()

    async def caught_up(self) -> None:
        """Return when no prewarm is under way that took a turn along, or after a period.

        Where ticks come back to back each of these would else be outrun by the next tick, for ever.
        """
        if not self._caught_up.is_set():
            period_s = self._tools.pack.period_ms / 1000
            await in_time(self._caught_up.wait(), self._tools.clock.sleep(period_s))

    def wake(self) -> None:
        """A fact was written: look for work once those that come with it are written too."""
        if not self._looks:
            self._looks = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looks = False
        for pick, event in self._wakes.items():
            if pick() is not None:
                event.set()

    async def prewarms(self) -> NoReturn:
        await self._lane(self._next_prewarm, self._prewarm)

    async def texts(self) -> NoReturn:
        await self._lane(self._next_text, self._text)

    async def _lane(self, pick: Pick, carry: Callable[[Any], Awaitable[Want | None]]) -> NoReturn:
        wake = self._wakes[pick]
        last: Want | None = None
        while True:
            wake.clear()
            want = pick()
            if want is None:
                await wake.wait()
                continue
            if want == last:  # its fact changed nothing, or its engine was away: not again at once
                await self._tools.clock.sleep(BACKOFF_MAX_S)
            last = await carry(want)  # what came of it, if anything

    # --- prewarm --------------------------------------------------------------------------------------

    def _next_prewarm(self) -> WantPrewarm | None:
        if self._tools.health.lost:
            return None
        return next((w for w in self._tools.journal.memory.wants() if isinstance(w, WantPrewarm)), None)

    async def _prewarm(self, picked: WantPrewarm) -> WantPrewarm | None:
        """Warm what is wanted when its turn comes: while it waited, a tick may have been answered."""
        tools = self._tools
        # One that takes the turn in flight along is of use only until that turn is answered.
        async with self._permit("prewarm", beside=picked.open_tick is not None):
            want = self._next_prewarm()
            if want is None:
                return None
            params = prewarm_params(tools.pack, tools.limits)
            purpose = f"prewarm {want.head}/{want.turns}"
            window = Window(f"{tools.session_id}/{want.plan.window}")
            request = ChatRequest(
                chat_messages(want.plan),
                params,
                PREWARM,
                tools.session_id,
                purpose,
                window,
                behind_s=PREWARM_BEHIND_S,
            )
            if want.open_tick is not None:
                self._caught_up.clear()
            try:
                _, finished = await self._ask(request, "prewarm")
            except _GONE:
                return want
            except EngineError:
                self._prewarmed(want, None)
                return want
            else:
                self._prewarmed(want, finished.prompt_tokens)
            finally:
                self._caught_up.set()
        return want

    def _prewarmed(self, want: WantPrewarm, prompt_tokens: int | None) -> None:
        """``prompt_tokens``: of the answered request; ``None`` where there was no answer."""
        ended = Prewarmed(
            head=want.head,
            turns=want.turns,
            open_tick=want.open_tick,
            ok=prompt_tokens is not None,
            prompt_tokens=prompt_tokens,
        )
        self._tools.journal.write(ended)

    # --- summaries and roll-ups ---------------------------------------------------------------------------

    def _next_text(self) -> WantSummary | WantRollup | None:
        texts = (w for w in self._tools.journal.memory.wants() if isinstance(w, WantSummary | WantRollup))
        return next((w for w in texts if self._helper(w) or not self._tools.health.lost), None)

    def _helper(self, want: WantSummary | WantRollup) -> Summarizer | None:
        """The summarizer, if this text is for it; else the engine itself writes."""
        helper = self._tools.summarizer
        if helper is None or want.attempt >= TRIES or not helper.ready:
            return None
        return helper if helper.images or isinstance(want, WantRollup) else None

    async def _text(self, want: WantSummary | WantRollup) -> WantSummary | WantRollup:
        tools = self._tools
        if want.attempt > 1:
            doubled = BACKOFF_FIRST_S * 2 ** min(10, want.attempt - 2)
            await tools.clock.sleep(min(BACKOFF_MAX_S, doubled))
        memory, pack = tools.journal.memory, tools.pack
        target, query = memory.budget.summary_target, memory.query
        if isinstance(want, WantSummary):
            messages = summary_messages(want, pack, memory.language, query=query, target=target)
            sampling = pack.summary
        else:
            messages = rollup_messages(want, pack, memory.language, query=query, target=target)
            sampling = pack.rollup
        try:
            text, fault = await self._written(want, messages, sampling)
        except _GONE:
            return want
        if isinstance(want, WantSummary):
            self._summary_ended(want, text, fault)
        else:
            self._rollup_ended(want, text, fault)
        return want

    async def _written(
        self, want: WantSummary | WantRollup, messages: list[Message], sampling: Sampling
    ) -> tuple[str, str | None]:
        """A text and what is wrong with it; raises ``_GONE`` for the engine alone."""
        tools = self._tools
        last_try = TRIES
        if helper := self._helper(want):
            last_try -= 1
            # Takes no permit, needing nothing of the engine. One that is away costs an attempt.
            await tools.journal.flush()  # a frame is durable before it is sent
            try:
                written = await helper.write(messages, sampling.params, sampling.max_tokens, tools.images)
            except EngineError as problem:
                return "", problem.code.replace("engine", "summarizer", 1)
            text, finish_reason = written.text, written.finish_reason
        else:
            params = summary_params(sampling, tools.limits)
            request = ChatRequest(
                messages, params, SUMMARY, tools.session_id, _purpose(want), behind_s=SUMMARY_BEHIND_S
            )
            try:
                async with self._permit("summary"):
                    text, finished = await self._ask(request, "summary")
            except _GONE:
                raise
            except EngineError as problem:
                return "", problem.code
            finish_reason = finished.finish_reason
        return self._checked(text, finish_reason, sampling, last_try=want.attempt >= last_try)

    def _checked(
        self, text: str, finish_reason: str, sampling: Sampling, *, last_try: bool
    ) -> tuple[str, str | None]:
        """A text and what is wrong with it. At the last try a text that is only too long is cut."""
        most = sampling.max_tokens * CHARS_PER_TOKEN
        fault = summary_fault(self._tools.grammar, text, finish_reason, most)
        if fault == "too_long" and last_try and (cut := shortened(text, most)):
            return cut, None
        return text.strip(), fault

    def _summary_ended(self, want: WantSummary, text: str, fault: str | None) -> None:
        if fault is None:
            landed = SummaryLanded(
                chunk=want.chunk, text=text, start_ms=want.start_ms, end_ms=want.end_ms, attempt=want.attempt
            )
            self._tools.journal.write(landed)
            return
        failed = SummaryFailed(chunk=want.chunk, attempt=want.attempt, reason=fault)
        self._tools.journal.write(failed)

    def _rollup_ended(self, want: WantRollup, text: str, fault: str | None) -> None:
        if fault is None:
            landed = RollupLanded(chunks=want.chunks, text=text, start_ms=want.start_ms, end_ms=want.end_ms)
            self._tools.journal.write(landed)
            return
        self._tools.journal.write(RollupFailed(chunks=want.chunks, attempt=want.attempt, reason=fault))

    @asynccontextmanager
    async def _permit(self, kind: str, *, beside: bool = False) -> AsyncIterator[None]:
        tools = self._tools
        await tools.permits.background(tools.session_id, kind, beside=beside)
        try:
            yield
        finally:
            tools.permits.done(tools.session_id, kind)

    async def _ask(self, request: ChatRequest, kind: str) -> tuple[str, Finished]:
        """``kind``: of the permit that is held for it."""
        tools = self._tools
        text: list[str] = []
        finished: Finished | None = None
        await tools.journal.flush()  # a frame is durable before it is sent
        async with aclosing(stream_of(tools.engine, request, tools.images)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    if not text:
                        tools.permits.read(tools.session_id, kind)
                    text.append(event.text)
                else:
                    finished = event
        if finished is None:
            raise EngineUnreachable("the answer has no end")
        return "".join(text), finished


def _purpose(want: WantSummary | WantRollup) -> str:
    if isinstance(want, WantSummary):
        return f"summary {want.chunk}/{want.attempt}"
    return f"rollup {want.chunks[0]}-{want.chunks[-1]}/{want.attempt}"
