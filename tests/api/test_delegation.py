"""Delegated questions through the whole service: engine, orchestrator and solver each behind a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from orchestrator.runtime.subscription import Subscription
from orchestrator.session.events import DelegationEvent
from tests.api.serving import Served
from tests.bridges.chatting import until
from tests.fakes.engine import FakeEngine, Seen
from tests.fakes.solver import FakeSolver, Reply

ASKS = "<response> Let me look. <delegation> Who painted this?"
OPEN: dict[str, Any] = {"decision": {"gate": False}}


def at_first(seen: Seen) -> str:
    """Delegates once."""
    return ASKS if seen.tick == 0 else "<silence>"


def named(solver: FakeSolver, name: str = "a", **more: Any) -> dict[str, Any]:
    return {"name": name, "url": solver.url, "model": solver.model, **more}


class Watcher:
    """The only session's events, as one of its readers gets them."""

    def __init__(self, served: Served) -> None:
        (self.session,) = served.core.registry.sessions()
        self._events: Subscription = self.session.events(64)

    async def next(self) -> DelegationEvent:
        async with asyncio.timeout(60):
            async for event in self._events:
                if isinstance(event, DelegationEvent):
                    return event
        raise AssertionError("the session ended first")


@asynccontextmanager
async def watched(served: Served) -> AsyncIterator[Watcher]:
    """A session that exists and has said nothing yet: its query cleared, its gate closed."""
    assert (await served.see(0)).json()["interaction"]["reason"] == "gated"
    yield Watcher(served)


def shown(engine: FakeEngine) -> str:
    """The open turns that the model was shown."""
    return str([chat.messages[-1] for chat in engine.chats])


async def test_the_answer_reaches_the_client_at_once_and_the_model_without_a_new_frame(
    tmp_path: Path,
) -> None:
    async with FakeEngine(at_first) as engine, FakeSolver(["Vermeer."]) as solver:
        solver.hold()
        solvers = [named(solver, capabilities=["text", "images"], api_key="secret", params={"max_tokens": 9})]
        async with Served(engine, tmp_path, solvers=solvers) as served, watched(served) as watcher:
            interaction = (await served.see(1, "what is it?")).json()["interaction"]
            started = await watcher.next()
            assert interaction["text"] == "Let me look."
            assert interaction["delegated_question"] == "Who painted this?"
            assert interaction["delegation"] == {
                "question": "Who painted this?",
                "id": started.delegation_id,
                "status": "started",
                "error": None,
            }
            await solver.until(lambda: len(solver.asked) == 1)
            (asked,) = solver.asked
            assert asked.headers["authorization"] == "Bearer secret"
            assert asked.body["max_tokens"] == 9
            assert len(asked.images) == 2
            assert "<0.0 seconds>" in asked.text and "<1.0 seconds>" in asked.text
            assert "what is it?" in asked.text, "the questions and answers so far"
            assert asked.text.endswith("[Question] Who painted this?")
            text = (await served.client.get("/metrics")).text
            assert 'vigil_solver_in_flight{solver="a"} 1.0' in text

            solver.let_go()
            done = await watcher.next()
            assert (done.status, done.text, done.delegation_id) == (
                "completed",
                "Vermeer.",
                started.delegation_id,
            )
            await until(lambda: "Vermeer." in shown(engine))
            assert '[Answer to your background question "Who painted this?"] Vermeer.' in shown(engine)
            assert engine.chats[-1].images == engine.chats[-2].images, "no new frame was needed"
            text = (await served.client.get("/metrics")).text
            assert 'vigil_delegations_total{status="completed"} 1.0' in text


async def test_a_client_of_http_alone_follows_the_events(tmp_path: Path) -> None:
    async with (
        FakeEngine(at_first) as engine,
        FakeSolver(["Vermeer."]) as solver,
        Served(engine, tmp_path, solvers=[named(solver)]) as served,
    ):
        await served.see(0, "what is it?")
        seen: list[dict[str, Any]] = []
        url = "/v1/sessions/cam/events?kinds=delegation_begun,delegation_done"
        async with asyncio.timeout(60), served.client.stream("GET", url) as events:
            async for line in events.aiter_lines():
                if line.startswith("data: "):
                    seen.append(orjson.loads(line.removeprefix("data: ")))
                if len(seen) == 2:
                    break
        begun, done = seen
        assert (begun["kind"], done["kind"]) == ("delegation_begun", "delegation_done")
        assert begun["data"]["question"] == done["data"]["question"] == "Who painted this?"
        assert begun["data"]["delegation_id"] == done["data"]["delegation_id"]
        assert (done["data"]["ok"], done["data"]["text"]) == (True, "Vermeer.")


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply({"error": {"message": "key sk-1 is not known"}}, 401), "solver_refused"),
        (Reply({"error": {"message": "out of memory"}}, 500), "solver_failed"),
        (Reply(drop=True), "solver_unreachable"),
        ("", "solver_empty_answer"),
    ],
)
async def test_a_failure_reaches_client_and_model_by_its_code_alone(
    tmp_path: Path, reply: str | Reply, code: str
) -> None:
    async with (
        FakeEngine(at_first) as engine,
        FakeSolver([reply]) as solver,
        Served(engine, tmp_path, solvers=[named(solver)]) as served,
        watched(served) as watcher,
    ):
        await served.see(1, "what is it?")
        assert (await watcher.next()).status == "started"
        failed = await watcher.next()
        assert (failed.status, failed.error, failed.text) == ("failed", code, None)
        await served.see(2)
        assert f"could not be answered: {code}" in shown(engine)
        assert "sk-1" not in shown(engine) + str(failed)


@pytest.mark.parametrize("whose", ["solver", "question"])
async def test_a_solver_that_takes_too_long(tmp_path: Path, whose: str) -> None:
    """Whichever deadline passes first: that of one solver, or that of the question."""
    async with FakeEngine(at_first) as engine, FakeSolver() as solver:
        solver.hold()
        limits: dict[str, Any] = (
            {"solvers": [named(solver, deadline_s=2.0)]}
            if whose == "solver"
            else {"solvers": [named(solver)], "delegation": {"deadline_s": 2.0}}
        )
        async with Served(engine, tmp_path, **limits) as served, watched(served) as watcher:
            await served.see(1, "what is it?")
            assert (await watcher.next()).status == "started"
            assert (await watcher.next()).error == "solver_timeout"
            await solver.until(lambda: solver.asked[0].gone)
            await served.see(2)
            assert "could not be answered: solver_timeout" in shown(engine)


async def test_the_next_solver_answers_when_the_first_fails(tmp_path: Path) -> None:
    broken = Reply({"error": {"message": "down"}}, 503)
    async with FakeEngine(at_first) as engine, FakeSolver([broken]) as eyes, FakeSolver(["Words."]) as words:
        solvers = [named(words, "words"), named(eyes, "eyes", capabilities=["text", "images"])]
        async with Served(engine, tmp_path, solvers=solvers) as served, watched(served) as watcher:
            await served.see(1, "what is it?")
            assert (await watcher.next()).status == "started"
            assert (await watcher.next()).text == "Words."
            assert len(eyes.asked[0].images) == 2
            assert words.asked[0].images == []


async def test_a_question_without_frames_goes_to_the_first_solver(tmp_path: Path) -> None:
    async with FakeEngine(at_first) as engine, FakeSolver() as eyes, FakeSolver(["Words."]) as words:
        solvers = [named(words, "words"), named(eyes, "eyes", capabilities=["text", "images"])]
        more: dict[str, Any] = {"solvers": solvers, "delegation": {"frames": 0}}
        async with Served(engine, tmp_path, **more) as served, watched(served) as watcher:
            await served.see(1, "what is it?")
            assert (await watcher.next()).status == "started"
            assert (await watcher.next()).text == "Words."
            assert eyes.asked == []


async def test_the_same_question_in_work_is_not_asked_twice_and_others_are_capped(tmp_path: Path) -> None:
    said = ["Who painted this?", "who  painted THIS?", "What is it worth?", "Where is it?"]

    def script(seen: Seen) -> str:
        return f"<delegation> {said[seen.tick]}" if seen.tick < len(said) else "<silence>"

    async with FakeEngine(script) as engine, FakeSolver() as solver:
        solver.hold()
        more: dict[str, Any] = {"solvers": [named(solver)], "delegation": {"in_flight": 2}}
        async with Served(engine, tmp_path, **more) as served, watched(served) as watcher:
            told = []
            for n in range(1, 5):
                reply = await served.see(n, "what is it?" if n == 1 else None)
                told.append(reply.json()["interaction"]["delegation"])
            assert [d["status"] for d in told] == ["started", "merged", "started", "failed"]
            assert told[0]["id"] == told[1]["id"] != told[2]["id"]
            assert told[3]["error"] == "too_many_delegations"
            events = [await watcher.next() for _ in range(4)]
            assert [e.status for e in events] == ["started", "merged", "started", "failed"]
            await solver.until(lambda: len(solver.asked) == 2)
            await served.see(5)
            assert "could not be answered: too_many_delegations" in shown(engine)
            solver.let_go()
            assert {(await watcher.next()).status for _ in range(2)} == {"completed"}
            assert len(solver.asked) == 2


@pytest.mark.parametrize("how", ["reset", "shutdown"])
async def test_a_question_ends_with_its_session(tmp_path: Path, how: str) -> None:
    async with FakeEngine(at_first) as engine, FakeSolver() as solver:
        solver.hold()
        async with Served(engine, tmp_path, solvers=[named(solver)]) as served, watched(served) as watcher:
            await served.see(1, "what is it?")
            assert (await watcher.next()).status == "started"
            await solver.until(lambda: len(solver.asked) == 1)
            if how == "reset":
                await served.client.post("/reset", headers={"x-session-id": "cam"})
                assert (await watcher.next()).status == "cancelled"
                await solver.until(lambda: solver.asked[0].gone)
        await solver.until(lambda: solver.asked[0].gone)
        if how == "shutdown":
            async with Served(engine, tmp_path, solvers=[named(solver)]) as served:
                await served.see(2)
                assert "could not be answered: cancelled" in shown(engine)


async def test_without_solvers_delegation_is_off(tmp_path: Path) -> None:
    async with (
        FakeEngine([ASKS]) as engine,
        Served(engine, tmp_path) as served,
        watched(served) as watcher,
    ):
        told = [(await served.see(n, "what?")).json()["interaction"]["delegation"] for n in (1, 2, 3)]
        assert [(d["status"], d["error"]) for d in told] == [("failed", "no_solver")] * 3
        assert (await watcher.next()).error == "no_solver"
        assert shown(engine).count("no_solver") == 1
