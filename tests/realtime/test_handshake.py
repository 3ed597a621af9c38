"""Cases A: how a connection begins, over real sockets."""

from __future__ import annotations

from tests.realtime.serving import MODEL, Scripted
from tests.realtime.talker import Talker


async def test_case_1_session_update_opens_and_is_numbered() -> None:
    async with Scripted() as server, Talker(server.url, query=f"duplex=1&model={MODEL}&autostart=0") as t:
        await t.send("session.update", session={"instructions": "hi"})
        created, updated = await t.next(), await t.next()
        assert created["type"] == "session.created" and "server_event_seq" not in created
        assert created["session"]["id"].startswith("duplex-")
        assert updated["type"] == "session.updated" and updated["server_event_seq"] == 1
        assert updated["session"]["id"] == created["session"]["id"]
        assert created["resume_token"] and created["attachment_generation"] == 1
