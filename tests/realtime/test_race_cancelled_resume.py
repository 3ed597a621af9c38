"""Race: the task of a resuming socket is cancelled while it tells the client that it is back.

Contract: whatever ends that task, it does not keep its seat. The session waits for its client as after any
lost socket, and the token that was presented is good again, since the fresh one never arrived.
"""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.api import realtime
from orchestrator.api.peer import Peer
from orchestrator.wire.server import Written
from tests.realtime.serving import Scripted, eventually
from tests.realtime.talker import Talker


async def test_a_resume_that_is_cancelled_mid_way_gives_its_seat_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    telling, caught = asyncio.Event(), []
    send = Peer.send

    async def held(self: Peer, payload: Written) -> None:
        if payload.type == "session.resumed" and not caught:
            caught.append(asyncio.current_task())
            telling.set()
            await asyncio.Event().wait()
        await send(self, payload)

    monkeypatch.setattr(realtime.Peer, "send", held)
    async with Scripted() as server, Talker(server.url, opening={}) as first:
        (session,) = server.registry.sessions()
        token, last, name = first.token, first.last_seq, first.session_id
        first.drop()
        await eventually(lambda: not session.attached)
        async with Talker(server.url) as second:
            await second.send(
                "session.resume", session_id=name, resume_token=token, last_received_server_event_seq=last
            )
            await telling.wait()
            assert session.attached
            caught[0].cancel()
            await eventually(lambda: not session.attached)
        async with Talker(server.url) as third:
            await third.send(
                "session.resume", session_id=name, resume_token=token, last_received_server_event_seq=last
            )
            assert (await third.next())["type"] == "session.resumed"
            assert session.is_open
