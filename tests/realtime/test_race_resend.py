"""An append that is sent again, or refused, leaves no trace in the sound that follows it.

A client that lost its socket sends again what it does not know to have arrived. An operation that was
taken is not decoded a second time: no spare byte, no sample of the resampler's filter comes twice or goes
missing. An append that is refused for want of room is as if it had never come, and fits later.
"""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from orchestrator.runtime.registry import RegistryLimits
from orchestrator.session.limits import SessionLimits
from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker, pcm16, resumed

AUTO = replace(VOICE, auto_response=True, holds_turn_input=False)
JPEG = b"\xff\xd8 one"


def told(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def heard(server: Scripted) -> npt.NDArray[np.float32]:
    return np.frombuffer(b"".join(unit.pcm or b"" for unit in server.appended()), "<f4")


def sound(raw: bytes) -> npt.NDArray[np.float32]:
    return (np.frombuffer(raw, "<i2") / 32768).astype(np.float32)


async def test_an_odd_byte_is_kept_once_though_its_append_comes_twice() -> None:
    raw = base64.b64decode(pcm16(100))
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as first:
        await first.send("input_audio_buffer.append", audio=told(raw[:3]), operation_id="a")
        await first.answered()
        t = await resumed(server.url, first)
        await t.until("session.resumed")
        await t.send("input_audio_buffer.append", audio=told(raw[:3]), operation_id="a")
        await t.send("input_audio_buffer.append", audio=told(raw[3:]), operation_id="b")
        await t.answered()
        t.drop()
        assert np.allclose(heard(server), sound(raw), atol=1e-4)


async def test_a_byte_alone_is_remembered_too() -> None:
    raw = base64.b64decode(pcm16(100))
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        for _ in range(2):
            await t.send("input_audio_buffer.append", audio=told(raw[:1]), operation_id="a")
        await t.send("input_audio_buffer.append", audio=told(raw[1:]))
        await t.answered()
        assert np.allclose(heard(server), sound(raw), atol=1e-4)


@pytest.mark.parametrize("times", [1, 3])
async def test_the_filter_hears_an_operation_once(times: int) -> None:
    raw = base64.b64decode(pcm16(300, 24000))
    opening = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}}
    async with Scripted(AUTO) as server, Talker(server.url, opening=opening) as t:
        for n in range(3):
            part = told(raw[n * 4800 : (n + 1) * 4800])
            for _ in range(times):
                await t.send("input_audio_buffer.append", audio=part, operation_id=f"op-{n}")
        await t.send("input_audio_buffer.commit")
        await t.answered()
        samples = heard(server)
    assert samples.size == 4800
    assert np.allclose(samples[400:4400], sound(base64.b64decode(pcm16(300)))[400:4400], atol=0.02)


async def test_sound_that_found_no_room_is_as_if_it_had_never_come() -> None:
    raw = base64.b64decode(pcm16(100))
    limits = RegistryLimits(session=SessionLimits(max_pending_input_bytes=4000))
    async with Scripted(AUTO, limits=limits) as server, Talker(server.url, opening={}) as t:
        await t.send("input_audio_buffer.append", audio=told(raw[:1001]))
        await t.answered()
        await eventually(lambda: server.pending_bytes() == 0)
        server.backend().hold("append")
        await t.show(b"\xff\xd8" + bytes(3000))
        await t.send("input_audio_buffer.append", audio=told(raw[1001:2002]), event_id="mine")
        assert (await t.error("input_backpressure"))["event_id"] == "mine"
        server.backend().free("append")
        await eventually(lambda: server.pending_bytes() == 0)
        await t.send("input_audio_buffer.append", audio=told(raw[1001:2002]))
        await t.answered()
        await eventually(lambda: server.pending_bytes() == 0)
        await t.send("input_audio_buffer.append", audio=told(raw[2002:]))
        await t.answered()
        await eventually(lambda: heard(server).size == len(raw) // 2)
        assert np.allclose(heard(server), sound(raw), atol=1e-4)


async def test_a_frame_of_a_refused_append_keeps_its_time() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        fields = {"video_frames": [told(JPEG)], "audio_end_ms": 60_000}
        await t.show(JPEG, audio_end_ms=1000)
        await t.send("input_audio_buffer.append", audio="AAA", **fields)
        await t.error("bad_audio")
        await t.send("input_audio_buffer.append", audio="AAAA", **fields)
        await t.answered()
        times = [frame.media_time_ms for unit in server.appended() for frame in unit.frames]
        assert times == [0, 59_000]


async def test_a_spoken_message_keeps_its_words_and_pictures_and_its_id() -> None:
    """And it is no part of the stream: an odd byte that waits there is not its own."""
    raw = base64.b64decode(pcm16(100))
    content = [
        {"type": "input_text", "text": "what is this?"},
        {"type": "input_audio", "audio": told(raw)},
        {"type": "input_image", "image_url": f"data:image/jpeg;base64,{told(JPEG)}"},
    ]
    capabilities = replace(AUTO, supports_image_input=True)
    async with Scripted(capabilities) as server, Talker(server.url, opening={}) as t:
        await t.send("input_audio_buffer.append", audio=told(raw[:1]))
        item = {"id": "mine", "type": "message", "role": "user", "content": content}
        await t.send("conversation.item.create", item=item)
        committed = await t.until("input_audio_buffer.committed")
        done = (await t.until("conversation.item.done"))["item"]
        assert committed["item_id"] == done["id"] == "mine"
        assert [part["type"] for part in done["content"]] == ["input_audio", "input_image", "input_text"]
        assert (await t.answered()) == []
        assert {e["item_id"] for e in t.of("input_audio_buffer.speech_started")} == {"mine"}
        assert np.allclose(heard(server), sound(raw), atol=1e-4)
        assert sum(len(unit.frames) for unit in server.appended()) == 1
        assert "tell" in server.backend().methods()
        await t.send("conversation.item.create", item=item)
        assert (await t.error("bad_event"))["param"] == "item.id"
