"""Questions that a model hands to a background solver while it goes on talking, by a tool of Vigil's own.

The engine is given the tool beside the client's; its calls never reach the client, which is told of the
delegation instead. An answer goes to the engine session that asked; where that is gone, the one that runs
now is told of it, and every later one knows it from memory.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bridges.duplex_client.link import ToolCall
from bridges.solver import SolverAsk, SolverFrame
from memory.facts import DelegationBegun, DelegationDone
from memory.utterances import clock, flat
from orchestrator.backends.native.options import DelegatingOptions
from orchestrator.backends.native.remembered import Remembered, language_of
from orchestrator.backends.solvers import Solver, solved
from orchestrator.session.backend import Clock, Delegation, Ids, SessionConfig
from orchestrator.session.fence import Fence
from prompts.conversation import NAMES, Telling, telling

TOOL = "delegate"
OTHER_DOOR = "realtime_tools"
"""Of ``extra_body``: where some clients put their tools."""
MAX_TOOLS = 5
"""That engines take; the client's own come first."""
MAX_QUESTION = 4000
"""Characters; a longer question is cut."""
LINES = 12
"""Of the talk that go along with a question."""
TARGET = 200
"""Tokens asked for."""

Answer = Callable[[str], Awaitable[None]]
"""Gives the output of one call back to the engine."""


@dataclass(slots=True)
class _Flight:
    delegation_id: str
    question: str
    answers: list[Answer]
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Delegating:
    """One session's. ``tell``: puts an output into its stream."""

    solver: Solver
    memory: Remembered
    clock: Clock
    ids: Ids
    tell: Callable[[Delegation], Awaitable[None]]
    options: DelegatingOptions
    _flights: dict[str, _Flight] = field(default_factory=dict)
    _frames: deque[tuple[int, bytes]] = field(default_factory=deque)
    offered: bool = False
    """The model has the tool: a call of that name is ours."""

    def saw(self, frames: Sequence[bytes], media_time_ms: int) -> None:
        """A unit showed these, the picture itself first."""
        self._frames.append((media_time_ms, frames[0]))
        while len(self._frames) > self.options.frames:
            self._frames.popleft()

    def among(self, config: SessionConfig) -> SessionConfig:
        """The configuration with our tool beside the client's, where it finds room and its name is free."""
        other = isinstance(config.extra_body.get(OTHER_DOOR), list)
        asked = config.extra_body[OTHER_DOOR] if other else config.echo.get("tools")
        own = list(asked) if isinstance(asked, list) else []
        names = {tool.get("name") for tool in own if isinstance(tool, Mapping)}
        self.offered = len(own) < MAX_TOOLS and TOOL not in names
        if not self.offered:
            return config
        tools = [*own, _tool(telling(language_of(config.language)))]
        if other:
            return replace(config, extra_body={**config.extra_body, OTHER_DOOR: tools})
        return replace(config, echo={**config.echo, "tools": tools})

    async def called(self, call: ToolCall, fence: Fence, answer: Answer) -> None:
        """Take a question: it is started, merged with one in flight, or refused."""
        question = _question(call.arguments)
        if question is None:
            await answer(_output(error="invalid_arguments"))
            return
        key = question.casefold()
        if (known := self._flights.get(key)) is not None:
            known.answers.append(answer)
            await self.tell(Delegation(fence, known.delegation_id, "merged", question))
            return
        delegation_id = self.ids("dlg")
        if len(self._flights) >= self.options.in_flight:
            await self.tell(
                Delegation(fence, delegation_id, "failed", question, error="too_many_delegations")
            )
            await answer(_output(error="too_many_delegations"))
            return
        flight = self._flights[key] = _Flight(delegation_id, question, [answer])
        now_ms = self.memory.now_ms
        self.memory.write(
            DelegationBegun(delegation_id=delegation_id, question=question, media_time_ms=now_ms, tick=0)
        )
        await self.tell(Delegation(fence, delegation_id, "started", question))
        flight.task = asyncio.create_task(self._run(key, flight, fence), name=f"delegation {delegation_id}")

    async def cancel(self) -> None:
        """End what is in flight; the log says so."""
        flights, self._flights = list(self._flights.values()), {}
        tasks = [flight.task for flight in flights if flight.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for flight in flights:
            self._done(flight, "cancelled", ok=False)

    def statistics(self) -> dict[str, int]:
        return {"in_flight": len(self._flights), "cap": self.options.in_flight}

    # --- parts ----------------------------------------------------------------------------------------

    async def _run(self, key: str, flight: _Flight, fence: Fence) -> None:
        text, error = await solved(
            self.solver, self._ask(flight.question), self.clock, self.options.deadline_s, flat
        )
        self._flights.pop(key, None)
        self._done(flight, text if error is None else error, ok=error is None)
        for answer in flight.answers:
            await answer(_output(text, error))
        status = "completed" if error is None else "failed"
        told = Delegation(
            fence, flight.delegation_id, status, flight.question, text if error is None else None, error
        )
        await self.tell(told)

    def _ask(self, question: str) -> SolverAsk:
        spoken = self.memory.memory.spoken
        tell = spoken.telling
        system = tell.solver.format(language=NAMES.get(tell.language, tell.language), target=TARGET)
        said = [spoken.line(line) for line in self.memory.memory.recent[-LINES:]]
        asked = f"{tell.line('question')}\n{spoken.clean(question)}"
        text = "\n\n".join(part for part in ("\n".join(said), asked) if part)
        return SolverAsk(system, text, tuple(SolverFrame(clock(ms), data) for ms, data in self._frames))

    def _done(self, flight: _Flight, text: str, *, ok: bool) -> None:
        self.memory.write(
            DelegationDone(
                delegation_id=flight.delegation_id,
                question=flight.question,
                text=text,
                ok=ok,
                media_time_ms=self.memory.now_ms,
            )
        )


def _tool(tell: Telling) -> dict[str, Any]:
    question = {"type": "string", "description": tell.line("tool_question")}
    schema = {"type": "object", "properties": {"question": question}, "required": ["question"]}
    return {"type": "function", "name": TOOL, "description": tell.line("tool"), "parameters": schema}


def _question(arguments: str) -> str | None:
    try:
        given = json.loads(arguments)
    except ValueError:
        return None
    question = given.get("question") if isinstance(given, dict) else None
    return flat(question)[:MAX_QUESTION] or None if isinstance(question, str) else None


def _output(text: str = "", error: str | None = None) -> str:
    return json.dumps({"answer": text} if error is None else {"error": error}, ensure_ascii=False)
