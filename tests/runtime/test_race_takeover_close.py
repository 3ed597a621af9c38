"""Race: a socket resumes a session while that session is closing or expiring.

Contract: whoever comes first wins, and nobody is left hanging. A resume that is granted reads the session's
last event, once; the displaced socket reads nothing after it lost its place and its leaving ends nothing; a
resume that comes too late is refused with ``session_resume_expired``. However it goes, the backend is closed
once and the session's place is free again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orchestrator.runtime.actor import Session
from orchestrator.runtime.attachment import Attachment
from orchestrator.runtime.registry import RegistryLimits
from orchestrator.wire.client import command_of
from orchestrator.wire.errors import VigilError
from tests.fakes.clock import settle
from tests.runtime.conftest import CONFIG, Fleet, make_fleet
from tests.runtime.test_attachment import Writer

ENDS = ("session.closed", "session.expired")
STEPS = range(12)
"""Turns of the event loop between the two: more than a close takes."""


async def opened(limits: RegistryLimits | None = None) -> tuple[Fleet, Session, Writer]:
    fleet = make_fleet(limits)
    session = await fleet.registry.resolve("t", None, CONFIG)
    writer = Writer(session.attach())
    await settle()
    return fleet, session, writer


def resume(session: Session, writer: Writer) -> Attachment | str:
    """The seat, or the code of the refusal."""
    try:
        seat = session.resume(writer.attachment.token, writer.written[-1]["server_event_seq"])
    except VigilError as refused:
        return refused.code
    assert seat is not None
    return seat


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def over(fleet: Fleet, session: Session) -> None:
    """All that is left of a session that ended in order."""
    await session.closed.wait()
    await settle()
    assert fleet.built[session.id].closed
    assert fleet.registry.statistics()["slots"] == 0


def ends(*writers: Writer) -> list[int]:
    return [sum(kind in ENDS for kind in writer.types()) for writer in writers]


@pytest.mark.parametrize("between", STEPS)
async def test_a_resume_after_a_close_was_begun(between: int) -> None:
    fleet, session, old = await opened()
    closing = asyncio.create_task(session.close("client_close"))
    await steps(between)
    seat = resume(session, old)
    if isinstance(seat, str):
        assert seat == "session_resume_expired"
        await old.task
        assert ends(old) == [1]
    else:
        new = Writer(seat)
        await asyncio.gather(new.task, old.task)
        assert ends(new) == [1]
        assert ends(old) in ([0], [1])
        assert old.attachment.displaced or ends(old) == [1]
    await closing
    await over(fleet, session)


@pytest.mark.parametrize("between", STEPS)
async def test_a_close_by_the_socket_that_is_just_being_displaced(between: int) -> None:
    """Its close counts if it was taken before the takeover, and is ignored after it."""
    fleet, session, old = await opened()
    old.send(type="session.close")
    await steps(between)
    seat = resume(session, old)
    if isinstance(seat, str):
        assert seat == "session_resume_expired"
        await old.task
    else:
        new = Writer(seat)
        old.attachment.leave()
        await new.task
        assert ends(new) == [1]
    await over(fleet, session)


async def test_a_takeover_first_makes_the_former_sockets_close_void() -> None:
    fleet, session, old = await opened()
    seat = resume(session, old)
    assert isinstance(seat, Attachment)
    new = Writer(seat)
    old.send(type="session.close")
    old.attachment.leave()
    new.send(type="session.heartbeat")
    await settle()
    assert new.types() == ["session.heartbeat_ack"]
    assert session.is_open
    await fleet.registry.drain(0.0)


@pytest.mark.parametrize("between", STEPS)
async def test_two_resumes_with_one_token_and_a_close(between: int) -> None:
    """The token is good once: exactly one of the two is seated, or neither."""
    fleet, session, old = await opened()
    first = resume(session, old)
    closing = asyncio.create_task(session.close("client_close"))
    await steps(between)
    second = resume(session, old)
    assert isinstance(first, Attachment)
    assert second in ("invalid_resume_token", "session_resume_expired")
    new = Writer(first)
    await new.task
    assert ends(new) == [1]
    await closing
    await over(fleet, session)


@pytest.mark.parametrize("late_s", [0.0, 0.1, 4.9, 5.0, 5.1])
async def test_a_resume_about_when_the_grace_ends(late_s: float) -> None:
    """The reaper looks every 5 s: until it has found the session expired, its client is welcome."""
    limits = RegistryLimits(disconnect_grace_s=30.0, reaper_interval_s=5.0)
    fleet, session, old = await opened(limits)
    old.attachment.leave()
    await old.task
    await fleet.clock.advance(30.0 + late_s)
    seat = resume(session, old)
    if isinstance(seat, str):
        assert seat == "session_resume_expired"
        await over(fleet, session)
        return
    new = Writer(seat)
    await fleet.clock.advance(60.0)
    assert session.is_open, "attached again, it no longer expires"
    new.send(type="session.close")
    await new.task
    assert ends(new) == [1]
    await over(fleet, session)


@pytest.mark.parametrize("between", STEPS)
async def test_a_backend_that_dies_while_its_session_is_taken_over(between: int) -> None:
    fleet, session, old = await opened()
    fleet.built[session.id].break_outputs(RuntimeError("bug"))
    await steps(between)
    seat = resume(session, old)
    last = old
    if isinstance(seat, Attachment):
        last = Writer(seat)
    await last.task
    assert ends(last) == [1]
    codes = [told["error"]["code"] for told in told_by(old, last) if told["type"] == "error"]
    assert codes == ["internal_error"]
    await over(fleet, session)


def told_by(*writers: Writer) -> list[dict[str, Any]]:
    """Every event once, by its number."""
    numbered = {
        event["server_event_seq"]: event
        for writer in writers
        for event in writer.written
        if "server_event_seq" in event
    }
    return [numbered[number] for number in sorted(numbered)]


async def test_commands_of_the_winner_are_carried_out_behind_those_of_the_loser() -> None:
    fleet, session, old = await opened()
    old.send(type="conversation.item.create", item={"id": "item_a", "content": []})
    seat = resume(session, old)
    assert isinstance(seat, Attachment)
    new = Writer(seat)
    seat.receive(command_of({"type": "conversation.item.create", "item": {"id": "item_b", "content": []}}))
    await settle()
    created = [
        event["item"]["id"] for event in told_by(old, new) if event["type"] == "conversation.item.created"
    ]
    assert created == ["item_a", "item_b"]
    await fleet.registry.drain(0.0)
