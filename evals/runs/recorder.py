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


def recorded(outside: Outside, tape: Tape) -> Outside:
    """The same, each of them followed by the tape."""
    return Outside(
        RecordedEngine(outside.engine, tape),
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
                    if isinstance(event, Delta):
                        tape.delta(asked, event, scored)
                        scored += len(event.top_logprobs)
                    else:
                        tape.ended(asked, finished=finished_data(event))
                        over = True
                    yield event
        except EngineError as error:
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
        finally:
            self._tape.ended(asked, alive=alive)
        return alive

    async def aclose(self) -> None:
        """The engine is shared: whoever opened it closes it."""


class RecordedSolver:
    """A ``Solver``."""

    def __init__(self, solver: Solver, tape: Tape) -> None:
        self._solver = solver
        self._tape = tape

    async def solve(self, ask: SolverAsk) -> str:
        asked = self._tape.asked("solve", solver_messages(ask), {})
        try:
            text = await self._solver.solve(ask)
        except SolverError as error:
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
        except EngineError as error:
            self._tape.ended(asked, error=error_data(error))
            raise
        except BaseException:
            self._tape.ended(asked)
            raise
        self._tape.ended(asked, text=written.text, finish_reason=written.finish_reason)
        return written
