"""Kinds of faults known from other orchestrators of this design, each shown to be absent here."""

from __future__ import annotations

from itertools import pairwise

import pytest

from memory.facts import DelegationDone, FrameDropped, ItemDeleted, LimitsLearned, PersonaSet
from memory.plan import Text, WantPrewarm, WantRollup, WantSummary
from memory.render import chat_messages, plan_bytes
from tests.memory.driver import Driver, blind, frame_times, head_text, section

ROOMY = {"context_tokens": 131_072, "max_images": 256}


def note_text(driver: Driver) -> str:
    open_turn = driver.memory.plan().open_turn
    assert open_turn
    return "".join(part.text for part in open_turn.user if isinstance(part, Text))


def test_a_summary_that_lands_does_not_touch_the_live_window() -> None:
    """A1: the head is frozen; a summary, a roll-up, a setting only show in the next window."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(24, summary_after=10**6)
    before = plan_bytes(driver.memory.plan())
    driver.land()
    driver.apply(PersonaSet(persona="talkative"))
    after = plan_bytes(driver.memory.plan())
    assert after.data == before.data
    driver.prewarm()
    assert driver.memory.window_index == 1 and "summary of chunk 0" in head_text(driver.memory.plan())


@pytest.mark.parametrize("summary_after", [1, 5, 30, 90])
def test_no_amnesia_at_a_boundary(summary_after: int) -> None:
    """A2: at every tick each shown second is in frames or in text, and the last ones in frames."""
    driver = Driver(chunk_frames=40, **ROOMY)
    seen: list[int] = []
    for _ in range(250):
        plan = driver.tick()
        seen.append(driver.ms)
        assert not blind(plan, seen)
        assert frame_times(plan)[-8:] == seen[-8:]
        driver.background(summary_after)
    assert len(driver.switches) > 2


def test_the_new_window_starts_with_the_overlap_and_each_second_is_told_once() -> None:
    """A2: last frames of the old chunk plus all since; the head's time range ends at the first of them."""
    driver = Driver(chunk_frames=40, **ROOMY)
    driver.run(40, summary_after=10**6)
    driver.run(7, summary_after=10**6)
    driver.land()
    driver.prewarm()
    plan = driver.tick()
    assert frame_times(plan)[0] == 32_000 and len(plan.frames) == 8 + 7 + 1
    assert "<0.0-32.0 seconds>" in head_text(plan)


def test_a_delegated_answer_is_shown_on_the_next_tick() -> None:
    """A3: in the open turn at once, then part of the window, and archived when it leaves."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(5)
    driver.apply(
        DelegationDone(delegation_id="d", question="who?", text="Ada", ok=True, media_time_ms=driver.ms)
    )
    assert "Ada" in note_text(driver)
    plan = driver.tick()
    assert sum("Ada" in str(m) for m in chat_messages(plan)) == 1
    driver.run(60)
    assert section(driver.plans[-1], "qa").count("Ada") == 1


def test_a_failed_tick_leaves_no_scar() -> None:
    """A4: the same frames and query ride the next tick; nothing is doubled, no user turn twice."""
    driver = Driver(**ROOMY)
    driver.tick()
    driver.ask("what?")
    driver.frame()
    failed = driver.begin()
    driver.fail()
    assert driver.memory.plan().open_turn.user == failed.open_turn.user
    driver.frame()
    plan = driver.begin()
    assert frame_times(plan) == [0, 1000, 2000]
    assert str(chat_messages(plan)).count("what?") == 1
    roles = [m["role"] for m in chat_messages(plan)]
    assert all(one != other for one, other in pairwise(roles))


def test_retries_keep_the_newest_and_count_what_they_thin() -> None:
    """A4, A9: while the engine is away nothing queues without bound."""
    driver = Driver(**ROOMY)
    for _ in range(50):
        driver.frame()
        driver.begin()
        driver.fail()
    plan = driver.begin()
    times = frame_times(plan)
    assert len(times) == 4 and times[0] == 0 and times[-1] == driver.ms
    assert driver.memory.dropped == {"thinned": 46}


@pytest.mark.parametrize("failures", [0, 3])
def test_a_tick_in_flight_at_a_crash_has_failed(failures: int) -> None:
    """A4: the log ends with a tick begun; what it showed rides again after a restart."""
    driver = Driver(**ROOMY)
    driver.run(3)
    driver.ask("what?")
    driver.frame()
    driver.begin()
    for _ in range(failures):
        driver.fail()
        driver.begin()
    again = driver.rebuilt()
    assert again.in_flight == driver.memory.in_flight
    assert again.plan() == driver.memory.plan()
    begun = again.begin_tick(99)
    assert begun.frame_ids == ("f3000",)
    again.apply(begun)
    assert again.plan().open_turn.user == driver.memory.plan().open_turn.user


SMALL = [{"max_images": 32, "context_tokens": 8192}, {"max_images": 8, "context_tokens": 12_000}]


@pytest.mark.parametrize("limits", [*SMALL, {"max_images": 1, "context_tokens": 8192}])
@pytest.mark.parametrize("frame_tokens", [60, 300, 700])
@pytest.mark.parametrize("background", ["quick", "slow", "dead"])
def test_overflow_never_locks_a_session_out(limits: dict, frame_tokens: int, background: str) -> None:
    """A5: ``Driver.check`` holds every plan against the engine's limits, whatever else fails."""
    driver = Driver(frame_tokens=frame_tokens, **limits)
    for number in range(200):
        if number % 10 == 0:
            driver.ask(f"a long question number {number} " * 30)
        driver.tick("a fairly long spoken answer " * 8 if number % 3 == 0 else "")
        if background != "dead":
            driver.background(1 if background == "quick" else 25, fails=lambda n: n % 3 == 0)
    assert len(driver.plans) == 200


def test_an_image_limit_learned_from_a_refusal_shrinks_the_window_once() -> None:
    """A5: the next plan is inside it, and so is every later one."""
    driver = Driver(**ROOMY)
    driver.run(60, summary_after=10**6)
    driver.frame()
    driver.begin()
    driver.fail("too_many_images")
    driver.apply(LimitsLearned(max_images=16))
    for _ in range(100):
        assert len(driver.tick().frames) <= 16
        driver.background(2)


def test_an_overflow_that_nobody_foresaw_is_not_repeated() -> None:
    """A5: the engine refused what was thought to fit: the next prompt is shorter, down to a floor."""
    driver = Driver(context_tokens=32_768, max_images=256)
    driver.run(60, summary_after=10**6)
    sizes = []
    for _ in range(6):
        driver.frame()
        driver.begin()
        sizes.append(driver.memory.window_tokens)
        driver.fail("context_overflow")
    assert all(one >= other for one, other in pairwise(sizes)) and sizes[1] < sizes[0] // 2
    assert not blind(driver.begin(), [0])


def test_questions_and_answers_are_bounded() -> None:
    """A7: 600 questions; the head holds the newest of them and one digest line."""
    driver = Driver(chunk_frames=20, **ROOMY)
    for number in range(600):
        driver.ask(f"question {number}")
        driver.tick(f"answer {number}")
        driver.background(2)
    qa = section(driver.plans[-1], "qa").splitlines()
    assert len(qa) <= 2 + 1 + 40
    assert sum("left out" in line for line in qa) == 1
    assert len(driver.memory.parts.qa.recent) < 150


def test_a_standing_query_adds_no_entry_per_chunk() -> None:
    """A7: the question is archived once, and only with its first answer."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.ask("watch the door")
    for number in range(200):
        driver.tick("it opened" if number == 70 else "")
        driver.background(2)
    plan = driver.plans[-1]
    assert section(plan, "qa").count("watch the door") == 1
    assert section(plan, "qa").count("it opened") == 1
    assert section(plan, "query").count("watch the door") == 1


def test_time_is_media_time() -> None:
    """A8: gaps, other rates and several frames in a tick keep their true times."""
    driver = Driver(**ROOMY)
    for ms in (0, 250, 9_999, 60_400):
        driver.frame(ms)
        driver.tick(frame=False)
    driver.frame(61_000)
    driver.frame(61_250)
    driver.tick(frame=False)
    text = str(chat_messages(driver.plans[-1]))
    for tag in ("<0.0 seconds>", "<0.2 seconds>", "<9.9 seconds>", "<60.4 seconds>", "<61.0 seconds>"):
        assert text.count(tag) == 1
    assert "61.2" not in text  # one tag, the first frame's, for the frames of a tick


def test_frames_out_of_order_keep_their_place_or_are_counted() -> None:
    """A8: before the tick they are sorted in; behind the window's tail they are dropped."""
    driver = Driver(**ROOMY)
    for ms in (2000, 0, 1000):
        driver.frame(ms)
    assert frame_times(driver.tick(frame=False)) == [0, 1000, 2000]
    driver.frame(1500)
    assert driver.memory.dropped == {"late": 1}
    assert ("frame_dropped", {"frame_id": "f1500", "media_time_ms": 1500, "reason": "late"}) in driver.log


def test_a_failed_summary_is_a_gap_that_is_mended_at_its_true_time() -> None:
    """A11: a marker with the time range; a later chunk's round repairs it in the next head."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.run(20, summary_after=10**6)
    for _ in range(3):
        driver.no_summary()
    driver.prewarm()
    gap = driver.tick()
    assert "0.0-12.0" in head_text(gap) and gap.window == 1
    driver.run(20, summary_after=10**6)
    for want in reversed(driver.wants(WantSummary)):
        driver.land(want)
    driver.prewarm()
    mended = head_text(driver.tick())
    assert mended.index("summary of chunk 0") < mended.index("summary of chunk 1")
    assert "no notes were kept" not in mended


def test_an_empty_summary_or_block_is_a_failure() -> None:
    """A11: no entry with a bare range; the inputs of a roll-up stay."""
    driver = Driver(chunk_frames=10, **ROOMY)
    while not driver.wants(WantRollup):
        driver.tick()
        if driver.wants(WantSummary):
            driver.land(text="  \n")
            assert driver.wants(WantSummary)[0].attempt == 2
            driver.land()
        driver.prewarm()
    driver.rollup(text=" ")
    assert len(driver.memory.summaries) == 5 and not driver.memory.long_term
    assert driver.wants(WantRollup)[0].attempt == 2


def test_a_new_query_does_not_touch_the_head() -> None:
    """A12: also when the old one stands in the head; it is archived with the next head, with its times."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.ask("first?")
    driver.tick("one")
    driver.run(60)
    assert section(driver.plans[-1], "query").endswith("first?")
    head = driver.memory.head
    driver.ask("second?")
    plan = driver.tick("two")
    assert plan.head == head and str(chat_messages(plan)[-1]).count("second?") == 1
    driver.run(60)
    plan = driver.plans[-1]
    assert "first?" in section(plan, "qa") and "[Query@0.0s]" in section(plan, "qa")
    assert section(plan, "query").endswith("second?") and "first?" not in section(plan, "query")


def test_a_withdrawn_query_is_said_in_the_tail_and_forgotten_by_the_next_head() -> None:
    """A12, A16: clearing is a line of the open turn."""
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.ask("first?")
    driver.tick()
    driver.clear()
    assert "withdrew" in note_text(driver)
    driver.tick()
    assert "withdrew" not in note_text(driver)
    driver.run(60)
    assert not section(driver.plans[-1], "query") and "first?" in section(driver.plans[-1], "qa")


def test_memory_is_present_without_a_query() -> None:
    """A12: long-term text, summaries and frames are the same with and without one."""
    texts = []
    for query in (None, "what?"):
        driver = Driver(chunk_frames=10, **ROOMY)
        if query:
            driver.ask(query)
        driver.run(100)
        plan = driver.plans[-1]
        texts.append((section(plan, "long_term"), section(plan, "summaries"), frame_times(plan)))
    assert texts[0] == texts[1] and texts[0][0] and texts[0][1]


def test_the_first_query_finds_a_warm_window() -> None:
    """A13: while gated the window is prewarmed, once per ten frames, in steps."""
    driver = Driver(chunk_frames=40, **ROOMY)
    for _ in range(75):
        driver.tick(gated=True)
        driver.background(3)
    driver.ask("what?")
    driver.tick()
    prompt, cached = driver.results[-1].expected, driver.results[-1].cached
    assert cached == prompt
    assert driver.uncached[-1] < 14 * 300
    assert len(driver.switches) >= 2  # chunks close and are summarised while gated


def test_the_same_question_can_be_asked_again() -> None:
    """A16: a new asking is a new note."""
    driver = Driver(**ROOMY)
    driver.ask("what?", "q1")
    driver.tick("this")
    driver.ask("what?", "q2")
    assert "what?" in note_text(driver)


def test_long_sessions_rewrite_the_head_rarely() -> None:
    """A23: durable lines keep their bytes; only roll-ups and the cut from 20 to 15 blocks move text."""
    driver = Driver(chunk_frames=10, **ROOMY)
    rewrites = 0
    head = ""
    for _ in range(10 * 5 * 30):
        plan = driver.tick()
        driver.background(2)
        now = section(plan, "long_term")
        rewrites += not now.startswith(head)
        head = now
        assert now.count("\nblock") <= 20
    assert head.count("\nblock") >= 15
    assert rewrites <= 3


def test_a_changed_persona_shows_soon_and_everywhere() -> None:
    """A24: within a few ticks, at a named tick, and the memory of the session stays."""
    driver = Driver(**ROOMY)
    driver.run(30, summary_after=10**6)
    driver.apply(PersonaSet(persona="silent", instructions="whisper"))
    assert driver.memory.planned_switch_tick == 32
    for _ in range(4):
        driver.tick()
        driver.prewarm(steps=6)
    plan = driver.tick()
    assert plan.head.system.endswith("whisper") and plan.window == 1
    assert driver.memory.planned_switch_tick is None
    assert frame_times(plan)[0] == 0


def test_a_persona_without_a_window_shows_at_once() -> None:
    driver = Driver(**ROOMY)
    driver.apply(PersonaSet(persona="silent", language="zh"))
    assert driver.memory.plan().head.system == driver.pack.persona("silent", "zh")


def test_an_unknown_persona_changes_nothing() -> None:
    driver = Driver(**ROOMY)
    before = driver.memory.fingerprint()
    with pytest.raises(KeyError):
        driver.memory.apply(PersonaSet(persona="nobody"))
    assert driver.memory.fingerprint() == before


def test_a_deleted_frame_is_gone_at_once_and_the_rebuild_is_declared() -> None:
    driver = Driver(**ROOMY)
    driver.run(10, summary_after=10**6)
    driver.apply(ItemDeleted(frame_id="f4000"))
    plan = driver.tick()
    assert 4000 not in frame_times(plan) and len(plan.frames) == 10
    assert driver.switches[-1].reason == "deleted" and plan.window == 1


def test_a_deleted_question_is_gone_from_window_and_memory() -> None:
    driver = Driver(chunk_frames=20, **ROOMY)
    driver.ask("my secret", "q1")
    driver.run(5)
    driver.tick("an answer")
    driver.apply(ItemDeleted(query_id="q1"))
    assert "my secret" not in str(chat_messages(driver.memory.plan()))
    driver.run(60)
    assert "my secret" not in str(chat_messages(driver.plans[-1]))


def test_a_frame_deleted_while_it_rides_goes_with_the_answer() -> None:
    driver = Driver(**ROOMY)
    driver.run(3)
    frame_id = driver.frame()
    plan = driver.begin()
    driver.apply(ItemDeleted(frame_id=frame_id))
    assert driver.memory.plan() == plan  # what is in flight is not rewritten
    driver.answer()
    assert frame_id not in [f.frame_id for f in driver.memory.plan().frames]


def test_a_quarantined_frame_does_not_ride_again() -> None:
    driver = Driver(**ROOMY)
    frame_id = driver.frame()
    driver.begin()
    driver.fail()
    driver.apply(FrameDropped(frame_id=frame_id, media_time_ms=0, reason="quarantined"))
    assert not driver.memory.plan().frames


def test_instructions_for_one_response_ride_its_turn_alone() -> None:
    driver = Driver(**ROOMY)
    driver.frame()
    plan = driver.begin("answer in verse")
    assert "answer in verse" in str(chat_messages(plan)[-1])
    driver.answer()
    assert "answer in verse" not in note_text(driver)
    plain = Driver(**ROOMY)
    plain.frame()
    plain.begin()
    plain.answer()
    for each in (driver, plain):
        each.frame()
    assert chat_messages(driver.memory.plan()) == chat_messages(plain.memory.plan())


def test_a_boundary_tick_costs_no_more_than_its_neighbours() -> None:
    """Handover: summarizer slow and failing every third time; no switch tick prefills a window."""
    driver = Driver(chunk_frames=50, context_tokens=32_768, max_images=256)
    for _ in range(600):
        driver.tick()
        driver.background(20, fails=lambda n: n % 3 == 0)
    steady = sorted(driver.uncached)[300]
    assert max(driver.uncached[1:]) <= 2 * steady
    assert len(driver.switches) > 6 and driver.memory.long_term


def test_one_identity_is_wanted_once_and_prewarms_come_in_steps() -> None:
    driver = Driver(chunk_frames=60, **ROOMY)
    driver.run(80, summary_after=10**6)
    driver.land()
    sizes = []
    while wants := driver.wants(WantPrewarm):
        before = driver.cache.prefilled
        driver.prewarm(steps=1)
        sizes.append(driver.cache.prefilled - before)
        assert driver.wants(WantPrewarm)[:1] != wants
    assert len(sizes) >= 3 and max(sizes) <= 2048 + 300
