"""A model that calls tools hands a question to a background solver: its answer comes back to the engine."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from bridges.duplex_client.link import ToolCall
from bridges.solver import SolverAsk, SolverError
from memory.facts import DelegationBegun, SpokenOpened
from orchestrator.backends.native.delegating import MAX_TOOLS, TOOL
from orchestrator.backends.native.options import DelegatingOptions, NativeOptions
from orchestrator.session.events import DelegationEvent, ResponseCreated
from tests.backends.native.harness import JPEG, Rig, open_rig
from tests.backends.native.test_tools import WITH_TOOLS
from tests.fakes.clock import settle
from tests.fakes.link import listen


@dataclass
class Solver:
    """Answers when it is let to, with ``text`` or an error."""

    text: str = "It was built in 1889."
    error: Exception | None = None
    asked: list[SolverAsk] = field(default_factory=list)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def solve(self, ask: SolverAsk) -> str:
        self.asked.append(ask)
        await self.ready.wait()
        if self.error is not None:
            raise self.error
        return self.text


async def asking(solver: Solver, question: str = "When was the tower built?", **more: Any) -> Rig:
    rig = await open_rig(WITH_TOOLS, script=lambda link, unit: [listen()], solver=solver, **more)
    await rig.append(1000, JPEG + b"1")
    await rig.say(call(question))
    return rig


def call(question: str, call_id: str = "engine-call") -> ToolCall:
    return ToolCall(call_id, TOOL, json.dumps({"question": question}))


def told(rig: Rig) -> list[tuple[str, str | None, str | None]]:
    return [(event.status, event.text, event.error) for event in rig.of(DelegationEvent)]


def outputs(rig: Rig) -> list[Any]:
    items = rig.link.named("add_item")
    return [json.loads(item["output"]) for item in items if item["type"] == "function_call_output"]


async def test_a_question_is_answered_while_the_talk_goes_on() -> None:
    solver = Solver()
    rig = await asking(solver)
    (tool,) = rig.link.body["tools"]
    assert tool["name"] == TOOL and tool["parameters"]["required"] == ["question"]
    assert told(rig) == [("started", None, None)] and outputs(rig) == []
    await rig.append(1000)
    assert len(rig.link.units) == 2
    solver.ready.set()
    await settle()
    assert outputs(rig) == [{"answer": "It was built in 1889."}]
    assert rig.link.named("add_item")[0]["call_id"] == "engine-call"
    assert told(rig)[-1] == ("completed", "It was built in 1889.", None)
    assert rig.of(ResponseCreated) == [] and rig.codes() == []
    (ask,) = solver.asked
    assert ask.text.endswith("[Question]\nWhen was the tower built?")
    assert [frame.data for frame in ask.frames] == [JPEG + b"1"]
    seed = rig.backend._memory.seed()
    assert "had this looked up: When was the tower built? - It was built in 1889.)" in seed


async def test_the_same_question_is_asked_once_and_answered_to_each_call() -> None:
    solver = Solver()
    rig = await asking(solver)
    await rig.say(call("when was the tower built?", "second"))
    assert [status for status, _, _ in told(rig)] == ["started", "merged"]
    solver.ready.set()
    await settle()
    assert len(solver.asked) == 1 and outputs(rig) == [{"answer": solver.text}] * 2


async def test_a_solver_that_fails_is_late_or_has_no_room_is_told_to_model_and_client() -> None:
    solver = Solver(error=SolverError("solver_unreachable", "http://secret"))
    solver.ready.set()
    rig = await asking(solver)
    await settle()
    assert told(rig)[-1] == ("failed", None, "solver_unreachable")
    assert outputs(rig) == [{"error": "solver_unreachable"}]
    assert "looked up, in vain: When was the tower built? - solver_unreachable" in rig.backend._memory.seed()

    late = Solver()
    options = NativeOptions(delegating=DelegatingOptions(in_flight=1, deadline_s=30))
    rig = await asking(late, options=options)
    await rig.say(call("Who built it?", "second"))
    assert told(rig)[-1] == ("failed", None, "too_many_delegations")
    for _ in range(31):
        await rig.clock.advance(1)
    assert told(rig)[-1] == ("failed", None, "solver_timeout")
    assert outputs(rig) == [{"error": "too_many_delegations"}, {"error": "solver_timeout"}]


async def test_arguments_that_are_no_question_are_refused_to_the_model_alone() -> None:
    rig = await asking(Solver())
    for number, arguments in enumerate(("", "[]", '{"question": 3}', '{"question": " "}')):
        await rig.say(ToolCall(f"c{number}", TOOL, arguments))
    assert outputs(rig) == [{"error": "invalid_arguments"}] * 4
    assert len(told(rig)) == 1 and rig.codes() == []


async def test_an_answer_reaches_the_engine_session_that_runs_then() -> None:
    solver = Solver()
    rig = await asking(solver)
    rig.link.end()
    await rig.clock.advance(5)
    assert len(rig.links.made) == 2
    solver.ready.set()
    await settle()
    (item,) = rig.link.named("add_item")
    assert item["role"] == "system" and solver.text in item["content"][0]["text"]
    assert rig.link.body["tools"][0]["name"] == TOOL


async def test_the_clients_own_tools_come_first() -> None:
    mine = [{"type": "function", "name": f"tool{n}"} for n in range(MAX_TOOLS)]
    for tools, ours in ((mine, 0), (mine[:2], 1), ([{"type": "function", "name": TOOL}], 0)):
        rig = await open_rig(WITH_TOOLS, solver=Solver(), echo={"tools": tools})
        given = rig.link.body["tools"]
        assert given[: len(tools)] == tools and len(given) == len(tools) + ours
    await rig.say(call("mine?"))
    assert len(rig.of(ResponseCreated)) == 1 and told(rig) == []


async def test_a_close_ends_what_is_in_flight_and_a_restart_says_so() -> None:
    solver = Solver()
    rig = await asking(solver)
    await rig.finish()
    (done,) = rig.facts("delegation_done")
    assert (done["ok"], done["text"]) == (False, "cancelled")

    history = [
        SpokenOpened(family="made_up", digest="0", language="en", seed_tokens=512),
        DelegationBegun(delegation_id="d", question="When?", media_time_ms=0, tick=0),
    ]
    rig = await open_rig(WITH_TOOLS, solver=solver, history=history)
    await settle()
    assert told(rig) == [("failed", None, "restarted")]
    assert [fact["text"] for fact in rig.facts("delegation_done")] == ["restarted"]
