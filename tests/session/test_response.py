"""The life cycle of one response: events in the contract's order, exactly one terminal, ids by rule."""

import pytest

from orchestrator.session.events import (
    Event,
    OutputAudioDelta,
    OutputItemAdded,
    OutputTextDone,
    OutputTranscriptDelta,
    OutputTranscriptDone,
    ResponseDone,
)
from orchestrator.session.fence import Fence
from orchestrator.session.playback import Playback
from orchestrator.session.response import STEPS, Phase, Response, Step, response_id_of, serial_of
from orchestrator.wire.errors import ServerFault

FENCE = Fence(2, 1)


def make(*modalities: str) -> Response:
    modalities = modalities or ("text",)
    ledger = Playback(response_id_of("duplex-1", 2, 10), FENCE, spoken="audio" in modalities)
    return Response(ledger, FENCE, modalities)


def begin(response: Response) -> tuple[Event, ...]:
    return response.begin("item_before")


def finish(response: Response, status: str = "completed", heard: str = "") -> tuple[Event, ...]:
    return response.finish(status, None, heard=heard, committed=True)


def types(*groups: tuple[Event, ...]) -> list[str]:
    return [event.type for group in groups for event in group]


def test_text_response_follows_the_template() -> None:
    response = make()
    events = types(
        begin(response),
        response.speak(0.7),
        response.add_text("One "),
        response.add_text("two"),
        finish(response, "completed"),
    )
    assert events == [
        "response.created",
        "conversation.item.added",
        "conversation.item.created",
        "response.output_item.added",
        "response.speak",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ]


def test_text_done_equals_the_concatenation_of_deltas() -> None:
    response = make()
    begin(response)
    for delta in ("a", "", "bc"):
        response.add_text(delta)
    done = [e for e in finish(response, "completed") if isinstance(e, OutputTextDone | ResponseDone)]
    assert [event.text for event in done] == ["abc", "abc"]


def test_creation_events_are_snapshots_that_never_grow() -> None:
    response = make()
    added = next(e for e in begin(response) if isinstance(e, OutputItemAdded))
    response.add_text("later")
    finish(response, "completed")
    assert added.item.content == ()
    assert added.item.status == "in_progress"


def test_speak_is_said_once_and_never_after_content() -> None:
    response = make()
    begin(response)
    assert types(response.speak(None)) == ["response.speak"]
    assert response.speak(None) == ()
    late = make()
    begin(late)
    late.add_text("x")
    assert late.speak(0.5) == ()


def test_a_response_without_content_ends_without_content_events() -> None:
    response = make()
    begin(response)
    assert types(finish(response, "cancelled")) == [
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("step", Step)
def test_step_table_is_total(phase: Phase, step: Step) -> None:
    response = make()
    response.phase = phase

    def act() -> object:
        return response.add_text("x") if step is Step.CONTENT else finish(response, "failed")

    if (phase, step) in STEPS:
        act()
        assert response.phase is STEPS[phase, step]
    else:
        with pytest.raises(ServerFault):
            act()


def test_ids_follow_the_contract() -> None:
    response_id = response_id_of("duplex-ab", 3, 255)
    assert response_id == "resp-duplex-ab-3-000000ff"
    assert Playback(response_id, Fence(3, 0), spoken=False).item_id == "item_" + response_id
    assert serial_of("duplex-ab", response_id) == 255
    for other in ("resp-duplex-x-3-000000ff", "resp-duplex-ab-3-ff", "resp-duplex-ab-3-zzzzzzzz", "", "-"):
        assert serial_of("duplex-ab", other) is None


# --- spoken ------------------------------------------------------------------------------------------

SECOND = bytes(2 * 24000)


def test_spoken_response_follows_the_template() -> None:
    response = make("audio", "text")
    events = types(
        begin(response),
        response.speak(None),
        response.add_text("One "),
        response.add_audio(SECOND, 24000, ()),
        response.add_audio(SECOND, 24000, ()),
        response.add_text("two"),
        response.add_audio(SECOND, 24000, ()),
        finish(response),
    )
    assert events == [
        "response.created",
        "conversation.item.added",
        "conversation.item.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.speak",
        *(["response.output_audio.delta", "response.output_audio_transcript.delta"] * 3),
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ]


def test_each_chunk_carries_the_words_it_says_and_cumulative_time() -> None:
    response = make("audio")
    begin(response)
    events: list[Event] = []
    for text in ("One ", "", "two"):
        response.add_text(text)
        events += response.add_audio(SECOND, 24000, ((1, 2),))
    events += finish(response)
    assert [e.delta for e in events if isinstance(e, OutputTranscriptDelta)] == ["One ", "", "two"]
    assert [e.total_ms for e in events if isinstance(e, OutputAudioDelta)] == [1000, 2000, 3000]
    assert [e.transcript for e in events if isinstance(e, OutputTranscriptDone)] == ["One two"]
    done = next(e for e in events if isinstance(e, ResponseDone))
    assert done.item.content[0].audio_ms == 3000
    assert done.item.content[0].text_marks == ((1, 2),) * 3


def test_odd_chunk_lengths_never_drift() -> None:
    response = make("audio")
    begin(response)
    total = 0
    for _ in range(300):
        chunk = response.add_audio(bytes(2 * 333), 24000, ())[0]
        assert isinstance(chunk, OutputAudioDelta)
        total += chunk.duration_ms
    assert total == 300 * 333 * 1000 // 24000


def test_words_without_audio_stand_alone_at_the_end() -> None:
    response = make("audio")
    begin(response)
    response.add_text("unspoken")
    events = finish(response)
    assert types(events)[:4] == [
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
    ]


def test_the_speech_of_a_cancelled_response_is_cut_to_what_was_heard() -> None:
    response = make("audio")
    begin(response)
    response.add_text("one two three")
    response.add_audio(SECOND, 24000, ())
    response.add_text(" and four")
    events = finish(response, "cancelled", heard="one two")
    assert "response.output_audio_transcript.delta" not in types(events)
    assert [e.transcript for e in events if isinstance(e, OutputTranscriptDone)] == ["one two"]
    done = next(e for e in events if isinstance(e, ResponseDone))
    assert done.text == "one two"


def test_kept_text_is_bounded() -> None:
    response = make()
    begin(response)
    response.add_text("x" * 70_000 + "end")
    done = next(e for e in finish(response) if isinstance(e, ResponseDone))
    assert len(done.text) == 65536
    assert done.text.endswith("end")
