"""What happens when an answer begins while another one is still being spoken, by policy."""

from __future__ import annotations

import itertools

import pytest

from orchestrator.backends.speech_turns import SpeechTurns
from orchestrator.backends.spoken import SpokenOptions
from orchestrator.session.backend import (
    Action,
    AudioDelta,
    Decision,
    SpeechPolicy,
    TextDelta,
    TickDone,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from tests.backends.test_spoken import Spoken, answer, ended, spoken
from tests.fakes.backend import START, tick_done

LONG = "one, two, three, four, five, six, seven, eight. "
WHOLE = 16
"""Chunks that say all of it."""
QUEUE, INTERRUPT, LATEST = SpeechPolicy.QUEUE, SpeechPolicy.INTERRUPT, SpeechPolicy.LATEST


def sound_by_answer(rig: Spoken) -> list[int]:
    """Chunks of sound of each answer, in order."""
    counts, count = [], 0
    for output in rig.out:
        if isinstance(output, AudioDelta):
            count += 1
        elif isinstance(output, TurnEnd):
            counts.append(count)
            count = 0
    return counts


@pytest.mark.parametrize(
    ("policy", "spoken_ones"),
    [
        (QUEUE, (True, True, True, True)),
        (LATEST, (True, False, False, True)),
        (INTERRUPT, (True, True, True, True)),
    ],
)
async def test_three_answers_come_while_the_first_is_spoken(
    policy: SpeechPolicy, spoken_ones: tuple[bool, ...]
) -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5, policy=policy))
    texts = [LONG, "Second. ", "Third. ", "Fourth."]
    await rig.emits(*answer(texts[0]))
    for tick, text in enumerate(texts[1:], 1):
        await rig.emits(*answer(text, tick=tick), tick_done(START, tick, ()))
    await rig.clock.advance(60.0)
    assert rig.text == "".join(texts), "text is never withheld"
    assert tuple(count > 0 for count in sound_by_answer(rig)) == spoken_ones
    assert (sound_by_answer(rig)[0] < WHOLE) is (policy is INTERRUPT)
    assert len(rig.of(TurnEnd)) == 4 and len(rig.of(TickDone)) == 3
    await ended(rig)


@pytest.mark.parametrize(("policy", "at_once"), [(QUEUE, False), (LATEST, False), (INTERRUPT, True)])
async def test_how_soon_the_next_answer_is_heard(policy: SpeechPolicy, at_once: bool) -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5), speech_policy=policy)
    await rig.emits(*answer(LONG))
    await rig.emits(*answer("Next.", tick=1))
    assert rig.text.endswith("Next.") is at_once
    if at_once:
        order = [type(o) for o in rig.out if isinstance(o, Decision | TurnEnd)]
        assert order == [Decision, TurnEnd, Decision, TurnEnd]
    await rig.clock.advance(60.0)
    assert rig.text == LONG + "Next."
    await ended(rig)


@pytest.mark.parametrize("policy", list(SpeechPolicy))
async def test_a_cancel_leaves_nothing_that_waited_and_the_next_answer_is_spoken(
    policy: SpeechPolicy,
) -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5, policy=policy))
    await rig.emits(*answer(LONG), *answer("Second. ", tick=1), *answer("Third. ", tick=2))
    await rig.backend.cancel(START, Fence(1, 0))
    await rig.clock.advance(5.0)
    before = rig.text
    assert "Third" not in before or policy is not QUEUE
    await rig.emits(*answer("New.", Fence(1, 0), tick=3))
    assert rig.text == before + "New."
    assert rig.of(AudioDelta)[-1].fence == Fence(1, 0)
    await ended(rig)


async def test_a_decision_without_words_interrupts_nobody() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5, policy=INTERRUPT))
    await rig.emits(*answer(LONG), Decision(START, 1, Action.DELEGATE), tick_done(START, 1, ()))
    await rig.clock.advance(60.0)
    assert sound_by_answer(rig) == [WHOLE]
    await ended(rig)


@pytest.mark.parametrize("policy", list(SpeechPolicy))
def test_the_newest_may_always_be_spoken(policy: SpeechPolicy) -> None:
    for ends in itertools.product([True, False], repeat=3):
        turns = SpeechTurns()
        for number, end in enumerate(ends, 1):
            assert turns.came(TextDelta(START, "a"), policy)
            assert not turns.came(TextDelta(START, "b"), policy)
            assert turns.newest == number and turns.spoken(number)
            assert turns.spoken(number - 1) is (policy is QUEUE and number > 1)
            if end:
                turns.came(TurnEnd(START), policy)
            else:
                turns.cancelled()
