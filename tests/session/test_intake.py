"""Wire commands become the session's own, in order, with media decoded and every refusal typed."""

import base64
import io
import wave
from typing import Any

import numpy as np
import pytest

from orchestrator.session import commands as cmd
from orchestrator.session.backend import Capabilities, SessionConfig
from orchestrator.session.intake import Intake
from orchestrator.session.items import ContentPart
from orchestrator.session.told import ResponseOptions
from orchestrator.wire.client import command_of
from orchestrator.wire.errors import VigilError
from tests.fakes.clock import CountingIds

JPEG = base64.b64encode(b"\xff\xd8\xff\xe0rest").decode()
CAPABILITIES = Capabilities(1000, optional_input_modalities=("audio", "video"))


def intake(capabilities: Capabilities = CAPABILITIES, **config: Any) -> Intake:
    return Intake(SessionConfig("m", **config), capabilities, CountingIds())


def take(taker: Intake, **event: Any) -> list[cmd.AnyCommand]:
    return taker.commands(command_of(event), 1.0)


def one(taker: Intake, **event: Any) -> Any:
    (command,) = take(taker, **event)
    return command


def refusal(taker: Intake, **event: Any) -> str:
    with pytest.raises(VigilError) as refused:
        take(taker, event_id="evt_1", **event)
    assert refused.value.event_id == "evt_1"
    return refused.value.code


def tone(samples: int) -> str:
    values = np.sin(np.arange(samples) / 10) * 20000
    return base64.b64encode(values.astype("<i2").tobytes()).decode()


# --- appends -----------------------------------------------------------------------------------------


def test_audio_leaves_as_float_samples_at_the_models_rate() -> None:
    append = one(intake(), type="input_audio_buffer.append", audio=tone(3200), operation_id="op")
    assert append.operation_id == "op"
    assert len(append.unit.pcm) == 4 * 3200
    assert append.is_speech
    assert append.duration_ms == 200


def test_a_declared_rate_is_resampled_and_nothing_is_lost_by_the_commit() -> None:
    taker = intake()
    body = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}}
    update = one(taker, type="session.update", session=body)
    assert isinstance(update, cmd.Reconfigure)
    taker.expect(update)
    first = take(taker, type="input_audio_buffer.append", audio=tone(4800))
    rest = take(taker, type="input_audio_buffer.commit")
    units = [c.unit.pcm for c in (*first, *rest) if isinstance(c, cmd.AppendInput)]
    assert sum(len(pcm or b"") for pcm in units) == 4 * 3200
    assert isinstance(rest[-1], cmd.CommitInput)


def test_a_spare_byte_waits_for_its_other_half() -> None:
    taker = intake()
    odd = base64.b64encode(b"\x01").decode()
    assert take(taker, type="input_audio_buffer.append", audio=odd) == []
    assert len(one(taker, type="input_audio_buffer.append", audio=odd).unit.pcm) == 4


def test_frames_and_audio_ride_one_unit() -> None:
    append = one(
        intake(),
        type="input_audio_buffer.append",
        audio=tone(160),
        video_frames=[JPEG],
        frame_times_ms=[40],
        frame_id="f1",
    )
    assert [(f.media_time_ms, f.frame_id) for f in append.unit.frames] == [(40, "f1")]


def test_a_wav_alias_needs_no_format() -> None:

    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(3200))
    payload = base64.b64encode(out.getvalue()).decode()
    assert len(one(intake(), type="push_chunk", audio=payload).unit.pcm) == 4 * 1600


def test_hints_are_passed_on() -> None:
    append = one(
        intake(),
        type="input_audio_buffer.append",
        audio=tone(160),
        overlap="ack",
        force_barge_in=True,
        text="go on",
        duration_ms=123,
    )
    assert (append.overlap_action, append.force_barge_in, append.transcript) == ("ack", True, "go on")
    assert append.duration_ms == 123


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "bad_event"),
        ({"audio": "", "video_frames": []}, "bad_event"),
        ({"audio": "AAAA", "sample_rate_hz": 7999}, "bad_event"),
        ({"audio": "AAAA", "sample_rate_hz": 16000.5}, "bad_event"),
        ({"audio": "AAAA", "format": "mp3"}, "unsupported_audio_format"),
        ({"audio": "AAAA", "format": "pcm_f32le", "sample_rate_hz": 24000}, "bad_event"),
        ({"video_frames": ["nope"]}, "invalid_video_frames"),
    ],
)
def test_refused_appends(fields: dict[str, Any], code: str) -> None:
    assert refusal(intake(), type="input_audio_buffer.append", **fields) == code


def test_a_bad_append_does_not_poison_the_next() -> None:
    taker = intake()
    one(taker, type="input_audio_buffer.append", audio=tone(160))
    refusal(taker, type="input_audio_buffer.append", audio="AAAA", sample_rate_hz=48000)
    assert len(one(taker, type="input_audio_buffer.append", audio=tone(160)).unit.pcm) == 640


# --- responses ---------------------------------------------------------------------------------------


def test_a_plain_create() -> None:
    create = one(intake(), type="response.create")
    assert create == cmd.CreateResponse()


def test_options_of_one_response() -> None:
    body = {
        "instructions": "brief",
        "temperature": 0.1,
        "max_output_tokens": 5,
        "conversation": "none",
        "metadata": {"a": "b"},
        "output_modalities": ["text"],
    }
    create = one(intake(), type="response.create", response=body)
    assert create.options == ResponseOptions("brief", 0.1, 5)
    assert not create.in_history
    assert create.metadata == {"a": "b"}
    assert create.modalities == ("text",)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"voice": "x"}, "unsupported_native_response_options"),
        ({"input": []}, "unsupported_native_response_options"),
        ({"tools": [{}]}, "unsupported_tools"),
        ({"modalities": ["video"]}, "unsupported_response_modality"),
    ],
)
def test_refused_options(body: dict[str, Any], code: str) -> None:
    assert refusal(intake(), type="response.create", response=body) == code


# --- items -------------------------------------------------------------------------------------------


def test_a_users_text() -> None:
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}], "id": "i1"}
    create = one(intake(), type="conversation.item.create", item=item, previous_item_id="p")
    assert (create.item.item_id, create.item.role, create.previous_item_id) == ("i1", "user", "p")
    assert create.item.content == (ContentPart("input_text", "hi"),)


def test_an_item_without_an_id_gets_one() -> None:
    create = one(intake(), type="conversation.item.create", item={})
    assert create.item.item_id.startswith("item_")


def test_pictures_of_a_message() -> None:
    content = [
        {"type": "input_text", "text": "what is it?"},
        {"type": "input_image", "image_url": "data:image/jpeg;base64," + JPEG},
    ]
    create = one(intake(), type="conversation.item.create", item={"content": content})
    assert [part.kind for part in create.item.content] == ["input_text", "input_image"]
    assert len(create.pictures) == 1
    assert create.pictures[0].unit.frames[0].data.startswith(b"\xff\xd8")


def test_speech_of_a_message_is_appended_and_committed_under_its_id() -> None:
    content = [{"type": "input_audio", "audio": tone(3200)}, {"type": "audio", "data": "AAAAAA=="}]
    commands = take(intake(), type="conversation.item.create", item={"id": "i1", "content": content})
    assert [type(c) for c in commands] == [cmd.AppendInput, cmd.CommitInput]
    assert isinstance(commands[-1], cmd.CommitInput)
    assert commands[-1].item_id == "i1"
    assert not commands[-1].create_response


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, "invalid_function_call_output"),
        ({"type": "reasoning"}, "bad_event"),
        ({"role": "tool"}, "bad_event"),
        ({"id": 5}, "bad_event"),
        ({"content": "text"}, "bad_event"),
        ({"content": [{"type": "video"}]}, "bad_event"),
        ({"content": ["x"]}, "bad_event"),
        ({"role": "assistant", "content": [{"type": "input_image", "image_url": "x"}]}, "invalid_image"),
        ({"content": [{"type": "input_image", "image_url": "http://x/y.png"}]}, "invalid_image"),
        ({"content": [{"type": "input_image", "image_url": "data:image/png;base64,QUJD"}]}, "invalid_image"),
        ({"content": [{"type": "input_audio"}]}, "bad_audio"),
        ({"content": [{"type": "audio", "audio": "AAAA", "format": "mp3"}]}, "unsupported_audio_format"),
    ],
)
def test_refused_items(item: dict[str, Any], code: str) -> None:
    assert refusal(intake(), type="conversation.item.create", item=item) == code


def test_a_model_without_pictures_in_messages() -> None:
    content = [{"type": "input_image", "image_url": "data:image/jpeg;base64," + JPEG}]
    blind = intake(Capabilities(1000, supports_image_input=False))
    assert refusal(blind, type="conversation.item.create", item={"content": content}) == "unsupported"


# --- the rest ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "response.cancel", "response_id": "r"}, cmd.Cancel("r")),
        ({"type": "output_audio_buffer.clear"}, cmd.ClearOutput()),
        ({"type": "input_audio_buffer.clear"}, cmd.ClearInput()),
        ({"type": "input.cancel"}, cmd.Interrupt(barge_in=False)),
        ({"type": "turn.signal", "event": "barge_in"}, cmd.Interrupt(barge_in=True)),
        ({"type": "audio.playback_ack", "played_ms": 5}, cmd.PlaybackAck(5)),
        ({"type": "conversation.item.retrieve", "item_id": "i"}, cmd.RetrieveItem("i")),
        ({"type": "conversation.item.delete", "item_id": "i"}, cmd.DeleteItem("i")),
        (
            {"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": -11},
            cmd.TruncateItem("i", 0, -11),
        ),
        ({"type": "signal_turn", "event": "user_started"}, cmd.SignalTurn("user_started")),
        ({"type": "session.heartbeat"}, cmd.Heartbeat()),
        ({"type": "session.event_ack", "server_event_seq": "x"}, cmd.AckEvents("x")),
        ({"type": "close_session", "reason": "bye"}, cmd.Close("bye")),
        ({"type": "push_text", "text": "hi"}, cmd.AppendText("hi")),
        ({"type": "session.update", "session": {"voice": "a"}}, cmd.Reconfigure({"voice": "a"})),
    ],
)
def test_commands_that_say_the_same_on_both_sides(event: dict[str, Any], expected: cmd.AnyCommand) -> None:
    assert one(intake(), **event) == expected


def test_a_late_resume_and_a_text_the_model_cannot_take() -> None:
    assert refusal(intake(), type="session.resume") == "unsupported_session_resume"
    mute = intake(Capabilities(1000, supports_text_only_turn=False))
    assert refusal(mute, type="input.text.append", text="hi") == "native_text_append_unsupported"


def test_a_refused_update_is_judged_by_the_session_in_its_turn() -> None:
    command = one(intake(), type="session.update", session={"input_audio_format": "mp3"})
    assert command == cmd.Reconfigure({"input_audio_format": "mp3"})
