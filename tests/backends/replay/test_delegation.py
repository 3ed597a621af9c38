"""Delegated questions: started, merged, capped, answered, failed, cancelled; told to model and client."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.plan import Limits
from orchestrator.backends.replay.delegation import SolverFrame
from orchestrator.backends.replay.loop import GRACE_S
from orchestrator.session.backend import Action, Closed, Decision, Delegation, TextDelta, TurnEnd
from tests.backends.replay.harness import SILENCE, Asked, Session
from tests.fakes.clock import settle

ASKS = "</response> Let me look. </delegation> Who painted this?"


class ScriptedSolver:
    """Answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, list[SolverFrame], str]] = []
        self.answers: dict[str, asyncio.Future[str]] = {}

    async def solve(self, question: str, note: str, frames: Sequence[SolverFrame], qa: str) -> str:
        self.asked.append((question, note, list(frames), qa))
        self.answers[question] = asyncio.get_running_loop().create_future()
        return await self.answers[question]


def statuses(s: Session) -> list[str]:
    return [d.status for d in s.of(Delegation)]


async def test_flaw_3_a_result_reaches_client_and_model_at_once() -> None:
    solver = ScriptedSolver()
    async with Session([ASKS, SILENCE], solver=solver) as s:
        await s.frame()
        assert s.spoken == "Let me look."
        assert solver.asked[0][:2] == ("Who painted this?", "Let me look.")
        assert [f.data for f in solver.asked[0][2]] == [b"jpeg 0"]
        assert s.rows[0]["action"] == "delegate" and s.rows[0]["question"] == "Who painted this?"
        solver.answers["Who painted this?"].set_result("Vermeer.")
        await s.clock.advance(GRACE_S)
        assert statuses(s) == ["started", "completed"]
        assert s.of(Delegation)[1].text == "Vermeer."
        assert "Vermeer." in s.engine.decisions[1].text
        kinds = [f.kind for f in s.log.facts if f.kind.startswith("delegation")]
        assert kinds == ["delegation_begun", "delegation_done"]


async def test_a_question_without_a_note_is_a_delegate_decision_without_text() -> None:
    async with Session(["</delegation> Who?"], solver=ScriptedSolver()) as s:
        await s.frame()
        assert s.of(Decision)[0].action is Action.DELEGATE
        assert s.of(TextDelta) == [] and len(s.of(TurnEnd)) == 1


async def test_flaw_15_no_delegation_storm() -> None:
    """Thirty ticks that ask the same give one task; its note is heard once; other questions are capped."""
    solver = ScriptedSolver()
    async with Session([ASKS], solver=solver) as s:
        await s.run_frames(30)
        assert len(solver.asked) == 1
        assert statuses(s) == ["started", *["merged"] * 29]
        assert len({d.delegation_id for d in s.of(Delegation)}) == 1
        assert s.spoken == "Let me look."
        assert [row["action"] for row in s.rows] == ["delegate"] * 30

    def script(asked: Asked) -> str:
        return f"</delegation> question {len(s.engine.decisions)}"

    async with Session(script, solver=ScriptedSolver()) as s:
        await s.run_frames(7)
        assert statuses(s) == ["started"] * 4 + ["dropped"] * 3
        assert s.of(Delegation)[-1].error == "too_many_delegations"


async def test_flaw_22_results_of_the_same_moment_all_arrive_and_errors_reach_both() -> None:
    solver = ScriptedSolver()
    script = ["</delegation> one?", "</delegation> two?", "</delegation> three?", SILENCE]
    async with Session(script, solver=solver) as s:
        await s.run_frames(3)
        solver.answers["one?"].set_result("first answer")
        solver.answers["two?"].set_result("second answer")
        solver.answers["three?"].set_exception(RuntimeError("no network"))
        await s.clock.advance(GRACE_S)
        await s.frame()
        shown = "".join(a.text for a in s.engine.decisions[3:])
        for text in ("first answer", "second answer", "no network"):
            assert text in shown
        assert sorted(statuses(s)[3:]) == ["completed", "completed", "failed"]
        failed = next(d for d in s.of(Delegation) if d.status == "failed")
        assert failed.error == "RuntimeError: no network" and failed.text is None


async def test_flaw_22_the_solver_sees_recent_frames_across_a_handover() -> None:
    solver = ScriptedSolver()

    def script(asked: Asked) -> str:
        return ASKS if len(s.engine.decisions) == 25 else SILENCE

    window = Limits(chunk_frames=8, max_images=16, context_tokens=16384)
    async with Session(script, solver=solver, window=window) as s:
        await s.run_frames(25)
        assert len(s.log.of("window_switched")) >= 2
        assert len(solver.asked[0][2]) == 8


async def test_a_solver_that_never_answers_times_out() -> None:
    async with Session([ASKS, SILENCE], solver=ScriptedSolver()) as s:
        await s.frame()
        await s.clock.advance(60)
        assert statuses(s) == ["started", "failed"]
        assert s.of(Delegation)[1].error == "timeout"


async def test_an_empty_result_is_a_failure() -> None:
    solver = ScriptedSolver()
    async with Session([ASKS, SILENCE], solver=solver) as s:
        await s.frame()
        solver.answers["Who painted this?"].set_result("  ")
        await settle()
        assert s.of(Delegation)[1].error == "empty_answer"


async def test_without_a_solver_the_client_still_sees_the_question() -> None:
    async with Session([ASKS, SILENCE]) as s:
        await s.frame()
        told = s.of(Delegation)[0]
        assert (told.status, told.question, told.error) == ("dropped", "Who painted this?", "no_solver")
        assert s.spoken == "Let me look."
        assert s.log.of("delegation_begun") == []


async def test_the_standing_query_is_the_question_of_a_delegation_without_one() -> None:
    solver = ScriptedSolver()
    async with Session(["</response> Hm. </delegation>"], solver=solver) as s:
        await s.ask("what breed is it?")
        assert solver.asked[0][0] == "what breed is it?"


async def test_delegations_end_with_the_session() -> None:
    s = Session([ASKS], solver=ScriptedSolver())
    async with s:
        await s.frame()
    assert statuses(s) == ["started", "cancelled"]
    assert isinstance(s.outputs[-1], Closed)
    assert not [t for t in asyncio.all_tasks() if t.get_name().startswith("delegation")]


async def test_the_same_question_may_be_asked_again_once_it_was_answered() -> None:
    solver = ScriptedSolver()
    async with Session([ASKS, SILENCE, ASKS, SILENCE], solver=solver) as s:
        await s.frame()
        solver.answers["Who painted this?"].set_result("Vermeer.")
        await s.clock.advance(GRACE_S)
        await s.frame()
        assert len(solver.asked) == 2
