"""What a client's socket adds: declared rates, a slow reader, a paused writer, a client that is gone."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from bridges.duplex_client.link import AudioChunk, ResponseCreated, ResponseDone, SpokenText
from orchestrator.runtime.attachment import Attachment
from orchestrator.session.commands import Cancel
from orchestrator.session.limits import SessionLimits
from orchestrator.session.outbox import OutboxLimits
from orchestrator.wire.audio import AudioFormat, Codec
from orchestrator.wire.client import InputAppend
from orchestrator.wire.errors import Conflict
from tests.backends.native.harness import Rig, open_rig
from tests.fakes.clock import settle
from tests.fakes.link import RATE, spoken, tone


def pcm16(count: int) -> str:
    return base64.b64encode(np.full(count, 8000, "<i2").tobytes()).decode()


async def send(rig: Rig, attachment: Attachment, count: int, **fields: Any) -> None:
    attachment.receive(InputAppend(type="input_audio_buffer.append", audio=pcm16(count), **fields))
    await settle()


def taken(rig: Rig) -> list[dict[str, Any]]:
    """Everything that the socket would write now."""
    out: list[dict[str, Any]] = []
    while payloads := rig.session._core.take(rig.clock.now()):
        out.extend(payload.value for payload in payloads)
    return out


async def test_another_rate_is_resampled_and_lasts_as_long() -> None:
    """Cases 16 and 17."""
    rig = await open_rig()
    attachment = rig.session.attach()
    for rate in (7999, 192001, 16000.5):
        await send(rig, attachment, 1600, sample_rate_hz=rate)
    assert rig.codes() == ["bad_event"] * 3
    for _ in range(11):
        await send(rig, attachment, 4800, sample_rate_hz=48000)
    (unit,) = rig.link.units
    assert (len(unit.pcm or b""), unit.duration_ms) == (32000, 1000)


async def test_a_rate_that_the_session_declared_holds_for_appends_without_one() -> None:
    """Case 17: 4800 samples at 24 kHz are 3200 at 16 kHz."""
    rig = await open_rig(input_format=AudioFormat(Codec.PCM16, 24000))
    attachment = rig.session.attach()
    for _ in range(6):
        await send(rig, attachment, 4800)
    assert [unit.duration_ms for unit in rig.link.units] == [1000]


async def test_a_paused_writer_never_writes_what_was_cancelled() -> None:
    """Audio queued in the outbox and held by the writer is gone with the epoch, from the journal too."""
    rig = await open_rig()
    rig.session.attach()
    await rig.append(1000)
    taken(rig)
    await rig.say(*spoken("r", *((f"word {n} ", 200) for n in range(20)), done=False))
    await rig.session.submit(Cancel())
    await settle()
    rig.link.emit(AudioChunk("r", tone(200), RATE), SpokenText("r", "late"))
    await rig.clock.advance(1)
    written = taken(rig)
    assert not [each for each in written if each["type"].endswith(("audio.delta", "transcript.delta"))]
    assert [each["response"]["status"] for each in written if each["type"] == "response.done"] == [
        "cancelled"
    ]
    seqs = [each["server_event_seq"] for each in written]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


async def test_a_slow_reader_ends_its_own_session_and_nobody_elses() -> None:
    """Case 67."""
    limits = SessionLimits(outbox=OutboxLimits(max_bytes=768 * 1024))
    rig = await open_rig(limits=limits)
    other = await open_rig(clock=rig.clock, seats=rig.seats, session_id="duplex-2")
    rig.session.attach()
    await rig.append(1000)
    await rig.say(ResponseCreated("r"))
    for number in range(40):
        await rig.say(AudioChunk("r", tone(1000), RATE), SpokenText("r", f"{number} "))
    await rig.clock.advance(1)
    written = taken(rig)
    ends = [each["response"]["status"] for each in written if each["type"] == "response.done"]
    assert ends == ["failed"]
    assert [e["error"]["code"] for e in written if e["type"] == "error"] == ["output_backpressure"]
    assert written[-1]["type"] == "session.closed"
    assert written[-1]["reason"] == "output_backpressure"
    assert not [each for each in written if each["type"].endswith("audio.delta")]
    assert rig.facts("heard")[-1]["text"] == ""
    assert rig.seats.states == ["freed", "opened"]
    await other.append(1000)
    await other.say(*spoken("r", ("hi", 200)))
    assert [event.type for event in other.events()].count("response.output_audio.delta") == 1


async def test_a_client_that_stays_away_frees_the_engines_place() -> None:
    """Case 62, its first half."""
    rig = await open_rig()
    attachment = rig.session.attach()
    token = attachment.token
    await rig.append(1000)
    attachment.leave()
    await rig.clock.advance(29)
    rig.session.tick()
    assert rig.session.is_open
    await rig.clock.advance(2)
    rig.session.tick()
    await settle()
    assert rig.types()[-1] == "session.expired"
    assert rig.seats.states == ["freed"]
    with pytest.raises(Conflict) as error:
        rig.session.resume(token, 0)
    assert error.value.code == "session_resume_expired"


async def test_a_client_that_comes_back_finds_what_was_said_meanwhile() -> None:
    rig = await open_rig()
    attachment = rig.session.attach()
    await rig.append(1000)
    seen = taken(rig)
    token, last = seen[0]["resume_token"], seen[-1]["server_event_seq"]
    attachment.leave()
    await rig.say(*spoken("r", ("while you were away", 500)))
    again = rig.session.resume(token, last)
    assert again is not None
    replayed = [payload.type for payload in again._next]
    assert replayed.count("response.output_audio.delta") == 1
    assert replayed.count("response.done") == 1
    await rig.say(ResponseDone("r", "completed"))
