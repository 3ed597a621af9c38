"""Two real engines: the stand-in watches and hands questions over, a real language model answers them.

Contract: every question that was taken is answered in words; the answer reaches the client as it comes, and
the model in one open turn that stays in its window, byte for byte, with every other turn.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from bridges.solver import ChatSolver, SolverAsk
from memory.facts import DelegationBegun, DelegationDone
from memory.lines import Lines
from memory.render import solver_prompt
from prompts.loader import load_pack
from tests.engine.watching import Watched, pictures, watch
from tests.engine_launch.real_engine import RealEngine

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]  # two engines may have to be booted

TICKS = 60
MODEL = "smollm2"
PATIENCE_S = 240.0
"""Longer than anyone would wait: the two engines may share their cores with others."""


@pytest.fixture(scope="module")
def watched(engine: RealEngine, words_engine: str, tmp_path_factory: pytest.TempPathFactory) -> Watched:
    solver = {"name": "words", "url": words_engine, "model": MODEL, "params": {"max_tokens": 24}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIGIL_SOLVERS", json.dumps([solver | {"deadline_s": PATIENCE_S}]))
        patch.setenv("VIGIL_DELEGATION__DEADLINE_S", str(PATIENCE_S))
        return asyncio.run(watch(engine, tmp_path_factory.mktemp("run"), pictures(TICKS), seed=5))


def answers(watched: Watched) -> list[DelegationDone]:
    return [fact for fact in watched.facts if isinstance(fact, DelegationDone)]


def test_every_question_is_answered_in_words(watched: Watched) -> None:
    assert (watched.outcome, watched.error) == ("complete", None)
    begun = {fact.delegation_id for fact in watched.facts if isinstance(fact, DelegationBegun)}
    assert begun
    assert {done.delegation_id for done in answers(watched)} == begun
    for done in answers(watched):
        assert done.ok, done.text
        assert len(done.text.split()) >= 3
        assert "<|" not in done.text


def test_the_client_is_told_each_answer(watched: Watched) -> None:
    told = Counter(watched.notices)
    assert told["delegation_completed"] == len(answers(watched))
    assert told["delegation_failed"] == 0


def test_the_model_is_shown_each_answer_in_one_turn_that_stays(watched: Watched) -> None:
    for done in answers(watched):
        line = Lines(load_pack("joyvl"), "en").delegation(done.question, done.text, done.ok)
        turns = [[turn for turn in users(request.messages) if line in turn] for request in watched.asked]
        first = next(n for n, shown in enumerate(turns) if shown)
        assert {len(shown) for shown in turns[first:]} == {1}, "no later prompt lost or repeats it"
        assert len({turn for (turn,) in turns[first:]}) == 1


def test_reuse_is_as_promised_around_answers(watched: Watched) -> None:
    rows = [row for row in watched.rows if row["cached_tokens"] is not None]
    kept = [row["cached_tokens"] >= row["expected_cached_tokens"] for row in rows]
    assert sum(kept) / len(kept) >= 0.98


async def test_the_prompt_for_solvers_gets_an_answer_to_the_question(words_engine: str) -> None:
    pack = load_pack("joyvl")
    question = "What is the capital of France?"
    prompt = solver_prompt(pack, "en", question=question, note="Let me look.", qa=(), target=60)
    params = {"max_tokens": 24, "temperature": 0}
    solver = ChatSolver("words", words_engine, MODEL, params, deadline_s=PATIENCE_S)
    try:
        assert "Paris" in await solver.solve(SolverAsk(prompt.system, prompt.text))
    finally:
        await solver.aclose()


def users(messages: Any) -> list[str]:
    """The text of each user turn."""
    return [
        "".join(part.get("text", "") for part in message["content"])
        for message in messages
        if message["role"] == "user" and not isinstance(message["content"], str)
    ]
