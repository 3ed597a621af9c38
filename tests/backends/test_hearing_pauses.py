"""A client that can pause what it plays: told at the first sound that may be speech, and told to go on."""

from __future__ import annotations

from orchestrator.session.backend import (
    PLAYBACK,
    Action,
    AudioDelta,
    Decision,
    PlaybackHeld,
    SessionConfig,
    SpeechStarted,
    TextDelta,
    TurnDetection,
    TurnEnd,
)
from tests.backends.hearing_rig import NEXT, SOUND, Rig, hearing
from tests.fakes.backend import START
from tests.fakes.clock import settle
from tests.fakes.ears import loud, quiet

PAUSE, RESUME = PlaybackHeld(START, True), PlaybackHeld(START, False)
MORE = TextDelta(START, "two ")


async def pausing(*words: str, **options: float) -> Rig:
    rig = await hearing(*words, include=(PLAYBACK,), **options)
    await rig.answers()
    return rig


async def ended(rig: Rig) -> None:
    await rig.backend.close("test_over")
    await rig.reading


async def test_the_first_window_that_may_be_speech_pauses_and_holds() -> None:
    rig = await pausing()
    before = len(rig.out)
    await rig.hears(quiet(64), loud(32))
    assert rig.out[before:] == [PAUSE]
    await rig.emits(MORE, SOUND)
    assert rig.out[before:] == [PAUSE]
    await ended(rig)


async def test_what_was_no_speech_after_all_goes_on_at_once() -> None:
    rig = await pausing()
    before = len(rig.out)
    await rig.hears(loud(64))
    await rig.emits(MORE)
    await rig.hears(quiet(64))
    assert rig.out[before:] == [PAUSE, RESUME, MORE]
    assert rig.backend.statistics()["resumed"] == 1
    await ended(rig)


async def test_a_cough_pauses_once_until_it_is_known_to_be_one() -> None:
    rig = await pausing("")
    before = len(rig.out)
    for part in (loud(64), loud(128), quiet(200)):
        await rig.hears(part)
    await rig.emits(MORE)
    assert rig.out[before:] == [PAUSE]
    await rig.hears(quiet(400))
    assert rig.out[before:] == [PAUSE, RESUME, MORE] and not rig.of(SpeechStarted)
    await ended(rig)


async def test_speech_is_told_before_the_client_may_go_on() -> None:
    """What it cancels is never heard again: the word to go on comes behind the beginning of speech."""
    rig = await pausing("stop")
    before = len(rig.out)
    await rig.hears(loud(64))
    await rig.hears(loud(320))
    assert rig.out[before:] == [PAUSE, SpeechStarted(START, 0), RESUME]
    await ended(rig)


async def test_a_pause_does_not_wait_behind_what_it_pauses_and_none_is_told_twice() -> None:
    rig = await hearing("", include=(PLAYBACK,))
    rig.reading.cancel()
    stream = rig.backend.outputs()
    rig.inner.emit(Decision(START, 0, Action.RESPONSE), TextDelta(START, "One "), *[SOUND] * 5)
    assert isinstance(await anext(stream), Decision)
    await settle()
    await rig.hears(loud(64))
    assert await anext(stream) == PAUSE
    await rig.hears(quiet(64), loud(64), quiet(64), loud(64))
    assert [await anext(stream) for _ in range(6)] == [TextDelta(START, "One "), *[SOUND] * 5]
    await rig.hears(quiet(64))
    assert await anext(stream) == RESUME
    await rig.backend.close("test_over")
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_pause_ends_by_itself() -> None:
    """The microphone goes off in the middle of it."""
    rig = await pausing(verdict_s=2.0)
    before = len(rig.out)
    await rig.hears(loud(64))
    await rig.clock.advance(2.0)
    await settle()
    assert rig.out[before:] == [PAUSE, RESUME]
    await ended(rig)


async def test_sound_that_is_paused_plays_on_for_so_much_longer() -> None:
    rig = await pausing(verdict_s=2.0)
    await rig.emits(AudioDelta(START, bytes(48_000), 24000), TurnEnd(START))  # 1 s, and 0.1 s before it
    await rig.hears(loud(64))
    await rig.clock.advance(2.0)
    await settle()
    await rig.clock.advance(1.0)
    await rig.hears(quiet(64), loud(64))
    assert rig.of(PlaybackHeld) == [PAUSE, RESUME, PAUSE], "a tenth of a second is left"
    await ended(rig)


async def test_clear_update_and_cancel_let_it_go_on() -> None:
    for end in ("clear", "update", "cancel"):
        rig = await pausing()
        await rig.hears(loud(64))
        match end:
            case "clear":
                await rig.backend.clear()
            case "update":
                await rig.backend.update(SessionConfig("m", include=(PLAYBACK,)))
            case _:
                await rig.backend.cancel(START, NEXT)
        await settle()
        assert [each.held for each in rig.of(PlaybackHeld)] == [True, False], end
        await ended(rig)


async def test_without_an_answer_or_without_coughs_nothing_is_paused() -> None:
    rig = await hearing("", include=(PLAYBACK,))
    await rig.hears(loud(64), quiet(64))
    assert not rig.out
    await ended(rig)
    rig = await pausing(cough_ms=0.0)
    await rig.hears(loud(64))
    assert not rig.of(PlaybackHeld)
    await rig.hears(loud(64))
    assert rig.of(SpeechStarted) and not rig.of(PlaybackHeld)
    await ended(rig)


async def test_a_client_that_can_not_pause_is_told_nothing_and_sent_nothing() -> None:
    rig = await hearing("")
    await rig.answers()
    before = len(rig.out)
    await rig.hears(loud(64))
    await rig.emits(MORE, SOUND)
    assert not rig.out[before:]
    await rig.hears(quiet(64))
    assert rig.out[before:] == [MORE, SOUND]
    await ended(rig)


async def test_who_was_told_to_pause_is_told_to_go_on_even_if_they_ask_for_it_no_more() -> None:
    rig = await pausing()
    await rig.hears(loud(64))
    await rig.backend.update(SessionConfig("m", turn_detection=TurnDetection(), auto_response=True))
    await rig.hears(quiet(64))
    await rig.hears(loud(64), quiet(64))
    assert rig.of(PlaybackHeld) == [PAUSE, RESUME]
    await ended(rig)
