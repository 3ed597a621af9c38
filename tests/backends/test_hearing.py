"""A backend that only reads, given ears: utterances, their words, and an answer that a cough only holds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from bridges.asr import AsrError
from orchestrator.session.backend import (
    TRANSCRIPT_SO_FAR,
    Action,
    AudioDelta,
    Closed,
    Decision,
    Failed,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import QueryAsked
from orchestrator.session.units import FrameInput, InputUnit
from tests.backends.hearing_rig import NEXT, SOUND, Rig, hearing
from tests.fakes.backend import START
from tests.fakes.clock import settle
from tests.fakes.ears import LoudnessDetector, loud, quiet

PAUSE = 600


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No task of a session's ears outlives its test."""
    yield
    await settle()
    left = [t for t in asyncio.all_tasks() if t.get_name().startswith("hearing ") and not t.done()]
    assert not left


async def ended(rig: Rig) -> None:
    await rig.backend.close("test_over")
    await rig.reading
    assert isinstance(rig.out[-1], Closed)


async def test_an_utterance_is_told_with_its_times_and_then_its_words() -> None:
    rig = await hearing("stop it")
    capabilities = rig.backend.capabilities()
    assert "audio" in capabilities.optional_input_modalities and capabilities.transcribes
    await rig.hears(quiet(1024), loud(640), quiet(PAUSE))
    assert rig.out == [
        SpeechStarted(START, 724),
        SpeechStopped(START, 2176),
        UserTranscript(START, "stop it", True, 724, 2176),
    ]
    assert rig.words.asked == [(pytest.approx(1.472, abs=0.04), True, "en")]
    assert not [call for call in rig.inner.calls if call.method == "append"]
    await ended(rig)


async def test_silence_asks_nobody_and_noise_has_no_words() -> None:
    rig = await hearing()
    for _ in range(60):
        await rig.hears(quiet(1000))
    assert not rig.out and not rig.words.asked
    await rig.hears(loud(200), quiet(PAUSE))
    assert rig.kinds == ["SpeechStarted", "SpeechStopped"]
    await ended(rig)


async def test_frames_go_on_as_they_came_and_the_sound_with_them_is_heard() -> None:
    rig = await hearing("hello")
    pictures = (FrameInput(b"jpeg", 7),)
    await rig.backend.append(InputUnit(pictures, loud(640).tobytes()), START, "a")
    await rig.hears(quiet(PAUSE))
    assert [call.arguments for call in rig.inner.calls if call.method == "append"] == [
        (InputUnit(pictures), START, "a")
    ]
    assert rig.said == ["hello"]
    await ended(rig)


async def test_the_clock_follows_gaps_and_survives_resets() -> None:
    rig = await hearing("one", "two")
    await rig.hears(loud(320), start_ms=10_000.0)
    await rig.hears(quiet(64), start_ms=20_000.0)
    assert rig.out[:2] == [SpeechStarted(START, 10_000), SpeechStopped(START, 10_320)]
    await rig.backend.clear()
    await rig.hears(loud(320), quiet(PAUSE), start_ms=20_080.0)
    (_, later) = rig.of(SpeechStarted)
    assert later.audio_start_ms == 20_064
    assert rig.said[-1:] == ["two"]
    await ended(rig)


async def test_a_cough_holds_the_answer_which_goes_on_where_it_was() -> None:
    rig = await hearing("")
    rig.words.hold()
    await rig.answers()
    before = list(rig.out)
    await rig.hears(loud(200), quiet(100))
    await rig.emits(TextDelta(START, "two "), SOUND, TextDelta(START, "three."), TurnEnd(START))
    assert rig.out == before, "held"
    await rig.hears(quiet(PAUSE))
    assert rig.out == before, "held until it is known to be nothing"
    rig.words.free()
    await settle()
    assert rig.out[len(before) :] == [
        TextDelta(START, "two "), SOUND, TextDelta(START, "three."), TurnEnd(START),
    ]  # fmt: skip
    assert not {"cancel", "clear"} & set(rig.inner.methods())
    assert rig.backend.statistics()["resumed"] == 1
    await ended(rig)


async def test_a_short_word_over_an_answer_was_the_users_after_all() -> None:
    rig = await hearing("stop")
    await rig.answers()
    before = len(rig.out)
    await rig.hears(loud(200), quiet(PAUSE))
    assert rig.out[before:] == [
        SpeechStarted(START, 0), SpeechStopped(START, 736), UserTranscript(START, "stop", True, 0, 736),
    ]  # fmt: skip
    await ended(rig)


async def test_speech_over_an_answer_is_told_as_soon_as_it_is_no_cough() -> None:
    rig = await hearing("wait a moment", cough_ms=300.0)
    await rig.answers()
    await rig.hears(loud(288))
    assert not rig.of(SpeechStarted)
    await rig.hears(loud(64))
    assert rig.of(SpeechStarted) == [SpeechStarted(START, 0)]
    await rig.backend.cancel(START, NEXT)
    await rig.hears(loud(320), quiet(PAUSE))
    assert len(rig.of(SpeechStarted)) == len(rig.of(SpeechStopped)) == 1 and rig.said == ["wait a moment"]
    await ended(rig)


async def test_without_a_setting_for_coughs_any_speech_is_told_at_once() -> None:
    rig = await hearing(cough_ms=0.0)
    await rig.answers()
    await rig.hears(loud(96))
    assert rig.of(SpeechStarted)
    await ended(rig)


async def test_an_answer_is_not_held_for_long() -> None:
    """Words that come later stop it then."""
    rig = await hearing("stop", verdict_s=2.0)
    rig.words.hold()
    await rig.answers()
    await rig.hears(loud(200), quiet(PAUSE))
    await rig.emits(TextDelta(START, "two"))
    assert not [d for d in rig.of(TextDelta) if d.text == "two"]
    await rig.clock.advance(2.0)
    await settle()
    assert [d for d in rig.of(TextDelta) if d.text == "two"]
    rig.words.free()
    await settle()
    assert rig.of(SpeechStarted) and rig.said == ["stop"]
    await ended(rig)


async def test_what_is_still_being_played_is_an_answer_too() -> None:
    rig = await hearing()
    second = AudioDelta(START, bytes(48_000), 24000)
    await rig.emits(Decision(START, 0, Action.RESPONSE), second, TurnEnd(START))
    await rig.hears(loud(200), quiet(PAUSE))
    assert not rig.of(SpeechStarted), "0.4 of a second is left to play"
    await rig.clock.advance(2.0)
    await rig.hears(loud(200), quiet(PAUSE))
    assert len(rig.of(SpeechStarted)) == 1
    await ended(rig)


async def test_a_microphone_that_goes_off_ends_the_utterance_and_holds_nothing() -> None:
    rig = await hearing("hello", "", verdict_s=2.0)
    await rig.hears(loud(640))
    await rig.clock.advance(1.4)
    assert not rig.of(SpeechStopped)
    await rig.clock.advance(0.2)
    await settle()
    assert len(rig.of(SpeechStopped)) == 1 and rig.said == ["hello"]
    await rig.answers()
    await rig.hears(loud(200))
    await rig.emits(TextDelta(START, "two"))
    await rig.clock.advance(2.0)
    await settle()
    assert TextDelta(START, "two") in rig.out
    await ended(rig)


async def test_a_stall_of_the_process_cuts_no_utterance() -> None:
    """Contract: sound that waits to be read while nothing runs belongs to the utterance it continues."""
    rig = await hearing("hello")
    await rig.hears(loud(640))
    for _ in range(3):
        rig.clock.move(rig.clock.now() + 5)
        await rig.clock.advance(0)  # whoever slept wakes before the sound is read
        await rig.hears(loud(200))
    await rig.hears(quiet(600))
    assert len(rig.of(SpeechStarted)) == len(rig.of(SpeechStopped)) == 1 and rig.said == ["hello"]
    await ended(rig)


async def test_a_clear_tells_the_end_of_speech_that_was_told_to_begin() -> None:
    rig = await hearing()
    await rig.hears(loud(640))
    await rig.backend.clear()
    await settle()
    assert rig.kinds == ["SpeechStarted", "SpeechStopped"]
    await rig.hears(quiet(PAUSE))
    assert not rig.words.asked
    await ended(rig)


async def test_what_is_left_of_a_cancelled_answer_is_no_answer() -> None:
    rig = await hearing()
    await rig.answers()
    await rig.hears(loud(200))
    await rig.emits(TextDelta(START, "two"))
    await rig.backend.cancel(START, NEXT)
    await rig.hears(quiet(PAUSE))
    await rig.hears(loud(200), quiet(PAUSE))
    assert len(rig.of(SpeechStarted)) == 1, "nothing is being said, so it is told at once"
    await ended(rig)


async def test_a_cancel_lets_go_of_what_was_held() -> None:
    rig = await hearing()
    await rig.answers()
    await rig.hears(loud(200))
    await rig.emits(TextDelta(START, "two"))
    await rig.backend.cancel(START, NEXT)
    await rig.emits(Decision(NEXT, 1, Action.RESPONSE), TextDelta(NEXT, "new"))
    assert TextDelta(NEXT, "new") in rig.out
    await ended(rig)


async def test_a_turn_that_the_client_commits_is_answered_when_its_words_are_asked() -> None:
    rig = await hearing("what is it", vad=False, auto=False)
    rig.words.hold()
    await rig.hears(loud(320), quiet(PAUSE), loud(320))
    assert not rig.words.asked and not rig.out
    fence = Fence(0, 1)
    await rig.backend.commit(fence, True)
    await settle()
    assert "commit" not in rig.inner.methods()
    rig.words.free()
    await settle()
    assert rig.said == ["what is it"] and "commit" not in rig.inner.methods()
    await rig.backend.tell(QueryAsked("what is it", "item"), fence)
    assert rig.inner.methods()[-2:] == ["tell", "commit"]
    assert rig.inner.calls[-1].arguments == (fence, True)
    await ended(rig)


@pytest.mark.parametrize("words", ["", AsrError("asr_timeout", "late")])
async def test_a_turn_without_words_is_answered_all_the_same(words: str | AsrError) -> None:
    rig = await hearing(words, vad=False, auto=False)
    await rig.hears(loud(320))
    await rig.backend.commit(Fence(0, 1), True)
    await settle()
    assert rig.inner.methods()[-1] == "commit" and not rig.said
    await rig.backend.commit(Fence(0, 2), False)
    assert rig.inner.calls[-1].arguments == (Fence(0, 2), False)
    await ended(rig)


async def test_words_that_cannot_be_had_are_told_with_their_code() -> None:
    rig = await hearing(AsrError("asr_timeout", "no transcript within 10 s"), "again")
    await rig.hears(loud(320), quiet(PAUSE), loud(320), quiet(PAUSE))
    assert [each.code for each in rig.of(Failed)] == ["asr_timeout"] and rig.said == ["again"]
    await ended(rig)


async def test_too_much_speech_is_bounded_and_told() -> None:
    rig = await hearing(*["words"] * 20)
    rig.words.hold()
    for _ in range(12):
        await rig.hears(loud(320), quiet(PAUSE))
    assert [each.code for each in rig.of(Failed)] == ["asr_overloaded"] * 3
    rig.words.free()
    await settle()
    assert len(rig.said) == 9
    await ended(rig)


async def test_a_broken_detector_is_told_once_and_pictures_go_on() -> None:
    rig = await hearing(detector=LoudnessDetector(break_after=10))
    await rig.hears(quiet(1000), quiet(1000))
    assert [each.code for each in rig.of(Failed)] == ["server_vad_unavailable"]
    await rig.backend.append(InputUnit((FrameInput(b"x", 0),)), START, "f")
    assert rig.inner.methods()[-1] == "append"
    await ended(rig)


async def test_words_so_far_are_told_when_two_looks_agree() -> None:
    rig = await hearing("one two four", partial_s=1.0, include=(TRANSCRIPT_SO_FAR,))
    rig.words.partials.extend(["one", "one two", "one two three"])
    for _ in range(4):
        await rig.hears(loud(320))
        await rig.clock.advance(1.0)
    await rig.hears(loud(32), quiet(PAUSE))
    assert [each.text for each in rig.of(UserTranscript)] == ["one", " two", "one two four"]
    assert [final for _, final, _ in rig.words.asked] == [False, False, False, True]
    await ended(rig)


async def test_words_are_looked_for_before_the_silence_is_over_and_used_if_it_was_the_end() -> None:
    rig = await hearing("all of it")
    rig.words.partials.extend(["a part", "the whole"])
    await rig.hears(loud(640), quiet(256))
    assert len(rig.words.asked) == 1 and not rig.said
    await rig.hears(loud(320), quiet(256))
    assert len(rig.words.asked) == 2 and not rig.said
    await rig.hears(quiet(300))
    assert rig.said == ["the whole"]
    await rig.hears(loud(640), quiet(PAUSE))
    assert rig.said == ["the whole", "all of it"], "refused, so asked again"
    await ended(rig)


async def test_without_a_client_that_wants_them_words_so_far_are_not_looked_for() -> None:
    rig = await hearing("one", partial_s=1.0)
    for _ in range(4):
        await rig.hears(loud(320))
        await rig.clock.advance(1.0)
    assert not rig.words.asked
    await ended(rig)


async def test_a_fault_of_the_backend_ends_the_stream_with_it() -> None:
    rig = await hearing()
    rig.inner.break_outputs(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        await rig.reading
