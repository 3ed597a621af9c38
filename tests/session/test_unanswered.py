"""What waits for an answer is taken by asking for one, and given back by one that said nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.unanswered import Unanswered

STEPS = ("record", "say", "ask", "vain", "clear")


def test_an_answer_takes_all_and_one_without_a_word_gives_it_back() -> None:
    waiting = Unanswered()
    waiting.recorded = True
    waiting.said()
    waiting.ask()
    assert (waiting.recorded, waiting.messages) == (False, 0)
    waiting.said()
    waiting.asked_in_vain()
    assert (waiting.recorded, waiting.messages) == (True, 2)


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_nothing_is_answered_that_was_not_given(steps: list[str]) -> None:
    waiting, said, recorded = Unanswered(), 0, False
    for number, step in enumerate(steps):
        if step == "record":
            waiting.recorded = recorded = True
        elif step == "say":
            waiting.said()
            said += 1
        elif step == "ask":
            waiting.ask()
        elif step == "clear":
            waiting.clear()
        elif "ask" in steps[:number] and "vain" not in steps[:number]:
            waiting.asked_in_vain()
        assert 0 <= waiting.messages <= said and (recorded or not waiting.recorded)
        if step in ("ask", "clear"):
            assert (waiting.recorded, waiting.messages) == (False, 0)
