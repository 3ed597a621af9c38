"""Ticks end to end against a scripted engine object: what fires, what is said, what is kept."""

from __future__ import annotations

import asyncio
import math

import pytest

from bridges.engine import EngineServerError
from memory.plan import Limits
from orchestrator.backends.replay.decide import DecideOptions, DecisionPoint, ThresholdRefused
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.session.backend import (
    Action,
    Closed,
    Decision,
    SessionConfig,
    TextDelta,
    TickDone,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import Conflict, InvalidRequest, ResourceExhausted, TooLarge, Unsupported
from tests.backends.replay.harness import FIRST, SILENCE, Answer, Session
from tests.fakes.clock import settle


async def test_a_spoken_tick_in_order() -> None:
    async with Session(["</response> A dog."]) as s:
        operation = await s.frame()
        kinds = [type(o) for o in s.outputs if not isinstance(o, TextDelta)]
        assert kinds == [TickStarted, Decision, TurnEnd, TickDone]
        assert s.spoken == "A dog."
        done = s.of(TickDone)[0]
        assert done.operations == (operation,)
        assert s.of(TickStarted)[0].operations == (operation,)
        row = done.record
        assert (row["tick"], row["action"], row["text"], row["frames"], row["status"]) == (
            1, "response", "A dog.", 1, "completed",
        )  # fmt: skip
        fact = s.log.of("tick_answered")[0]
        assert (fact.said, fact.said_is_generated) == ("</response> A dog.", True)


async def test_row_has_every_column() -> None:
    columns = [
        "tick", "media_time_s", "action", "reason", "text", "question", "frames", "window_frames", "chunk",
        "window", "prompt_tokens", "cached_tokens", "expected_cached_tokens", "shortfall",
        "completion_tokens", "latency_ms", "ttft_ms", "body_bytes", "retries", "score", "status",
        "response_id", "operations",
    ]  # fmt: skip
    async with Session(decide=DecideOptions()) as s:
        await s.frame()
        await s.ask("what?")
        assert [sorted(row) for row in s.rows] == [sorted(columns)] * 2


async def test_latency_counts_from_the_newest_frame_to_the_decision() -> None:
    async with Session([Answer(delay_s=0.4)]) as s:
        await s.frame()
        await s.clock.advance(0.4)
        assert s.rows[0]["latency_ms"] == pytest.approx(400)
        assert s.rows[0]["ttft_ms"] == pytest.approx(400)


async def test_said_gets_the_stripped_stop_text_back() -> None:
    limits = EngineLimits(silence_stop_id=8)
    async with Session([Answer("", stop_token_id=8)], engine_limits=limits) as s:
        await s.frame()
        fact = s.log.of("tick_answered")[0]
        assert (fact.said, fact.said_is_generated, fact.reason) == (SILENCE, True, "model")
        assert s.engine.decisions[0].request.params["stop_token_ids"] == [8]


async def test_what_the_client_did_not_get_is_kept_in_canonical_form() -> None:
    async with Session(["junk </response> Real."]) as s:
        await s.frame()
        fact = s.log.of("tick_answered")[0]
        assert fact.said == "</response> Real." and not fact.said_is_generated
        assert fact.raw == "junk </response> Real."


async def test_a_frame_and_its_facts_are_durable_before_they_are_sent() -> None:
    durable: list[list[str]] = []

    def script(asked: object) -> Answer:
        durable.append([kind for kind, _ in s.log.entries[: s.log.durable]])
        return Answer()

    async with Session(script) as s:
        await s.frame()
        assert durable[0][-2:] == ["frame_seen", "tick_begun"]


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


async def test_words_asked_for_mid_decision_start_it_over() -> None:
    gate = asyncio.Event()
    slow = Answer("</silence> thinking it over", gate=gate)
    async with Session([slow, " Here."]) as s:
        operation = await s.frame()
        await s.create()
        assert s.engine.decisions[0].ended == "aborted"
        assert s.spoken == "Here."
        answered = s.answered_by(operation)
        assert answered is not None and answered.record["action"] == "response"
        assert len(s.engine.decisions[1].uuids) == 1


async def test_a_query_mid_decision_waits_for_that_decision() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</silence> but slowly", gate=gate), SILENCE]) as s:
        await s.frame()
        await s.ask("what?", "q7")
        assert len(s.engine.decisions) == 1 and s.answered_by("q7") is None
        gate.set()
        await settle()
        assert "what?" in s.engine.decisions[1].text
        answered = s.answered_by("q7")
        assert answered is not None and answered.tick == 2


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
        notices = [o.code for o in s.outputs if type(o).__name__ == "Notice"]
        assert notices == ["unhealthy_output"]
        await s.run_frames(22)
        assert s.spoken == "Sound again."
        notices = [o.code for o in s.outputs if type(o).__name__ == "Notice"]
        assert notices == ["unhealthy_output", "unhealthy_output"]


async def test_speak_score_is_in_the_decision_and_the_row() -> None:
    point = DecisionPoint(0, response=7, silence=8)
    top = ({7: math.log(0.3), 8: math.log(0.1)},)
    async with Session(
        [Answer("</response> Hi.", top_logprobs=top)], engine_limits=EngineLimits(decision=point)
    ) as s:
        await s.frame()
        assert s.of(Decision)[0].score == pytest.approx(0.75)
        assert s.rows[0]["score"] == pytest.approx(0.75)


async def test_flaw_21_threshold_is_a_bias_in_the_same_request_or_refused_at_start() -> None:
    point = DecisionPoint(0, response=7, silence=8)
    options = DecideOptions(gate=False, threshold=0.2)
    async with Session(decide=options, engine_limits=EngineLimits(decision=point)) as s:
        await s.frame()
        assert s.engine.decisions[0].request.params["logit_bias"] == {"7": pytest.approx(math.log(4))}
    with pytest.raises(ThresholdRefused, match="share"):
        Session(decide=options, engine_limits=EngineLimits(decision=DecisionPoint(1, 7, 8)))


async def test_flaw_21_a_seeded_session_sends_a_seed_of_its_own_per_tick() -> None:
    async with Session(config=SessionConfig("m", seed=40)) as s:
        await s.run_frames(3)
        assert [a.request.params["seed"] for a in s.engine.decisions] == [41, 42, 43]


async def test_flaw_8_and_9_slow_engine_keeps_true_times_and_bounded_lag() -> None:
    """Frames come every second, the engine takes 2.5 s: they coalesce, are thinned, and keep their times."""
    async with Session([Answer(delay_s=2.5)]) as s:
        for _ in range(40):
            await s.frame()
            await s.clock.advance(1)
        await s.clock.advance(5)
        assert s.engine.most_live == 1
        assert max(row["latency_ms"] for row in s.rows) < 5000
        assert all(row["frames"] <= s.pack.max_frames_per_tick for row in s.rows)
        assert "<39.0 seconds>" in s.engine.decisions[-1].text or s.rows[-1]["media_time_s"] == 39
        assert all(s.answered_by(f"op{i}") for i in range(1, 41))


async def test_frames_closer_than_a_period_ride_together() -> None:
    async with Session() as s:
        for ms in (0, 250, 500, 750):
            await s.frame(ms)
        await s.clock.advance(1)
        assert [row["frames"] for row in s.rows] == [1, 3]


async def test_lossless_frames_are_never_thinned_and_each_operation_is_answered() -> None:
    async with Session([Answer(delay_s=3)]) as s:
        operations = [await s.frame(lossless=True) for _ in range(12)]
        await s.clock.advance(30)
        assert sum(row["frames"] for row in s.rows) == 12
        assert s.log.of("frame_dropped") == []
        assert all(s.answered_by(o) for o in operations)


async def test_a_lossless_source_that_does_not_wait_is_told_to() -> None:
    async with Session([Answer(hang=True)]) as s:
        for _ in range(64):
            await s.frame(lossless=True, run=False)
        with pytest.raises(ResourceExhausted) as refused:
            await s.frame(lossless=True)
        assert refused.value.code == "input_backpressure"


async def test_late_and_repeated_frames_are_dropped_counted_and_answered() -> None:
    async with Session() as s:
        await s.run_frames(3)
        late = await s.frame(500)
        again = await s.frame(2000, frame_id="f2000")
        for operation, reason in ((late, "late"), (again, "duplicate")):
            answered = s.answered_by(operation)
            assert answered is not None and answered.record["reason"] == reason
            assert answered.error_code is None
        assert [f.reason for f in s.log.of("frame_dropped")] == ["late", "duplicate"]
        assert len(s.engine.decisions) == 3


async def test_a_repeat_of_a_frame_that_still_waits_is_answered_with_it() -> None:
    async with Session([Answer(delay_s=1)]) as s:
        first = await s.frame(0)
        again = await s.frame(0, frame_id="f0")
        await s.clock.advance(1)
        assert s.answered_by(first) is s.answered_by(again) is s.of(TickDone)[0]


async def test_the_same_operation_is_not_taken_twice() -> None:
    async with Session() as s:
        unit = InputUnit((FrameInput(b"x", 0),))
        await s.backend.append(unit, FIRST, "op")
        await s.backend.append(unit, FIRST, "op")
        await settle()
        assert len(s.log.of("frame_seen")) == 1


async def test_a_unit_with_one_bad_frame_is_refused_whole() -> None:
    async with Session() as s:
        unit = InputUnit((FrameInput(b"good", 0), FrameInput(b"bad", 10)))
        with pytest.raises(InvalidRequest) as refused:
            await s.backend.append(unit, FIRST, "op")
        assert (refused.value.code, refused.value.param) == ("invalid_image", "frames[1]")
        assert s.log.of("frame_seen") == [] and s.frames.statistics()["frames"] == 0
        await s.backend.append(InputUnit((FrameInput(b"good", 0),)), FIRST, "op")
        await settle()
        assert s.answered_by("op") is not None


async def test_audio_and_empty_units_are_refused() -> None:
    async with Session() as s:
        with pytest.raises(Unsupported):
            await s.backend.append(InputUnit(pcm=b"\0\0"), FIRST, "op")
        with pytest.raises(InvalidRequest):
            await s.backend.append(InputUnit(), FIRST, "op")


async def test_frame_ids_towards_the_engine_are_the_tenants_own() -> None:
    async with Session() as s:
        await s.frame(data=b"same")
        await s.frame(data=b"same")
        first, second = s.log.of("frame_seen")
        assert first.uuid == second.uuid and first.frame_id != second.frame_id


async def test_cancel_aborts_and_what_was_shown_stands_as_said() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> A long story about", gate=gate), SILENCE]) as s:
        operation = await s.frame()
        assert s.spoken
        shown = s.spoken
        await s.cancel()
        assert s.engine.decisions[0].ended == "aborted"
        fact = s.log.of("tick_answered")[0]
        assert (fact.status, fact.said, fact.text) == ("incomplete", f"</response> {shown}", shown)
        assert s.of(TurnEnd)[0].status == "incomplete" and s.of(TurnEnd)[0].fence == FIRST
        assert s.answered_by(operation) is not None
        await s.frame()
        assert s.of(TickStarted)[-1].fence == Fence(1, 0)


async def test_cancel_before_a_word_leaves_no_scar_and_no_orphan_answer() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> Hi there you", gate=gate), "</response> Next."]) as s:
        s.engine.script = [Answer(delay_s=9), "</response> Next."]
        operation = await s.frame()
        await s.cancel()
        assert s.spoken == "" and len(s.engine.decisions) == 1
        cancelled = s.answered_by(operation)
        assert cancelled is not None and cancelled.error_code == "cancelled"
        await s.clock.advance(5)
        assert len(s.engine.decisions) == 1  # nothing new: nothing is decided
        await s.frame()
        assert len(s.engine.decisions[1].uuids) == 2  # its frame still rides the next tick
        assert s.spoken == "Next."


async def test_a_cancel_that_is_not_newer_is_refused_and_releases_nothing() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> A long story", gate=gate)]) as s:
        await s.frame()
        for fence in (FIRST, Fence(0, 5)):
            with pytest.raises(Conflict):
                await s.backend.cancel(FIRST, fence)
        assert s.engine.decisions[0].ended is None
        gate.set()


async def test_bug_17_output_keeps_the_fence_of_its_start() -> None:
    """A decision that began before a barge-in never speaks under the new epoch."""
    gate = asyncio.Event()
    async with Session([Answer("</response> One two three four", gate=gate), "</response> New."]) as s:
        await s.frame()
        s.fence = Fence(0, 3)  # a later turn of the same epoch does not touch what is in flight
        await s.ask("what?")
        gate.set()
        await settle()
        fences = [d.fence for d in s.of(TextDelta)]
        assert fences[0] == FIRST and fences[-1] == Fence(0, 3)


async def test_interrupted_speech_is_told_to_the_model_on_the_next_turn() -> None:
    gate = asyncio.Event()
    async with Session([Answer("</response> The story is long", gate=gate), SILENCE]) as s:
        await s.frame()
        await s.heard("The st", complete=False)  # the session tells before it cancels
        await s.cancel()
        await s.frame()
        assert "The st" in s.engine.decisions[1].text
        assert s.log.of("heard")[0].response_id == s.log.of("tick_answered")[0].response_id


async def test_bug_37_a_broken_character_at_the_end_is_not_shown() -> None:
    async with Session(["</response> caf\ufffd"]) as s:
        await s.frame()
        assert s.spoken == "caf"


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


async def test_windows_close_are_summarised_and_switch_within_limits() -> None:
    window = Limits(chunk_frames=10, max_images=32, context_tokens=16384)
    async with Session(window=window) as s:
        await s.run_frames(80)
        assert len(s.log.of("summary_landed")) >= 5
        assert len(s.log.of("window_switched")) >= 3
        assert all(len(a.uuids) <= 32 for a in s.engine.asked)
        assert any(a.kind == "summary" for a in s.engine.asked)
        assert all(row["status"] == "completed" for row in s.rows)
        assert len(s.engine.decisions) == 80


async def test_flaw_11_a_failed_summary_is_tried_again_and_a_bad_one_is_no_summary() -> None:
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    bad = ["</silence>", "", Answer(error=EngineServerError("500"))]
    async with Session(window=window, summaries=[*bad, "A man waits."]) as s:
        for _ in range(40):
            await s.frame()
            await s.clock.advance(1)
        reasons = [f.reason for f in s.log.of("summary_failed")]
        assert reasons[:3] == ["tags", "empty", "engine_server_error"]
        assert s.log.of("summary_landed")
        assert all(f.text == "A man waits." for f in s.log.of("summary_landed"))


async def test_ticks_go_on_while_a_summary_hangs() -> None:
    window = Limits(chunk_frames=10, max_images=64, context_tokens=16384)
    async with Session(window=window, summaries=[Answer(hang=True)]) as s:
        for _ in range(30):
            await s.frame()
            await s.clock.advance(1)
        assert max(row["latency_ms"] for row in s.rows) < 100
        assert len(s.engine.of("summary")) == 1


async def test_a_closed_session_runs_nothing_and_ends_its_stream_once() -> None:
    gate = asyncio.Event()
    s = Session([Answer("</response> A long story of", gate=gate)])
    async with s:
        await s.frame()
        await asyncio.gather(s.backend.close("one"), s.backend.close("two"))
        with pytest.raises(Conflict):
            await s.frame()
    assert [o.reason for o in s.of(Closed)] == ["one"]
    assert s.engine.decisions[0].ended == "aborted"
    assert s.log.of("tick_answered")[0].status == "incomplete"
    names = [t.get_name() for t in asyncio.all_tasks()]
    assert not [n for n in names if n in {"ticks", "prewarms", "texts"} or n.startswith("decision")]


async def test_a_reader_that_stops_bounds_the_outputs_and_close_still_works() -> None:
    async with Session(["</response> one two three four five six"], outputs_size=4, read=False) as s:
        await s.frame()
        assert s.backend.statistics()["outputs"]["most_unread"] <= 4
    assert isinstance(s.outputs[-1], Closed)


async def test_a_resumed_session_continues_the_log() -> None:
    """What was in flight has failed and leaves no scar; gate, dedup and counters go on."""
    gate = asyncio.Event()
    async with Session(["</response> Fire!", SILENCE, Answer(delay_s=100)], decide=DecideOptions()) as s:
        await s.ask("watch for fire")
        await s.run_frames(3)
        facts, frames = s.log.facts, s.frames
        assert facts[-1].kind == "tick_begun"
    async with Session(["</response> Fire!"], decide=DecideOptions(), history=facts, frames=frames) as again:
        await settle()
        assert again.log.of("tick_failed")[0].code == "restarted"
        before = [a.request.messages for a in s.engine.decisions]
        after = again.engine.decisions[0].request.messages
        assert after == before[-1]
        assert again.rows[-1]["tick"] == facts[-1].tick + 1
    gate.set()


async def test_a_fault_of_our_own_ends_this_session_with_a_word() -> None:
    async with Session() as s:
        s.backend._loop._tools.journal.memory.wants = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
        await s.frame()
        failed = [o for o in s.outputs if type(o).__name__ == "Failed"]
        assert failed[0].fatal and failed[0].code == "internal_error"


def test_decision_is_one_of_three() -> None:
    assert {a.value for a in Action} == {"silence", "response", "delegate"}
