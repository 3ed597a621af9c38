"""A message with several parts of audio is taken as a whole, or nothing of it is."""

from __future__ import annotations

import base64

import numpy as np

from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.session.limits import SessionLimits
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig, open_rig
from tests.runtime.test_attachment import Writer

RATE = 16000
PART_BYTES = RATE // 10 * 4
"""What a part waits as: 100 ms of float samples."""


def speech() -> str:
    tone = 8000 * np.sin(np.arange(RATE // 10) * 0.2)
    return base64.b64encode(tone.astype("<i2").tobytes()).decode()


def say(writer: Writer, *parts: object, event_id: str = "evt_m") -> None:
    item = {"type": "message", "role": "user", "content": list(parts)}
    writer.send(type="conversation.item.create", item=item, event_id=event_id)


def audio() -> dict[str, str]:
    return {"type": "input_audio", "audio": speech()}


def errors(writer: Writer) -> list[tuple[str, str | None]]:
    told = [p["error"] for p in writer.written if p["type"] == "error"]
    return [(error["code"], error.get("event_id")) for error in told]


def pending(rig: Rig) -> int:
    return int(str(rig.session.statistics()["pending_input_bytes"]))


async def finished(rig: Rig) -> None:
    rig.backend.free_all()
    await rig.session.close("test_over")


async def test_parts_of_which_not_all_find_room_leave_nothing() -> None:
    rig = await open_rig(session_limits=SessionLimits(max_pending_input_bytes=PART_BYTES * 5 // 2))
    writer = Writer(rig.session.attach())
    rig.backend.hold("append")
    say(writer, audio(), audio(), audio())
    await settle()
    assert errors(writer) == [("input_backpressure", "evt_m")]
    assert rig.backend.methods() == ["open"]
    assert pending(rig) == 0
    say(writer, audio(), audio(), event_id="evt_n")
    await settle()
    assert errors(writer) == [("input_backpressure", "evt_m")]
    rig.backend.free_all()
    await settle()
    assert rig.backend.methods().count("append") == 2
    assert pending(rig) == 0
    assert writer.types().count("input_audio_buffer.committed") == 1
    await finished(rig)


async def test_parts_whose_commit_finds_no_room_leave_nothing() -> None:
    rig = await open_rig(session_limits=SessionLimits(max_pending_commits=1))
    writer = Writer(rig.session.attach())
    rig.backend.hold("append")
    writer.send(type="input_audio_buffer.append", audio=speech())
    await settle()
    writer.send(type="input_audio_buffer.commit")
    await settle()
    waiting = pending(rig)
    say(writer, audio(), audio())
    await settle()
    assert errors(writer) == [("input_backpressure", "evt_m")]
    assert pending(rig) == waiting
    rig.backend.free_all()
    await settle()
    assert pending(rig) == 0
    assert writer.types().count("input_audio_buffer.committed") == 1
    await finished(rig)


async def test_a_message_with_more_parts_than_the_mailbox_has_room_for_leaves_nothing() -> None:
    rig = await open_rig(limits=RuntimeLimits(mailbox=4))
    writer = Writer(rig.session.attach())
    say(writer, *(audio() for _ in range(8)))
    await settle()
    assert errors(writer) == [("input_backpressure", "evt_m")]
    assert rig.backend.methods() == ["open"]
    assert pending(rig) == 0
    await finished(rig)


async def test_a_part_that_is_no_audio_takes_the_others_with_it(rig: Rig) -> None:
    writer = Writer(rig.session.attach())
    say(writer, audio(), {"type": "input_audio", "audio": "AAA="[:2]})
    await settle()
    assert [code for code, _ in errors(writer)] == ["bad_audio"]
    assert rig.backend.methods() == ["open"]
    assert pending(rig) == 0


async def test_more_audio_parts_than_a_message_may_have_are_refused_for_good(rig: Rig) -> None:
    writer = Writer(rig.session.attach())
    say(writer, *({"type": "input_audio", "audio": speech()} for _ in range(65)))
    await settle()
    assert errors(writer) == [("event_too_large", "evt_m")]
