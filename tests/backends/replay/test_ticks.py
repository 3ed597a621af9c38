"""A tick end to end against a scripted engine object: its order, its row, what the window keeps."""

from __future__ import annotations

import math

import pytest

from orchestrator.backends.replay.decide import DecideOptions, DecisionPoint, ThresholdRefused
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.session.backend import (
    Decision,
    Metrics,
    SessionConfig,
    TextDelta,
    TickDone,
    TickStarted,
    TurnEnd,
)
from tests.backends.replay.harness import SILENCE, Answer, Session


async def test_a_spoken_tick_in_order() -> None:
    async with Session(["</response> A dog."]) as s:
        operation = await s.frame()
        kinds = [type(o) for o in s.outputs if not isinstance(o, TextDelta)]
        assert kinds == [TickStarted, Decision, Metrics, TurnEnd, TickDone]
        assert s.spoken == "A dog."
        figures = s.of(Metrics)[0].stages["0"]
        assert (figures["num_tokens_in"], figures["num_tokens_out"]) == (356, 4)
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
        "tick", "engine", "media_time_s", "action", "reason", "text", "question", "frames", "window_frames",
        "chunk",
        "window", "prompt_tokens", "cached_tokens", "expected_cached_tokens", "shortfall",
        "completion_tokens", "latency_ms", "ttft_ms", "body_bytes", "retries", "score", "status",
        "response_id", "operations", "path", "path_fallback",
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
        assert durable[0][-1] == "frame_seen"


async def test_what_no_prompt_shows_need_not_be_durable_before_one_is_sent() -> None:
    durable: list[int] = []

    def script(asked: object) -> Answer:
        durable.append(s.log.durable)
        return Answer("</response> Yes.")

    async with Session(script) as s:
        await s.frame()
        s.log.entries.append(("item_added", {}))  # by the session, which shares the log
        mine = len(s.log.entries)
        await s.create()
        assert len(durable) == 2 and durable[-1] < mine


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


async def test_bug_37_a_broken_character_at_the_end_is_not_shown() -> None:
    async with Session(["</response> caf\ufffd"]) as s:
        await s.frame()
        assert s.spoken == "caf"
