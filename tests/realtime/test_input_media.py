"""Cases B: audio and pictures as clients send them, and what of them reaches a model's backend."""

from __future__ import annotations

import base64
import io
import wave
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from orchestrator.session.told import QueryAsked
from orchestrator.wire.client import MAX_FRAME_BYTES
from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker, pcm16

AUTO = replace(VOICE, auto_response=True, holds_turn_input=False)
JPEG, PNG = b"\xff\xd8 one", b"\x89PNG\r\n\x1a\n two"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({}, "bad_event"),
        ({"audio": "", "video_frames": [None]}, "bad_event"),
        ({"audio": pcm16(20), "sample_rate_hz": 7999}, "bad_event"),
        ({"audio": pcm16(20), "sample_rate_hz": 192001}, "bad_event"),
        ({"audio": pcm16(20), "sample_rate_hz": 16000.5}, "bad_event"),
        ({"audio": pcm16(20), "sample_rate_hz": "16000"}, "bad_event"),
        ({"audio": pcm16(20), "format": "mp3"}, "unsupported_audio_format"),
        ({"audio": "AAAAAA==", "format": "pcm_f32le", "sample_rate_hz": 24000}, "bad_event"),
        ({"audio": "AAAA", "format": "pcm_f32le"}, "bad_audio"),
        ({"audio": "AAAA", "format": "wav"}, "unsupported_audio_format"),
        ({"video_frames": ["AAAA"]}, "invalid_video_frames"),
        ({"video_frames": "AAAA"}, "invalid_video_frames"),
        ({"video_frames": {"0": "AAAA"}, "audio": pcm16(20)}, "invalid_video_frames"),
        ({"audio": pcm16(20), "max_slice_nums": True}, "invalid_video_frames"),
        ({"video_frames": ["not base64!"]}, "invalid_video_frames"),
        ({"video_frames": [base64.b64encode(JPEG).decode()] * 3}, "invalid_video_frames"),
        ({"video_frames": [base64.b64encode(JPEG).decode()], "max_slice_nums": 2}, "invalid_video_frames"),
        ({"video_frames": [base64.b64encode(JPEG).decode()], "frame_times_ms": [1, 2]}, "bad_event"),
        ({"video_frames": [base64.b64encode(JPEG).decode()], "frame_times_ms": [-1]}, "bad_event"),
    ],
)
async def test_case_16_appends_that_are_refused(fields: dict[str, Any], code: str) -> None:
    """Each is told under the client's own id, nothing of it is kept, and the session goes on."""
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.send("input_audio_buffer.append", event_id="e1", **fields)
        assert (await t.error(code))["event_id"] == "e1"
        assert await t.answered() == [] and not server.appended()
        await eventually(lambda: server.pending_bytes() == 0)


async def test_case_16_any_rate_is_brought_to_the_models() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        for _ in range(10):
            await t.send("input_audio_buffer.append", audio=pcm16(100, 48000), sample_rate_hz=48000)
        await t.send("input_audio_buffer.commit")
        await t.until("input_audio_buffer.committed")
        await t.answered()
        assert abs(server.heard() - 16000) <= 16


@pytest.mark.parametrize(
    ("format_", "audio", "samples"),
    [
        ({"type": "audio/pcm", "rate": 24000}, pcm16(200, 24000), 3200),
        ("g711_ulaw", base64.b64encode(bytes(1600)).decode(), 3200),
        ({"type": "audio/pcma"}, base64.b64encode(bytes(1600)).decode(), 3200),
        ("pcm_f32le", base64.b64encode(np.zeros(3200, "<f4").tobytes()).decode(), 3200),
    ],
)
async def test_case_17_the_sessions_own_format(format_: Any, audio: str, samples: int) -> None:
    opening = {"audio": {"input": {"format": format_}}}
    async with Scripted(AUTO) as server, Talker(server.url, opening=opening) as t:
        await t.send("input_audio_buffer.append", audio=audio, is_speech=True)
        await t.send("input_audio_buffer.commit")
        await t.answered()
        assert abs(server.heard() - samples) <= 1


@pytest.mark.parametrize("end", ["barge_in", "input.cancel", "input_audio_buffer.clear"])
async def test_case_18_what_drops_the_input_drops_its_odd_byte(end: str) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        three, four = (base64.b64encode((b"\x00\x10" * 2)[:n]).decode() for n in (3, 4))
        await t.send("input_audio_buffer.append", audio=three, is_speech=True)
        await t.send(end)
        await t.send("input_audio_buffer.append", audio=four, is_speech=True)
        await t.send("input_audio_buffer.commit", response_create=True)
        await eventually(server.asked)
        (unit,) = server.appended()
        assert np.frombuffer(unit.pcm or b"", np.float32).tolist() == [0.125, 0.125]


async def test_case_18_an_odd_byte_waits_for_its_other_half() -> None:
    raw = base64.b64decode(pcm16(100))
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        for part in (raw[:1], raw[1:1001], raw[1001:]):
            audio = base64.b64encode(part).decode()
            await t.send("input_audio_buffer.append", audio=audio, is_speech=True)
        await t.answered()
        pcm = b"".join(unit.pcm or b"" for unit in server.appended())
        sent = np.frombuffer(raw, "<i2") / 32768
        assert np.allclose(np.frombuffer(pcm, "<f4"), sent, atol=1e-4)


@pytest.mark.parametrize(
    ("required", "optional", "audio", "video"),
    [
        (("audio",), ("video",), True, False),
        ((), ("audio", "video"), True, True),
        (("video",), ("audio",), False, True),
        ((), ("video",), False, True),
    ],
)
async def test_case_19_a_model_says_what_it_takes(
    required: tuple[str, ...], optional: tuple[str, ...], audio: bool, video: bool
) -> None:
    takes = replace(AUTO, required_input_modalities=required, optional_input_modalities=optional)
    async with Scripted(takes) as server, Talker(server.url, opening={}) as t:
        await t.speech()
        events = await t.answered()
        assert ("invalid_input_modality" not in str(events)) is audio
        await t.show(JPEG)
        events = await t.answered()
        assert ("invalid_input_modality" not in str(events)) is video
        assert len(server.appended()) == audio + video


async def test_case_20_an_append_of_any_size_is_taken() -> None:
    """Splitting it into the units of an engine is the pairing's affair."""
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.speech(3000)
        await t.answered()
        assert server.heard() == 48000


async def test_case_22_a_frame_rides_the_sound_it_came_with() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        for n in range(1, 11):
            frames = [base64.b64encode(JPEG + bytes([n])).decode()] if n in (5, 10) else None
            await t.speech(200, video_frames=frames, audio_end_ms=200 * n)
        await t.answered()
        units = server.appended()
        assert [bool(unit.frames) for unit in units] == [n in (5, 10) for n in range(1, 11)]
        first, second = (unit.frames[0] for unit in units if unit.frames)
        assert second.media_time_ms - first.media_time_ms == 1000


async def test_case_23_frames_alone_are_units_in_turn_mode() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.show(JPEG)
        await t.show(PNG)
        await t.answered()
        assert server.appended() == []
        await t.send("input_audio_buffer.commit", response_create=True)
        await t.until("response.created")
        await eventually(server.asked)
        assert [unit.frames[0].data for unit in server.appended()] == [JPEG, PNG]
        assert server.backend().methods()[1:] == ["append", "append", "commit"]
        await eventually(lambda: server.pending_bytes() == 0)


async def test_case_24_data_urls_times_and_ids_of_frames() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        url = "data:image/jpeg;base64," + base64.b64encode(JPEG).decode()
        plain = base64.b64encode(PNG).decode()
        await t.send(
            "input_audio_buffer.append",
            video_frames=[url, None, plain],
            frame_times_ms=[0, 400],
            frame_id=["a", "b"],
        )
        await t.answered()
        (unit,) = server.appended()
        assert [(f.data, f.media_time_ms, f.frame_id) for f in unit.frames] == [
            (JPEG, 0, "a"),
            (PNG, 400, "b"),
        ]


async def test_case_25_an_event_that_is_too_large_costs_only_itself() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for size in (MAX_FRAME_BYTES + 1, MAX_FRAME_BYTES + 2**21):
            await t.raw('{"type":"input_audio_buffer.append","audio":"' + "A" * (size - 47) + '"}')
            await t.error("event_too_large")
        assert await t.answered() == []
        with pytest.raises(ConnectionClosed) as closed:
            await t.raw("x" * (2 * MAX_FRAME_BYTES + 1))
            await t.next()
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


@pytest.mark.parametrize("name", ["input.audio.append", "push_chunk"])
async def test_case_26_older_names_take_wav_files(name: str) -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, 8000, 0, "NONE", ""))
        out.writeframes(base64.b64decode(pcm16(200, 8000)))
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.send(name, audio=base64.b64encode(file.getvalue()).decode())
        await t.send("input_audio_buffer.commit")
        await t.answered()
        assert abs(server.heard() - 3200) <= 2


async def test_case_26_a_broken_wav_file_costs_only_itself() -> None:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(bytes(320))
    whole = file.getvalue()
    broken = [whole[:at] + b"\xff" * 4 + whole[at + 4 :] for at in range(0, 44, 2)]
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        for data in [*broken, *(whole[:n] for n in range(0, 44, 3))]:
            await t.send("push_chunk", audio=base64.b64encode(data).decode() or "A===")
        await t.answered()
        assert {e["error"]["code"] for e in t.of("error")} <= {"bad_audio", "bad_event"}
        assert server.registry.sessions()


async def test_case_26_older_names_of_other_commands() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.send("audio.playback_ack", played_ms=0)
        await t.until("playback.acknowledged")
        await t.send("push_text", text="what ")
        await t.send("input_text.append", text="is it?")
        await t.send("input.commit")
        await t.until("conversation.item.done")
        told = [c.arguments[0] for c in server.backend().calls if c.method == "tell"]
        assert [fact.text for fact in told if isinstance(fact, QueryAsked)] == ["what is it?"]
        await t.send("signal_turn", event="user_started")
        assert (await t.until("turn.event"))["turn_state"] == "user_speaking"
        await t.send("close_session")
        assert await t.closed() == (1000, "client_close")


async def test_case_27_the_same_operation_is_taken_once() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        for _ in range(3):
            await t.show(JPEG, operation_id="op-1")
        assert await t.answered() == []
        assert len(server.appended()) == 1
        await eventually(lambda: server.pending_bytes() == 0)
