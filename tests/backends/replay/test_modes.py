"""Who decides when: gate, turn mode, queries, dedup, breaker, personas."""

from __future__ import annotations

import pytest

from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.session.backend import (
    Notice,
    SessionConfig,
    TurnEnd,
)
from orchestrator.wire.errors import InvalidRequest, TooLarge
from tests.backends.replay.harness import SILENCE, Answer, Session


async def test_gated_ticks_are_recorded_without_an_engine_call() -> None:
    async with Session(decide=DecideOptions()) as s:
        await s.run_frames(5)
        assert s.engine.decisions == []
        assert s.reasons == ["gated"] * 5
        assert all(f.said == SILENCE and f.usage is None for f in s.log.of("tick_answered"))
        await s.ask("what is it?")
        assert len(s.engine.decisions) == 1
        assert len(s.engine.decisions[0].uuids) == 5
        await s.clear()
        await s.frame()
        assert len(s.engine.decisions) == 3  # the withdrawal, and a frame: the gate stays open


async def test_flaw_13_the_first_query_finds_a_warm_window() -> None:
    """While gated, prewarms follow the frames in small steps: the first query leaves little to compute."""
    async with Session(decide=DecideOptions()) as s:
        await s.run_frames(35)
        warm = [len(asked.uuids) for asked in s.engine.of("prewarm")]
        assert warm == sorted(warm) and 35 - warm[-1] <= 10
        assert all(a.request.params["max_tokens"] == 1 for a in s.engine.of("prewarm"))
        await s.ask("what?")
        assert len(s.engine.decisions[0].uuids) == 35


async def test_watch_personas_decide_from_the_start() -> None:
    async with Session(decide=DecideOptions(), config=SessionConfig("m", persona="talkative")) as s:
        await s.frame()
        assert len(s.engine.decisions) == 1


async def test_turn_mode_decides_only_when_words_are_asked_for() -> None:
    """Frames gather and are recorded as full turns; ``response.create`` continues the response tag."""
    async with Session([" All well."], config=SessionConfig("m", auto_response=False)) as s:
        await s.run_frames(6)
        assert s.engine.decisions == [] and s.reasons == ["not_asked"]
        await s.create()
        asked = s.engine.decisions[0]
        assert asked.request.messages[-1] == {"role": "assistant", "content": "</response>"}
        assert asked.request.params["continue_final_message"] is True
        assert s.spoken == "All well."
        fact = s.log.of("tick_answered")[-1]
        assert fact.said == "</response> All well." and fact.said_is_generated
        assert s.of(TurnEnd)[-1].fence == s.fence


async def test_words_are_given_even_when_nothing_new_waits() -> None:
    async with Session([SILENCE, " It is quiet."]) as s:
        await s.frame()
        await s.create()
        assert s.spoken == "It is quiet."


async def test_a_query_fires_at_once_without_a_frame() -> None:
    async with Session() as s:
        await s.frame()
        await s.ask("what?")
        assert len(s.engine.decisions) == 2
        assert s.clock.now() < 0.1


async def test_flaw_16_the_same_question_is_asked_again_and_queries_can_be_cleared() -> None:
    async with Session() as s:
        await s.frame()
        await s.ask("what?", "q1")
        await s.ask("what?", "q2")
        assert [("what?" in a.text) for a in s.engine.decisions] == [False, True, True]
        await s.ask("what?", "q3", repeat_ok=False)
        assert len(s.engine.decisions) == 3
        repeated = s.answered_by("q3")
        assert repeated is not None and repeated.record["reason"] == "repeated"
        await s.clear("other")
        assert s.log.of("query_cleared") == []
        await s.clear("q2")
        assert len(s.log.of("query_cleared")) == 1
        await s.ask("what?", "q4", repeat_ok=False)
        assert "what?" in s.engine.decisions[-1].text


async def test_a_query_withdrawn_before_any_tick_showed_it_is_answered() -> None:
    async with Session([Answer(hang=True)]) as s:
        await s.frame()
        await s.ask("what?", "q1")
        await s.clear()
        await s.clock.advance(3)
        answered = s.answered_by("q1")
        assert answered is None or answered.record["reason"] == "cleared"


async def test_too_long_a_query_is_refused() -> None:
    async with Session() as s:
        with pytest.raises(TooLarge) as refused:
            await s.ask("x" * 9000)
        assert refused.value.code == "query_too_long"
        assert s.log.of("query_set") == []


async def test_bug_40_repeats_are_silent_until_a_silence_comes_between() -> None:
    script = ["</response> Fire!"] * 10 + [SILENCE, "</response> Fire!"]
    async with Session(script) as s:
        await s.run_frames(12)
        assert s.reasons == [None, *["deduplicated"] * 9, "model", None]
        assert s.spoken == "Fire!Fire!"
        assert [f.said for f in s.log.of("tick_answered")][1] == SILENCE  # the model sees what was heard


async def test_flaw_14_a_repeat_is_speakable_again_after_a_minute() -> None:
    async with Session(["</response> Fire!"]) as s:
        await s.run_frames(62)
        assert [i for i, r in enumerate(s.reasons) if r is None] == [0, 60]


async def test_breaker_stops_speech_and_says_why() -> None:
    def script(asked: object) -> str:
        return "free text" if len(s.engine.decisions) <= 7 else "</response> Sound again."

    options = DecideOptions(gate=False, unhealthy_limit=3, probe_every=4)
    async with Session(script, decide=options) as s:
        await s.run_frames(6)
        assert len(s.engine.decisions) == 3
        assert s.reasons == ["unhealthy"] * 6
        notices = [o.code for o in s.of(Notice)]
        assert notices == ["unhealthy_output"]
        await s.run_frames(22)
        assert s.spoken == "Sound again."
        notices = [o.code for o in s.of(Notice)]
        assert notices == ["unhealthy_output", "unhealthy_output"]


async def test_flaw_24_a_persona_that_was_not_told_of_delegation_does_not_delegate() -> None:
    script = ["</response> Wait. </delegation> Who is it?"]
    async with Session(script, config=SessionConfig("m", persona="silent")) as s:
        await s.frame()
        assert (s.spoken, s.rows[-1]["action"]) == ("Wait.", "response")
        assert not s.log.of("delegation_begun")
        assert s.log.of("tick_answered")[-1].said == "</response> Wait."


async def test_flaw_24_persona_change_is_one_fact_and_unknown_ones_change_nothing() -> None:
    async with Session() as s:
        await s.run_frames(2)
        with pytest.raises(InvalidRequest) as refused:
            await s.backend.update(SessionConfig("m", persona="pirate", auto_response=False))
        assert refused.value.code == "unknown_persona"
        await s.backend.update(SessionConfig("m", persona="silent"))
        assert [f.persona for f in s.log.of("persona_set")] == ["silent"]
        await s.run_frames(6)
        system = s.engine.decisions[-1].request.messages[0]["content"]
        assert system.startswith(s.pack.persona("silent", "en")[:40])
