"""A backend that only writes, given a voice: words ride the sound that says them, in the pace of playing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from orchestrator.backends.spoken import SpokenBackend, SpokenOptions
from orchestrator.session.backend import (
    Action,
    AudioDelta,
    BackendOutput,
    Closed,
    Decision,
    Notice,
    SessionConfig,
    TextDelta,
    TickDone,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ResponseOptions
from tests.fakes.backend import START, ScriptedBackend, tick_done
from tests.fakes.clock import VirtualClock, settle
from tests.fakes.speaker import CHAR_MS, ScriptedSpeaker

NEXT = Fence(1, 0)


class Spoken:
    """A spoken backend with its scripted parts, and everything that came out of it so far."""

    def __init__(self, speaker: ScriptedSpeaker, options: SpokenOptions) -> None:
        self.inner, self.speaker, self.clock = ScriptedBackend(), speaker, VirtualClock()
        self.backend = SpokenBackend(self.inner, speaker, self.clock, options)
        self.out: list[BackendOutput] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for output in self.backend.outputs():
            self.out.append(output)

    async def emits(self, *outputs: BackendOutput) -> None:
        self.inner.emit(*outputs)
        await settle()

    def of(self, kind: type[Any]) -> list[Any]:
        return [output for output in self.out if isinstance(output, kind)]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.of(TextDelta))

    @property
    def sound_ms(self) -> int:
        return sum(len(delta.pcm) // 2 * 1000 // delta.rate for delta in self.of(AudioDelta))


async def spoken(
    speaker: ScriptedSpeaker | None = None, options: SpokenOptions | None = None, **config: Any
) -> Spoken:
    rig = Spoken(speaker or ScriptedSpeaker(), options or SpokenOptions(lead_s=1000.0))
    await rig.backend.open(SessionConfig("m", **config))
    return rig


def answer(text: str, fence: Fence = START, tick: int = 0) -> tuple[BackendOutput, ...]:
    words = [TextDelta(fence, word) for word in text.split("|")]
    return (Decision(fence, tick, Action.RESPONSE, 0.9), *words, TurnEnd(fence))


@pytest.fixture(autouse=True)
async def nothing_left() -> AsyncIterator[None]:
    """No task of a voice outlives its test."""
    yield
    await settle()
    assert not [t for t in asyncio.all_tasks() if t.get_name() == "voice" and not t.done()]


async def ended(rig: Spoken) -> None:
    await rig.backend.close("test_over")
    await rig.reading


async def test_each_chunk_of_sound_follows_the_words_it_says() -> None:
    rig = await spoken()
    assert rig.backend.capabilities().output_modalities == ("text", "audio")
    await rig.emits(*answer("A dog, |and be|hind it another."))
    assert rig.text == "A dog, and behind it another."
    assert rig.sound_ms == CHAR_MS * len(rig.text)
    shown, sounded = 0, 0
    for output in rig.out:
        if isinstance(output, TextDelta):
            shown += len(output.text)
        if isinstance(output, AudioDelta):
            sounded += len(output.pcm) // 48
            assert output.text_marks == ((shown, sounded),)
    assert isinstance(rig.out[0], Decision) and isinstance(rig.out[-1], TurnEnd)
    await ended(rig)
    assert isinstance(rig.out[-1], Closed)


async def test_it_begins_with_the_first_clause_while_the_rest_is_written() -> None:
    rig = await spoken()
    await rig.emits(Decision(START, 0, Action.RESPONSE), TextDelta(START, "A dog, and then"))
    assert rig.text == "A dog, "
    await rig.emits(TextDelta(START, " a cat."), TurnEnd(START))
    assert rig.text == "A dog, and then a cat."
    await ended(rig)


async def test_a_client_that_pauses_is_sent_no_more_than_the_lead_before_it_plays() -> None:
    """It acknowledges what it has played; one that never does gets the sound by the clock."""
    rig = await spoken(options=SpokenOptions(lead_s=1.0))
    await rig.emits(*answer("word " * 40))
    await rig.clock.advance(1.0)
    await rig.backend.playback("resp", START, 1000, 1000)
    await rig.clock.advance(3.0)  # of which it paused two
    await rig.backend.playback("resp", START, 2000, 2000)
    sent = rig.sound_ms
    await rig.clock.advance(1.0)
    assert rig.sound_ms == sent, "sent by the clock before anybody knew"
    await rig.backend.playback("resp", NEXT, 10, 10)
    for played_ms in range(3000, 8500, 500):
        await rig.backend.playback("resp", START, played_ms, played_ms)
        assert rig.sound_ms <= max(sent, played_ms + 1000 + 200)
        await rig.clock.advance(0.5)
    await rig.clock.advance(2.0)
    assert rig.text == "word " * 40 and rig.sound_ms == CHAR_MS * 200
    await ended(rig)


async def test_a_client_that_says_again_and_again_that_it_has_played_nothing_is_not_waited_for() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=1.0))
    await rig.emits(*answer("word " * 40))
    for _ in range(40):
        await rig.backend.playback("resp", START, 0, 0)
        await rig.clock.advance(0.5)
    assert rig.text == "word " * 40 and isinstance(rig.out[-1], TurnEnd)
    await ended(rig)


async def test_the_sound_runs_ahead_of_its_playing_by_no_more_than_the_lead() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=1.0))
    await rig.emits(*answer("word " * 40))
    for _ in range(12):
        ahead = rig.sound_ms / 1000 - rig.clock.now()
        assert ahead <= 1.0 + 0.2 + 1e-9, "one chunk may be under way"
        assert ahead > 0 or rig.of(TurnEnd)
        await rig.clock.advance(1.0)
    assert rig.text == "word " * 40 and rig.of(TurnEnd)
    await ended(rig)


async def test_a_cancel_cuts_the_speaker_off_before_the_other_backend_is_asked() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5))
    await rig.emits(*answer("a long story that goes on and on and on. " * 5))
    before = rig.sound_ms
    assert 0 < before < 1000
    rig.inner.hold("cancel")
    cancelling = asyncio.create_task(rig.backend.cancel(START, NEXT))
    await rig.clock.advance(60.0)
    assert rig.sound_ms == before and rig.speaker.cut == 1
    rig.inner.free("cancel")
    await cancelling
    await rig.emits(TextDelta(START, "late words"), *answer("New.", NEXT))
    assert rig.text.endswith("New.") and "late" not in rig.text
    await ended(rig)


async def test_what_the_model_sees_meanwhile_is_told_at_once_and_its_next_words_wait() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5))
    await rig.emits(*answer("a long story that goes on and on. "))
    await rig.emits(
        tick_done(START, 0, ("a",)),
        Decision(START, 1, Action.SILENCE, 0.1, "model"),
        tick_done(START, 1, ("b",)),
        *answer("Next.", tick=2),
    )
    assert [done.tick for done in rig.of(TickDone)] == [0, 1]
    assert [d.action for d in rig.of(Decision)] == [Action.RESPONSE], "silence over speech is no news"
    assert not rig.of(TurnEnd)
    await rig.clock.advance(60.0)
    assert len(rig.of(TurnEnd)) == 2 and rig.text.endswith("on. Next.")
    order = [type(output) for output in rig.out if isinstance(output, Decision | TurnEnd)]
    assert order == [Decision, TurnEnd, Decision, TurnEnd]
    await ended(rig)


async def test_words_wait_for_a_speaker_that_is_behind_and_are_bounded() -> None:
    speaker = ScriptedSpeaker()
    speaker.hold()
    rig = await spoken(speaker, SpokenOptions(lead_s=1000.0, waiting_chars=20))
    await rig.emits(Decision(START, 0, Action.RESPONSE), *(TextDelta(START, "a word, ") for _ in range(50)))
    assert len(speaker.texts[0]) < 40
    speaker.free()
    await rig.emits(TurnEnd(START))
    assert rig.text == "a word, " * 50
    await ended(rig)


@pytest.mark.parametrize("fail_after", [0, 2])
async def test_a_speaker_that_breaks_costs_the_sound_of_one_answer_not_its_words(fail_after: int) -> None:
    rig = await spoken(ScriptedSpeaker(fail_after))
    await rig.emits(*answer("A dog, and a cat, and a bird."))
    assert rig.text == "A dog, and a cat, and a bird."
    assert len(rig.of(AudioDelta)) == fail_after
    (notice,) = rig.of(Notice)
    assert notice.code == "quality_reduced" and "speech_failed" in notice.message
    assert rig.of(TurnEnd) == [TurnEnd(START)]
    await ended(rig)


async def test_a_speaker_that_has_words_and_says_nothing_is_given_up() -> None:
    speaker = ScriptedSpeaker()
    speaker.hold()
    rig = await spoken(speaker, SpokenOptions(stuck_s=5.0))
    await rig.emits(*answer("A dog."))
    await rig.clock.advance(4.0)
    assert not rig.of(TurnEnd)
    await rig.clock.advance(2.0)
    assert rig.text == "A dog." and rig.of(TurnEnd)
    assert "speech_timeout" in rig.of(Notice)[0].message
    await ended(rig)


async def test_a_model_that_is_slow_to_write_is_waited_for() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=1000.0, stuck_s=5.0))
    await rig.emits(Decision(START, 0, Action.RESPONSE), TextDelta(START, "A dog"))
    await rig.clock.advance(60.0)
    assert not rig.of(Notice)
    await rig.emits(TextDelta(START, " barks."), TurnEnd(START))
    assert rig.text == "A dog barks." and not rig.of(Notice)
    await ended(rig)


@pytest.mark.parametrize("modalities", [("text",), ("text", "audio")])
async def test_who_wants_text_alone_hears_nothing(modalities: tuple[str, ...]) -> None:
    rig = await spoken(modalities=modalities)
    await rig.emits(*answer("A dog."))
    assert bool(rig.of(AudioDelta)) is ("audio" in modalities)
    await rig.backend.update(SessionConfig("m", modalities=("text",)))
    before = len(rig.of(AudioDelta))
    await rig.emits(*answer("A cat."))
    assert len(rig.of(AudioDelta)) == before and rig.text == "A dog.A cat."
    await rig.backend.tell(ResponseOptions(modalities=("text", "audio")), Fence(0, 5))
    await rig.emits(*answer("A bird.", Fence(0, 5)))
    assert len(rig.of(AudioDelta)) > before
    await ended(rig)


async def test_a_close_in_mid_word_leaves_nothing_running() -> None:
    rig = await spoken(options=SpokenOptions(lead_s=0.5), voice="ann", language="en")
    await rig.emits(*answer("a long story that goes on and on. " * 5))
    await ended(rig)
    assert rig.speaker.cut == 1 and rig.speaker.voices == [("ann", "en")]
    assert isinstance(rig.out[-1], Closed) and not rig.of(TurnEnd)


async def test_a_session_that_ends_before_anything_was_said_just_ends() -> None:
    rig = await spoken()
    await ended(rig)
    assert [type(output) for output in rig.out] == [Closed]


async def test_a_fault_of_the_backend_is_raised_where_its_outputs_are_read() -> None:
    rig = await spoken()
    rig.inner.break_outputs(ValueError("boom"))
    with pytest.raises(ValueError, match="boom"):
        await rig.reading
