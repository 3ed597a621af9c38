"""Background solvers: chat endpoints that answer what a watching model hands over.

A question comes from a model as plain text, and its text is never searched for what kind of solver it may
need. What a solver can do is declared (``ChatSolver(images=True)``), and the choice rests on what is known
without reading the question; see :class:`SolverChain`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridges.chat_endpoint import split_url, text_of
from bridges.circuit import Clock
from bridges.engine import (
    Deadlines,
    EngineError,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
)
from bridges.image_ledger import data_url
from bridges.text_engine import TextEngine

ANSWER_CHARS = 8000
"""A longer answer is cut there: it is data of a stranger, kept in memory and sent on."""

_CONNECT_S = 5.0

_log = logging.getLogger(__name__)


class SolverError(Exception):
    """Why there is no answer.

    :param code: ``solver_timeout``, ``solver_unreachable``, ``solver_refused`` (4xx), ``solver_failed``
        (5xx, or no answer in it), ``solver_busy`` or ``solver_empty_answer``
    :param message: for logs alone: it may hold what the endpoint said, its address or a key
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class SolverFrame:
    """A recent frame: its time as a caption, and its encoded bytes (JPEG or PNG)."""

    caption: str
    data: bytes


@dataclass(frozen=True, slots=True)
class SolverAsk:
    """A question ready to send: no text in it holds a control token.

    :param system: what is wanted of a solver
    :param text: the question and what was said around it
    :param frames: the newest frames, oldest first; shown to solvers that take images
    """

    system: str
    text: str
    frames: tuple[SolverFrame, ...] = ()


class ChatSolver:
    """One OpenAI-compatible chat endpoint. Shared by all sessions.

    :param url: see ``chat_endpoint.split_url``
    :param images: it takes pictures
    :param deadline_s: of one answer, waiting for a free place included
    :param max_in_flight: requests at a time; as many again may wait, any further one is refused
    :param params: sent with each request as they are: length, sampling
    """

    def __init__(
        self,
        name: str,
        url: str,
        model: str,
        params: Mapping[str, Any],
        *,
        api_key: str | None = None,
        images: bool = False,
        deadline_s: float = 30.0,
        max_in_flight: int = 4,
        clock: Clock | None = None,
    ) -> None:
        self.name = name
        self.images = images
        self._model = model
        self._params = params
        self._places = max_in_flight
        self._in_work = 0
        self._counts = {"answered": 0, "failed": 0, "cancelled": 0}
        root, path = split_url(url)
        self._chat = TextEngine(
            root,
            path=path,
            api_key=api_key,
            deadlines=Deadlines(deadline_s, deadline_s),
            connect_s=_CONNECT_S,
            max_connections=max_in_flight,
            clock=clock,
        )

    @property
    def full(self) -> bool:
        """One more question would have to wait."""
        return self._in_work >= self._places

    async def solve(self, ask: SolverAsk) -> str:
        """The answer. Cancelling it closes the request. Raises :class:`SolverError`."""
        if self._in_work >= 2 * self._places:
            self._counts["failed"] += 1
            raise SolverError("solver_busy", f"{self._in_work} questions are in work or waiting")
        self._in_work += 1
        outcome = "cancelled"
        try:
            text = _answer(await self._chat.complete(self._body(ask)))
            outcome = "answered"
        except EngineError as error:
            outcome = "failed"
            raise SolverError(_code(error), error.message) from error
        except SolverError:
            outcome = "failed"
            raise
        finally:
            self._in_work -= 1
            self._counts[outcome] += 1
        return text

    def statistics(self) -> dict[str, int]:
        waiting = max(0, self._in_work - self._places)
        return {"in_flight": self._in_work - waiting, "waiting": waiting, "cap": self._places, **self._counts}

    async def aclose(self) -> None:
        await self._chat.aclose()

    def _body(self, ask: SolverAsk) -> dict[str, Any]:
        content: str | list[dict[str, Any]] = ask.text
        if self.images and ask.frames:
            content = []
            for frame in ask.frames:
                content.append({"type": "text", "text": frame.caption})
                content.append({"type": "image_url", "image_url": {"url": data_url(frame.data)}})
            content.append({"type": "text", "text": ask.text})
        messages = [{"role": "system", "content": ask.system}, {"role": "user", "content": content}]
        return {**self._params, "model": self._model, "messages": messages, "stream": False}


class SolverChain:
    """Several solvers as one.

    A question that comes with frames asks for ``images``; one without asks for nothing. Solvers that declare
    what is asked for come before the others, which are shown no frames; inside each group their order is
    their priority, except that one without a free place comes after those that have one. The next is asked
    when one fails.
    """

    def __init__(self, solvers: Sequence[ChatSolver]) -> None:
        if not solvers:
            raise ValueError("a chain needs at least one solver")
        self._solvers = tuple(solvers)

    def order(self, ask: SolverAsk) -> list[ChatSolver]:
        """Who is asked, first to last."""
        wanted = bool(ask.frames)
        return sorted(self._solvers, key=lambda solver: (wanted and not solver.images, solver.full))

    async def solve(self, ask: SolverAsk) -> str:
        """The first answer. Raises the last :class:`SolverError` when there is none."""
        failure: SolverError | None = None
        for solver in self.order(ask):
            try:
                return await solver.solve(ask)
            except SolverError as error:
                _log.warning("solver %s: %s", solver.name, error)
                failure = error
        assert failure is not None
        raise failure

    def statistics(self) -> dict[str, dict[str, int]]:
        return {solver.name: solver.statistics() for solver in self._solvers}

    async def aclose(self) -> None:
        for solver in self._solvers:
            await solver.aclose()


def _answer(reply: Mapping[str, Any]) -> str:
    try:
        text = text_of(reply)
    except ValueError as wrong:
        raise SolverError("solver_failed", str(wrong)) from None
    if not text:
        raise SolverError("solver_empty_answer", "the reply has no text")
    return text if len(text) <= ANSWER_CHARS else text[: ANSWER_CHARS - 1] + "…"


def _code(error: EngineError) -> str:
    match error:
        case EngineTimeout():
            return "solver_timeout"
        case EngineUnreachable():
            return "solver_unreachable"
        case EngineRefused():
            return "solver_refused"
        case _:
            return "solver_failed"
