"""What an engine can do wrong, and what becomes of the session. One contract per test."""

from __future__ import annotations

import asyncio

import pytest

from bridges.engine import (
    BadImage,
    ContextOverflow,
    EngineDenied,
    EngineRefused,
    EngineServerError,
    EngineUnreachable,
    ImageMissing,
    TooManyImages,
)
from memory.plan import Limits
from orchestrator.session.backend import Decision, Failed, Notice, TickDone, TurnEnd
from tests.backends.replay.harness import SILENCE, Answer, Asked, Session, broken
from tests.fakes.clock import settle

GONE = Answer(error=EngineUnreachable("connection refused"))


def notices(s: Session) -> list[str]:
    return [notice.code for notice in s.of(Notice)]


async def test_bug_1_an_engine_that_never_answers_is_wedged_after_three_misses() -> None:
    """Health says nothing; no answer within the deadline does. State changes, and nothing piles up."""
    async with Session([Answer(hang=True)]) as s:
        s.engine.alive = False
        for _ in range(40):
            await s.frame()
            await s.clock.advance(1)
        assert notices(s) == ["engine_lost"]
        assert len(s.engine.decisions) == 3
        assert s.engine.most_live == 1
        late = [row for row in s.rows if row["status"] == "failed"]
        assert [row["reason"] for row in late] == ["engine_late"] * 3
        assert s.backend.statistics()["frames"]["waiting"] <= s.pack.max_frames_per_tick
        assert s.engine.pings >= 3
        s.engine.alive, s.engine.script = True, ["</response> Back."]
        await s.clock.advance(6)
        assert notices(s) == ["engine_lost", "engine_recovered"]
        assert s.spoken == "Back."


async def test_an_engine_that_takes_nothing_of_ours_is_waited_for_and_no_frame_is_to_blame() -> None:
    """Another model is served there, say: what is refused is not this picture, and nothing is thrown away."""
    denied = Answer(error=EngineDenied("the model does not exist"))
    async with Session([denied, denied, "</response> Back."]) as s:
        s.engine.alive = False
        await s.frame()
        await s.clock.advance(1)
        assert notices(s) == ["engine_lost"] and s.of(TickDone)[0].error_code == "engine_denied"
        s.engine.alive = True
        await s.clock.advance(6)
        assert notices(s)[:2] == ["engine_lost", "engine_recovered"]
        await s.clock.advance(6)
        assert s.spoken == "Back." and len(s.engine.decisions[-1].uuids) == 1


async def test_flaw_4_a_failed_tick_leaves_no_scar() -> None:
    """No delta was shown: its frames ride the next tick, once, and the message list alternates."""
    async with Session([Answer(error=EngineServerError("500")), "</response> Two."]) as s:
        first = await s.frame()
        failed = s.of(TickDone)[0]
        assert (failed.operations, failed.error_code) == ((), "engine_server_error")
        assert s.of(Decision) == []
        await s.clock.advance(0.5)
        assert len(s.engine.decisions[1].uuids) == 1
        roles = [m["role"] for m in s.engine.decisions[1].request.messages]
        assert roles == ["system", "user"]
        answered = s.answered_by(first)
        assert answered is not None and answered.tick == 2


async def test_retries_back_off_from_half_a_second_to_five() -> None:
    """Each wait after a failure is twice the one before."""
    async with Session([Answer(error=EngineServerError("500"))]) as s:
        await s.frame()
        await s.clock.advance(1.5)
        assert [a.at for a in s.engine.decisions] == [0, 0.5, 1.5]


async def test_a_stream_that_breaks_after_a_delta_is_an_incomplete_answer() -> None:
    """What was shown is said, the response ends incomplete, and nothing is said twice."""
    async with Session([broken("</response> A man is"), SILENCE]) as s:
        operation = await s.frame()
        fact = s.log.of("tick_answered")[0]
        assert (fact.status, fact.said) == ("incomplete", f"</response> {s.spoken}")
        assert s.of(TurnEnd)[0].status == "incomplete"
        assert s.answered_by(operation) is not None
        await s.clock.advance(1)
        await s.frame()
        said = [m["content"] for m in s.engine.decisions[1].request.messages if m["role"] == "assistant"]
        assert said == [f"</response> {s.spoken}"]


async def test_a_stream_that_breaks_inside_a_tag_is_a_failed_tick() -> None:
    """Deltas came but none was shown: that is no answer."""
    async with Session([broken("</respo"), "</response> Whole."]) as s:
        await s.frame()
        assert s.log.of("tick_failed")[0].code == "engine_broken"
        await s.clock.advance(1)
        assert s.spoken == "Whole."


async def test_bug_13_an_engine_that_dies_costs_ticks_not_the_session() -> None:
    """One notice when it goes, one when it is back; the prompt after it is the same prompt and more."""
    async with Session() as s:
        await s.run_frames(3)
        s.engine.script, s.engine.alive = [GONE], False
        operation = await s.frame()
        before = s.engine.decisions[-1].request.messages
        await s.clock.advance(12)
        await s.frame()
        assert notices(s) == ["engine_lost"]
        assert len(s.engine.decisions) == 4
        s.engine.script, s.engine.alive = ["</response> Here again."], True
        await s.clock.advance(6)
        assert notices(s) == ["engine_lost", "engine_recovered"]
        again = s.engine.decisions[4].request.messages
        assert again[: len(before) - 1] == before[:-1]
        assert s.spoken == "Here again."
        assert [f.kind for f in s.log.facts if f.kind.startswith("engine_")] == [
            "engine_lost",
            "engine_recovered",
        ]
        failed = s.answered_by(operation)
        assert failed is not None and failed.error_code == "engine_unavailable"
        assert failed.record["status"] == "dropped"


async def test_a_source_that_waits_has_time_for_a_slow_engine() -> None:
    """What is decided about a second of a file is the model's matter, not the machine's load."""
    async with Session([Answer(hang=True)]) as s:
        for _ in range(3):
            await s.frame(lossless=True)
        await s.clock.advance(50)
        assert s.rows == [] and notices(s) == []
        await s.clock.advance(11)
        assert [row["reason"] for row in s.rows] == ["engine_late"]


async def test_a_source_that_waits_loses_and_doubles_no_frame_when_the_engine_restarts() -> None:
    """Lossless frames are all shown once, in order, and each operation gets its one answer."""
    async with Session() as s:
        operations = [await s.frame(lossless=True) for _ in range(3)]
        s.engine.script, s.engine.alive = [GONE], False
        operations += [await s.frame(lossless=True) for _ in range(6)]
        await s.clock.advance(20)
        assert s.of(Failed) == []
        s.engine.script, s.engine.alive = [SILENCE], True
        await s.clock.advance(10)
        assert [len([d for d in s.of(TickDone) if o in d.operations]) for o in operations] == [1] * 9
        assert s.engine.decisions[-1].uuids == [f.uuid for f in s.log.of("frame_seen")]


async def test_words_asked_of_a_lost_engine_end_as_failed() -> None:
    """The client is not left with a response that never ends."""
    async with Session([SILENCE, GONE]) as s:
        s.engine.alive = False
        await s.frame()
        await s.create()
        assert s.of(TurnEnd)[-1].status == "failed"
        assert s.of(TurnEnd)[-1].reason == "engine_unavailable"


async def test_bug_10_and_flaw_5_an_image_limit_is_learned_once() -> None:
    """The limit that the engine names is kept; no second refusal for it, and no tick is lost."""

    def script(asked: Asked) -> Answer:
        if len(asked.uuids) > 8:
            return Answer(error=TooManyImages("At most 8 image(s) may be provided in one prompt.", 8))
        return Answer()

    async with Session(script, window=Limits(chunk_frames=100, max_images=64)) as s:
        await s.run_frames(30)
        refused = [a for a in s.engine.decisions if len(a.uuids) > 8]
        assert len(refused) == 1
        assert [f.max_images for f in s.log.of("limits_learned")] == [8]
        assert len([row for row in s.rows if row["status"] == "completed"]) == 30


async def test_bug_11_context_overflow_closes_the_window_early() -> None:
    """The engine's context is smaller than believed: few refusals, then every tick is answered."""

    def script(asked: Asked) -> Answer:
        if 256 * len(asked.uuids) + 500 > 6000:
            return Answer(error=ContextOverflow("This model's maximum context length is 6000 tokens."))
        return Answer()

    async with Session(script, window=Limits(chunk_frames=100, max_images=64, context_tokens=16384)) as s:
        for _ in range(120):
            await s.frame()
            await s.clock.advance(1)
        refused = [f for f in s.log.of("tick_failed") if f.code == "context_overflow"]
        assert 1 <= len(refused) <= 6
        assert [row["status"] for row in s.rows[-60:]] == ["completed"] * 60


async def test_bug_11_a_poison_turn_is_dropped_and_does_not_loop() -> None:
    """A frame that never fits is refused a bounded number of times; the next frame is answered."""

    def script(asked: Asked) -> Answer:
        if any(u == poison for u in asked.uuids):
            return Answer(
                error=ContextOverflow("Input length (99999) exceeds model's maximum context length")
            )
        return Answer()

    poison = ""
    async with Session(script) as s:
        await s.run_frames(2)
        await s.frame(run=False)
        poison = s.log.of("frame_seen")[-1].uuid
        await settle()
        await s.clock.advance(10)
        assert 1 <= len([a for a in s.engine.decisions if poison in a.uuids]) <= 4
        assert s.log.of("frame_dropped")[-1].reason == "rejected"
        fine = await s.frame()
        answered = s.answered_by(fine)
        assert answered is not None and answered.error_code is None


async def test_a_bad_image_is_dropped_and_its_sender_told() -> None:
    """The engine could not decode it: it is not sent again."""
    async with Session([Answer(error=BadImage("cannot identify image")), SILENCE]) as s:
        bad = await s.frame()
        assert s.log.of("frame_dropped")[0].reason == "rejected"
        told = s.answered_by(bad)
        assert told is not None and told.error_code == "invalid_image"
        await s.frame()
        assert len(s.engine.decisions) == 2 and len(s.engine.decisions[1].uuids) == 1


async def test_an_engine_that_refuses_everything_is_not_asked_in_a_loop() -> None:
    """A 400 that no smaller prompt mends: three tries for each input, with waits between."""
    async with Session([Answer(error=EngineRefused("unknown parameter"))]) as s:
        operation = await s.frame()
        await s.clock.advance(30)
        assert len(s.engine.decisions) == 3
        told = s.answered_by(operation)
        assert told is not None and told.error_code == "engine_refused"
        assert notices(s) == []


async def test_a_frame_whose_bytes_are_gone_leaves_the_window() -> None:
    """The engine lost its cache and the store has expired the frame: the window goes on without it."""
    async with Session() as s:
        await s.run_frames(4)
        gone = s.log.of("frame_seen")[1]

        def script(asked: Asked) -> Answer:
            missing = gone.uuid in asked.uuids
            return Answer(error=ImageMissing("no bytes", gone.uuid)) if missing else Answer()

        s.engine.script = script
        operation = await s.frame()
        assert [f.frame_id for f in s.log.of("item_deleted")] == [gone.frame_id]
        assert s.answered_by(operation) is not None
        assert gone.uuid not in s.engine.decisions[-1].uuids


async def test_bug_5_a_frame_that_kills_the_engine_twice_alone_is_quarantined() -> None:
    """No crash loop: after its second death alone it is dropped; neighbours are shown."""

    def script(asked: Asked) -> Answer:
        return GONE if killer in asked.uuids else Answer()

    killer = "none"
    async with Session(script) as s:
        await s.run_frames(2)
        await s.frame(run=False)
        killer = s.log.of("frame_seen")[-1].uuid
        await settle()
        neighbours = [await s.frame() for _ in range(2)]
        await s.clock.advance(10)
        deaths = [a for a in s.engine.decisions if killer in a.uuids]
        assert [len(set(a.uuids)) for a in deaths] == [3, 3]
        assert [(f.reason, f.frame_id) for f in s.log.of("frame_dropped")] == [("quarantined", "f2000")]
        assert killer not in s.engine.decisions[-1].uuids
        assert len(s.engine.decisions[-1].uuids) == 4
        assert all(s.answered_by(o) for o in neighbours)
        again = await s.frame(data=b"jpeg 2000")
        told = s.answered_by(again)
        assert told is not None and told.error_code == "frame_quarantined"


async def test_a_stop_by_our_own_launcher_makes_no_suspects() -> None:
    """The frames in flight ride together again."""
    async with Session([SILENCE, GONE, GONE, SILENCE]) as s:
        s.stopped_by_us = lambda: True
        await s.run_frames(2)
        await s.clock.advance(10)
        await s.frame()
        assert s.log.of("frame_dropped") == []


async def test_bug_14_an_answer_to_a_lost_prompt_is_not_believed() -> None:
    """The engine counted far too few prompt tokens: nothing is shown and the tick runs again."""
    odd = Answer(SILENCE, prompt_tokens=1, suspect=True)
    async with Session([SILENCE, odd, "</response> Right."]) as s:
        await s.run_frames(2)
        assert s.log.of("tick_failed")[0].code == "prompt_mismatch"
        await s.clock.advance(1)
        assert s.spoken == "Right."


async def test_bug_14_a_tick_never_overlaps_its_cancelled_predecessor() -> None:
    """The next request starts only after the abort of the last one has gone through."""
    gate = asyncio.Event()
    async with Session([Answer("</response> A long story of", gate=gate), SILENCE]) as s:
        await s.frame()
        await s.frame()
        await s.cancel()
        await s.frame()
        assert s.engine.decisions[0].ended == "aborted"
        assert s.engine.most_live == 1


async def test_a_death_shared_by_two_sessions_quarantines_the_killer_alone() -> None:
    """Both sessions' frames are suspects; they are shown to the engine one at a time."""
    killer = "none"

    def script(asked: Asked) -> Answer:
        if killer in asked.uuids or (
            s.engine.live and any(killer in a.uuids for a in s.engine.decisions[-2:])
        ):
            return Answer(error=EngineUnreachable("reset"), delay_s=0.2)
        return Answer(delay_s=0.2)

    async with Session(script) as s, Session(neighbour=s) as other:
        await s.frame(data=b"killer", run=False)
        killer = s.log.of("frame_seen")[0].uuid
        innocent = await other.frame(data=b"innocent")
        await s.clock.advance(20)
        assert [f.reason for f in s.log.of("frame_dropped")] == ["quarantined"]
        assert other.log.of("frame_dropped") == []
        assert other.answered_by(innocent) is not None
        assert len(other.log.of("tick_answered")) == 1


@pytest.mark.parametrize("kind", ["summary", "prewarm"])
async def test_background_work_waits_while_the_engine_is_lost(kind: str) -> None:
    """No attempt is spent on an engine that is known to be away."""
    async with Session(window=Limits(chunk_frames=6, max_images=64)) as s:
        await s.run_frames(5)
        s.engine.summaries = [GONE]
        s.engine.script, s.engine.alive = [SILENCE, GONE], False
        await s.run_frames(3)
        await s.clock.advance(60)
        assert len(s.engine.of(kind)) <= 1
        assert s.log.of("summary_failed") == []
        s.engine.script, s.engine.summaries, s.engine.alive = [SILENCE], ["Quiet."], True
        await s.clock.advance(20)
        assert s.log.of("summary_landed")
