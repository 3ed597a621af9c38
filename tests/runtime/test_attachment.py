"""Sockets at a session, as a transport drives them: writing, commands, takeover, leaving, slow writers."""

import asyncio
import gc
from typing import Any

import pytest

from orchestrator.runtime.attachment import Attachment
from orchestrator.runtime.registry import RegistryLimits
from orchestrator.session.backend import Capabilities, Notice
from orchestrator.session.limits import SessionLimits
from orchestrator.session.outbox import OutboxLimits
from orchestrator.wire.client import command_of
from orchestrator.wire.errors import InvalidRequest, VigilError
from tests.fakes.backend import ScriptedBackend
from tests.fakes.clock import settle
from tests.runtime.conftest import CONFIG, Rig, make_fleet, open_rig

JPEG = "/9j/4HJlc3Q="


class Writer:
    """The one task that writes to a socket."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self.written: list[dict[str, Any]] = []
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async for event in self.attachment:
            self.written.append(event.value)

    def types(self) -> list[str]:
        return [payload["type"] for payload in self.written]

    def send(self, **event: Any) -> None:
        self.attachment.receive(command_of(event))


async def test_a_socket_speaks_and_is_spoken_to(rig: Rig) -> None:
    writer = Writer(rig.session.attach())
    writer.send(type="input_audio_buffer.append", video_frames=[JPEG], operation_id="a")
    await settle()
    rig.backend.speak("hello", operations=("a",))
    await settle()
    types = writer.types()
    assert types[:2] == ["session.created", "session.updated"]
    assert "response.output_text.delta" in types
    assert rig.session.attached
    await rig.session.close("client_close")
    await writer.task
    assert writer.types()[-1] == "session.closed"


async def test_whatever_is_wrong_with_a_command_is_an_error_event_in_order(rig: Rig) -> None:
    writer = Writer(rig.session.attach())
    writer.send(type="input_audio_buffer.append", event_id="evt_1")
    writer.send(type="input_audio_buffer.commit", event_id="evt_2")
    await settle()
    errors = [p["error"] for p in writer.written if p["type"] == "error"]
    assert [(e["code"], e["event_id"]) for e in errors] == [
        ("bad_event", "evt_1"),
        ("input_audio_buffer_empty", "evt_2"),
    ]
    assert all("server_event_seq" in p for p in writer.written if p["type"] == "error")


def refusals() -> list[InvalidRequest]:
    return [each for each in gc.get_objects() if isinstance(each, InvalidRequest)]


async def test_a_refusal_that_was_told_is_gone(rig: Rig) -> None:
    """Contract: nothing of it waits for a collection; a client can send what is refused all day."""
    writer = Writer(rig.session.attach())
    gc.collect()
    gc.disable()
    others = refusals()  # of whatever ran in this process before
    try:
        writer.send(type="input_audio_buffer.append", event_id="evt_1")
        await settle()
        assert "error" in writer.types()
        assert refusals() == others
    finally:
        gc.enable()


async def test_a_takeover_ends_the_old_writer_and_its_commands_are_ignored(rig: Rig) -> None:
    old = Writer(rig.session.attach())
    await settle()
    token, last = old.attachment.token, old.written[-1]["server_event_seq"]
    attachment = rig.session.resume(token, last)
    assert attachment is not None
    await old.task
    assert old.attachment.displaced
    new = Writer(attachment)
    for _ in range(4):
        old.send(type="session.close")
    await settle()
    assert rig.session.is_open
    old.attachment.leave()
    assert rig.session.attached, "the loser's end does not start a grace"
    new.send(type="session.heartbeat")
    await settle()
    assert new.types() == ["session.heartbeat_ack"]


async def test_a_dropped_socket_misses_nothing(rig: Rig) -> None:
    writer = Writer(rig.session.attach())
    await settle()
    writer.attachment.leave()
    writer.task.cancel()
    rig.backend.emit(*[Notice("engine_lost", str(n)) for n in range(3)])
    await settle()
    attachment = rig.session.resume("token-1", 1)
    assert attachment is not None
    again = Writer(attachment)
    await settle()
    assert [p["message"] for p in again.written] == ["0", "1", "2"]
    assert [p["server_event_seq"] for p in again.written] == [2, 3, 4]


async def test_leaving_twice_is_leaving_once(rig: Rig) -> None:
    attachment = rig.session.attach()
    attachment.leave()
    attachment.leave()
    assert not rig.session.attached
    assert not attachment.displaced


async def test_a_resume_that_finds_a_gap_changes_nothing(rig: Rig) -> None:
    writer = Writer(rig.session.attach())
    await settle()
    writer.send(type="session.event_ack", server_event_seq=1)
    await settle()
    assert rig.session.resume("token-1", 0) is None
    assert not writer.attachment.displaced
    with pytest.raises(VigilError):
        rig.session.resume("guess", 0)


async def test_a_writer_that_stops_ends_its_session_and_no_other() -> None:
    limits = SessionLimits(outbox=OutboxLimits(max_bytes=20_000, max_events=64))
    fleet = make_fleet(RegistryLimits(session=limits))
    slow = await fleet.registry.resolve("t", "slow", CONFIG)
    quick = await fleet.registry.resolve("t", "quick", CONFIG)
    slow.attach()  # and nobody writes
    writer = Writer(quick.attach())
    for n in range(200):
        for session in (slow, quick):
            fleet.built[session.id].emit(Notice("engine_lost", str(n)))
        await settle()
    await slow.closed.wait()
    assert quick.is_open
    assert writer.types().count("vigil.notice") == 200
    assert fleet.built[slow.id].closed
    await fleet.registry.drain(0.0)


async def test_a_disconnected_session_expires_and_frees_its_place() -> None:
    fleet = make_fleet(RegistryLimits(max_sessions=1, disconnect_grace_s=30.0, reaper_interval_s=5.0))
    session = await fleet.registry.resolve("t", None, CONFIG)
    events = session.events()
    session.attach().leave()
    await fleet.clock.advance(29.0)
    assert session.is_open
    await fleet.clock.advance(6.0)
    assert [event.type async for event in events][-1] == "session.expired"
    with pytest.raises(VigilError) as refused:
        session.resume("token-1", 0)
    assert refused.value.code == "session_resume_expired"
    assert (await fleet.registry.resolve("t", None, CONFIG)).is_open
    await fleet.registry.drain(0.0)


async def test_without_resume_a_disconnect_closes_at_once() -> None:
    rig = await open_rig(ScriptedBackend(Capabilities(1000, supports_session_resume=False)))
    events = rig.session.events()
    rig.session.attach().leave()
    await rig.session.closed.wait()
    last = [event async for event in events][-1]
    assert last.reason == "disconnect"  # type: ignore[attr-defined]


async def test_an_invitation_joins_a_session_that_http_opened(rig: Rig) -> None:
    attachment = rig.session.resume(rig.session.invite().token, 0)
    assert attachment is not None
    writer = Writer(attachment)
    rig.backend.emit(Notice("engine_lost", "x"))
    await settle()
    assert writer.types() == ["vigil.notice"]


async def test_a_core_that_breaks_still_tells_its_socket(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(rig.session.attach())
    await settle()

    def broken(now: float, item: object) -> None:
        raise AssertionError("core")

    monkeypatch.setattr(rig.session._core, "handle", broken)
    rig.backend.emit(Notice("engine_lost", "x"))
    await writer.task
    assert writer.types()[-2:] == ["error", "session.closed"]
    assert writer.written[-2]["error"]["code"] == "internal_error"
