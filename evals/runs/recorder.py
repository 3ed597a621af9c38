"""Stands between a session and those whom it asks, and writes down what is said both ways."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from bridges.engine import ChatEngine, ChatEvent, ChatRequest, Delta, EngineError, ImageBytes
from bridges.solver import SolverAsk, SolverError
from evals.runs.tape import Tape, error_data, finished_data
from orchestrator.backends.replay.engine_call import stream_of
from orchestrator.backends.solvers import Solver
from orchestrator.backends.summaries import Summarizer, Written
from orchestrator.replay_track import Outside
from orchestrator.session.backend import TickPermits


def recorded(outside: Outside, tape: Tape) -> Outside:
    """The same, each of them followed by the tape."""
    return Outside(
        RecordedEngine(outside.engine, tape),
        RecordedPermits(outside.permits, tape),
        RecordedSolver(outside.solver, tape) if outside.solver else None,
        RecordedSummarizer(outside.summarizer, tape) if outside.summarizer else None,
    )


class RecordedEngine:
    """A ``ChatEngine``."""

    def __init__(self, engine: ChatEngine, tape: Tape) -> None:
        self._engine = engine
        self._tape = tape

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        tape, scored, over = self._tape, 0, False
        asked = tape.asked(request.purpose, request.messages, request.params)
        try:
            async with aclosing(stream_of(self._engine, request, images)) as events:
                async for event in events:
                    await tape.enter()
                    if isinstance(event, Delta):
                        tape.delta(asked, event, scored)
                        scored += len(event.top_logprobs)
                    else:
                        tape.ended(asked, finished=finished_data(event))
                        over = True
                    yield event
        except EngineError as error:
            await tape.enter()
            tape.ended(asked, error=error_data(error))
            raise
        except (asyncio.CancelledError, GeneratorExit):
            if not over:
                tape.ended(asked)
            raise

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return await self._engine.tokenize(messages, images)

    async def ping(self, timeout_s: float) -> bool:
        asked = self._tape.asked("ping", (), {})
        alive = False
        try:
            alive = await self._engine.ping(timeout_s)
            await self._tape.enter()
        finally:
            self._tape.ended(asked, alive=alive)
        return alive

    async def aclose(self) -> None:
        """The engine is shared: whoever opened it closes it."""


class RecordedPermits:
    """``TickPermits``: other sessions decide when one is given."""

    def __init__(self, permits: TickPermits, tape: Tape) -> None:
        self._permits = permits
        self._tape = tape

    async def live(self, session_id: str) -> None:
        wanted = self._tape.wanted("live")
        await self._permits.live(session_id)
        await self._enter(wanted, session_id, "live")

    async def background(self, session_id: str, kind: str, *, beside: bool = False) -> None:
        wanted = self._tape.wanted(kind)
        await self._permits.background(session_id, kind, beside=beside)
        await self._enter(wanted, session_id, kind)

    def read(self, session_id: str, kind: str) -> None:
        self._permits.read(session_id, kind)

    def done(self, session_id: str, kind: str = "live") -> None:
        self._permits.done(session_id, kind)

    async def _enter(self, wanted: int, session_id: str, kind: str) -> None:
        try:
            await self._tape.enter()
        except BaseException:  # cancelled with a permit that nobody will give back
            self._permits.done(session_id, kind)
            raise
        self._tape.granted(wanted)


class RecordedSolver:
    """A ``Solver``."""

    def __init__(self, solver: Solver, tape: Tape) -> None:
        self._solver = solver
        self._tape = tape

    async def solve(self, ask: SolverAsk) -> str:
        asked = self._tape.asked("solve", solver_messages(ask), {})
        try:
            text = await self._solver.solve(ask)
            await self._tape.enter()
        except SolverError as error:
            await self._tape.enter()
            self._tape.ended(asked, error={"code": error.code, "message": error.message})
            raise
        except BaseException:
            self._tape.ended(asked)
            raise
        self._tape.ended(asked, text=text)
        return text


def solver_messages(ask: SolverAsk) -> list[dict[str, str]]:
    """A question as data: its pictures by their digests."""
    pictures = ({"role": f.caption, "content": hashlib.sha256(f.data).hexdigest()[:32]} for f in ask.frames)
    said = [{"role": "system", "content": ask.system}, {"role": "user", "content": ask.text}]
    return [*said, *pictures]


class RecordedSummarizer:
    """A ``Summarizer``."""

    def __init__(self, summarizer: Summarizer, tape: Tape) -> None:
        self._summarizer = summarizer
        self._tape = tape

    @property
    def images(self) -> bool:
        return self._summarizer.images

    @property
    def ready(self) -> bool:
        return self._summarizer.ready

    async def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        max_tokens: int,
        images: ImageBytes,
    ) -> Written:
        asked = self._tape.asked("write", messages, {**sampling, "max_tokens": max_tokens})
        try:
            written = await self._summarizer.write(messages, sampling, max_tokens, images)
            await self._tape.enter()
        except EngineError as error:
            await self._tape.enter()
            self._tape.ended(asked, error=error_data(error))
            raise
        except BaseException:
            self._tape.ended(asked)
            raise
        self._tape.ended(asked, text=written.text, finish_reason=written.finish_reason)
        return written
