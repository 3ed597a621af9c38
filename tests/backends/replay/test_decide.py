from __future__ import annotations

import math

import pytest

from memory.facts import PersonaSet, QueryClearedFact, QuerySet, TickAnswered
from orchestrator.backends.replay.decide import (
    Ask,
    DecideOptions,
    DecisionPoint,
    DecisionPolicy,
    Reason,
    ThresholdRefused,
    speak_score,
    threshold_bias,
    tick_deadlines,
)
from tests.backends.replay.packs import JOYVL

QUERY = QuerySet(query_id="q1", text="tell me", media_time_ms=0)
SPEAK = DecisionPoint(0, response=7, silence=8)


def answered(
    tick: int, *, healthy: bool | None = True, silence: bool = False, text: str = ""
) -> TickAnswered:
    return TickAnswered(
        tick=tick,
        media_time_ms=tick * 1000,
        action="response" if text else "silence",
        said="</silence>",
        said_is_generated=False,
        text=text,
        metrics={"healthy": healthy, "genuine_silence": silence},
    )


def ask(policy: DecisionPolicy, *, words: bool = False, auto: bool = True) -> Ask:
    return policy.ask(words=words, auto=auto)[0]


def test_gate_is_shut_until_the_first_query_and_never_shuts_again() -> None:
    policy = DecisionPolicy(JOYVL, DecideOptions())
    assert policy.ask(words=False, auto=True) == (Ask.NOBODY, Reason.GATED)
    policy.apply(QUERY)
    assert ask(policy) is Ask.ENGINE
    policy.apply(QueryClearedFact(media_time_ms=1))
    assert ask(policy) is Ask.ENGINE


def test_watch_personas_run_from_the_start() -> None:
    policy = DecisionPolicy(JOYVL, DecideOptions())
    policy.apply(PersonaSet(persona="talkative"))
    assert ask(policy) is Ask.ENGINE


def test_gate_can_be_configured_away() -> None:
    assert ask(DecisionPolicy(JOYVL, DecideOptions(gate=False))) is Ask.ENGINE


def test_turn_mode_records_until_words_are_wanted() -> None:
    policy = DecisionPolicy(JOYVL, DecideOptions(gate=False))
    assert policy.ask(words=False, auto=False) == (Ask.NOBODY, Reason.NOT_ASKED)
    assert ask(policy, words=True, auto=False) is Ask.ENGINE


def test_breaker_stops_speech_probes_and_recovers() -> None:
    policy = DecisionPolicy(JOYVL, DecideOptions(gate=False, unhealthy_limit=3, probe_every=4))
    for tick in range(3):
        assert ask(policy) is Ask.ENGINE
        policy.apply(answered(tick, healthy=False))
    assert policy.stopped
    asked = []
    for tick in range(3, 11):
        asked.append(policy.ask(words=False, auto=True))
        policy.apply(answered(tick, healthy=False if asked[-1][0] is Ask.PROBE else None))
    nobody, probe = (Ask.NOBODY, Reason.UNHEALTHY), (Ask.PROBE, Reason.UNHEALTHY)
    assert asked == [nobody, nobody, nobody, probe, nobody, nobody, nobody, probe]
    policy.apply(QUERY)
    assert ask(policy) is Ask.PROBE
    policy.apply(answered(11))
    assert policy.stopped and ask(policy) is Ask.PROBE
    policy.apply(answered(12))
    assert not policy.stopped and ask(policy) is Ask.ENGINE


def test_one_healthy_answer_resets_the_count() -> None:
    policy = DecisionPolicy(JOYVL, DecideOptions(gate=False, unhealthy_limit=2))
    for tick, healthy in enumerate([False, True, False, True, False]):
        policy.apply(answered(tick, healthy=healthy))
    assert not policy.stopped


def test_spoken_lines_follow_the_facts() -> None:
    policy = DecisionPolicy(JOYVL, DecideOptions())
    policy.apply(answered(1, text="Fire!"))
    policy.apply(answered(2))  # suppressed or empty: no genuine silence
    assert policy.lines.repeats(3000) == ("fire!",)
    policy.apply(answered(3, silence=True))
    assert policy.lines.repeats(4000) == ()


def test_deadlines() -> None:
    assert tick_deadlines(1000, 256).first_token_s == 3
    assert tick_deadlines(2000, 256).first_token_s == 6
    assert tick_deadlines(1000, 100).total_s == 15
    assert tick_deadlines(1000, 100, waited_for=True).first_token_s == 60


def test_score_from_raw_logprobs() -> None:
    assert speak_score(SPEAK, {7: math.log(0.3), 8: math.log(0.1)}) == pytest.approx(0.75)
    assert speak_score(SPEAK, {8: -0.1}) == 0
    assert speak_score(SPEAK, {7: -0.1}) == 1
    assert speak_score(SPEAK, {1: -0.1}) is None


@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("p", [0.01, 0.2, 0.4, 0.6, 0.9])
def test_bias_makes_a_greedy_decision_follow_the_threshold(threshold: float, p: float) -> None:
    bias = threshold_bias(SPEAK, threshold)
    speaks = math.log(p) + bias > math.log(1 - p)
    assert speaks == (p > threshold)


def test_threshold_is_refused_with_the_reason() -> None:
    with pytest.raises(ThresholdRefused, match="share their first"):
        threshold_bias(DecisionPoint(1, 7, 8), 0.5)
    with pytest.raises(ThresholdRefused, match="no decision point"):
        threshold_bias(None, 0.5)
    with pytest.raises(ThresholdRefused, match="between 0 and 1"):
        threshold_bias(SPEAK, 1.0)
