"""One session, two transports: HTTP and a WebSocket drive the same core and are told apart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.duplex_engine import ScaledClock
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker, resumed
from tests.realtime.test_replay import picture

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


def says(seen: Seen) -> str:
    return f"<response> Seen {len(seen.images)}."


async def invited(served: Served, name: str) -> Talker:
    """A socket that joins by an attach token; nothing has been read from it."""
    response = await served.client.post(f"/v1/sessions/{name}/attach-token")
    token = response.json()
    assert response.status_code == 200 and token["object"] == "session.attach_token"
    talker = await Talker(served.url).__aenter__()
    await talker.send(
        "session.resume",
        session_id=token["session_id"],
        resume_token=token["attach_token"],
        last_received_server_event_seq=token["last_received_server_event_seq"],
    )
    talker.session = {"id": token["session_id"]}
    return talker


async def test_a_socket_joins_a_session_that_began_over_http(tmp_path: Path) -> None:
    """It sees the same memory; while it is attached HTTP may look but not write."""
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            await served.see(n)
        t = await invited(served, "cam")
        resumed = await t.next()
        assert resumed["type"] == "session.resumed" and resumed["attachment_generation"] == 1
        about = (await served.client.get("/v1/sessions/cam")).json()
        assert about["id"] == resumed["session_id"] and about["counts"]["frames"] == 3
        refused: list[httpx.Response] = [
            await served.see(3),
            await served.client.put("/v1/sessions/cam/query", json={"text": "what?"}),
            await served.client.delete("/v1/sessions/cam/query"),
            await served.client.post(
                "/v1/streaming/persona", json={"session_id": "cam", "persona": "talkative"}
            ),
        ]
        assert {(r.status_code, error(r)["code"]) for r in refused} == {(409, "session_attached")}
        await t.show(picture(3), frame_times_ms=[3000])
        await t.until("response.done")
        assert "Seen 4." in t.of("response.output_text.done")[0]["text"]
        t.drop()
        await eventually(lambda: not served.core.registry.sessions()[0].attached)
        assert (await served.see(4)).json()["interaction"]["window_frames"] == 5


async def test_pictures_without_times_go_on_where_another_door_or_process_was(tmp_path: Path) -> None:
    """Contract: no door's clock begins at 0 in a session that has seen a minute: its frames would be late."""
    async with FakeEngine(says) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served:
            for n in (0, 30, 60):
                await served.see(n)
            t = await invited(served, "cam")
            await t.show(picture(3))
            await t.until("response.done")
            assert "Seen 4." in t.of("response.output_text.done")[0]["text"]
            t.drop()
        async with Served(engine, tmp_path, **UNGATED) as served:
            await served.see(63)
            t = await invited(served, "cam")
            await t.show(picture(4))
            await t.until("response.done")
            assert "Seen 6." in t.of("response.output_text.done")[0]["text"]
            t.drop()


async def test_a_time_that_is_hours_wrong_is_refused_over_http(tmp_path: Path) -> None:
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        wrong = await served.see(7200)
        assert (wrong.status_code, error(wrong)["code"]) == (400, "frame_time_ahead")
        assert error(wrong)["param"] == "frame_time_range"
        for n in (1, 2):
            assert (await served.see(n)).json()["interaction"]["window_frames"] == n + 1
        # The middle of a film is a beginning like any other.
        film = {"x-session-id": "film"}
        for n in (7200, 7201):
            seen = (await served.see(n, headers=film)).json()["interaction"]
            assert seen["window_frames"] == n - 7199 and seen["reason"] != "late"


async def test_a_first_request_that_fails_begins_no_session(tmp_path: Path) -> None:
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        content = [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/4AAQ"}}]
        body = {"messages": [{"role": "user", "content": content}], "session_id": "cam"}
        broken = await served.client.post("/v1/chat/completions", json=body)
        assert broken.status_code == 400
        assert not served.core.registry.sessions()
        assert (await served.client.get("/v1/sessions")).json()["data"] == []
        assert (await served.see(0)).json()["interaction"]["window_frames"] == 1
        assert (await served.client.post("/v1/chat/completions", json=body)).status_code == 400
        assert (await served.see(1)).json()["interaction"]["window_frames"] == 2


async def test_a_session_answers_to_its_id_as_to_its_name(tmp_path: Path) -> None:
    """The server's own id never begins a second session beside the one that has it."""
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        (session,) = served.core.registry.sessions()
        again = await served.see(1, headers={"x-session-id": session.id})
        assert again.json()["interaction"]["server_session_id"] == session.id
        assert again.json()["interaction"]["window_frames"] == 2
        gone = await served.client.post("/v1/streaming/reset", json={"session_id": session.id})
        assert gone.json()["removed"] is True
        await served.see(2)
        assert session not in served.core.registry.sessions()


async def test_after_a_restart_a_session_answers_to_both_as_well(tmp_path: Path) -> None:
    """Whichever is said first, it goes on as one session with all that it has seen."""
    async with FakeEngine(says) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served:
            await served.see(0)
            (session,) = served.core.registry.sessions()
        for n, first in ((1, session.id), (3, "cam")):
            async with Served(engine, tmp_path, **UNGATED) as served:
                other = "cam" if first == session.id else session.id
                for at, name in ((n, first), (n + 1, other)):
                    seen = (await served.see(at, headers={"x-session-id": name})).json()["interaction"]
                    assert (seen["server_session_id"], seen["window_frames"]) == (session.id, at + 1)
                assert len(served.core.registry.sessions()) == 1
        async with Served(engine, tmp_path, **UNGATED) as served:
            asked = await served.client.put(f"/v1/sessions/{session.id}/query", json={"text": "what?"})
            assert asked.status_code == 200
            assert [live.id for live in served.core.registry.sessions()] == [session.id]
        assert len(engine.chats) >= 5


@pytest.mark.parametrize("by", ["id", "name"])
async def test_a_reset_after_a_restart_begins_anew(tmp_path: Path, by: str) -> None:
    """What is only kept must not come back either with what was to be forgotten."""
    async with FakeEngine(says) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served:
            await served.see(0)
            (session,) = served.core.registry.sessions()
        async with Served(engine, tmp_path, **UNGATED) as served:
            name = session.id if by == "id" else "cam"
            gone = await served.client.post("/v1/streaming/reset", json={"session_id": name})
            assert gone.json()["removed"] is True
            again = await served.client.post("/v1/streaming/reset", json={"session_id": name})
            assert again.json()["removed"] is False
            seen = (await served.see(0)).json()["interaction"]
            assert seen["window_frames"] == 1 and seen["server_session_id"] != session.id


async def test_a_session_that_goes_on_over_http_does_not_wait_for_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract: the grace is for clients that may come back, not for a session that another one drives."""
    monkeypatch.setattr("orchestrator.app.SystemClock", ScaledClock)
    settings = {**UNGATED, "realtime": {"grace_s": 1.0, "reaper_s": 0.05}}
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings) as served:
        await served.see(0)
        t = await invited(served, "cam")
        await t.until("session.resumed")
        (session,) = served.core.registry.sessions()
        t.drop()
        await eventually(lambda: not session.attached)
        left = served.core.clock.now()
        numbers = iter(range(1, 10_000))
        while served.core.clock.now() - left < 1.5:
            assert (await served.see(next(numbers))).status_code == 200
        assert session.is_open and served.core.registry.sessions() == (session,)


async def test_an_invitation_is_good_once(tmp_path: Path) -> None:
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        token = (await served.client.post("/v1/sessions/cam/attach-token")).json()
        resume = {
            "session_id": token["session_id"],
            "resume_token": token["attach_token"],
            "last_received_server_event_seq": 0,
        }
        async with Talker(served.url) as first, Talker(served.url) as second:
            await first.send("session.resume", **resume)
            await first.until("session.resumed")
            await second.send("session.resume", **resume)
            await second.error("invalid_resume_token")
            assert await first.answered() == []
            third = await invited(served, "cam")
            await third.until("session.resumed")
            assert await first.closed() == (1000, "session_replaced")
            third.drop()


async def test_what_was_before_a_restart_is_there_whoever_asks_first(tmp_path: Path) -> None:
    """Not only the next frame finds a session again: its clients need not know of the restart."""
    async with FakeEngine(says) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served:
            await served.see(0)
            await served.client.put("/v1/sessions/cam/query", json={"text": "Is it dark?"})
            await served.see(1, headers={"x-session-id": "door"})
            kept = (await served.client.get("/v1/sessions/cam")).json()["id"]
        async with Served(engine, tmp_path, **UNGATED) as served:
            t = await invited(served, "cam")
            assert (await t.next())["session_id"] == kept
            t.drop()
            listed = await served.client.get("/v1/sessions/door/sources")
            assert (listed.status_code, listed.json()["data"]) == (200, [])
        async with Served(engine, tmp_path, **UNGATED) as served:
            cleared = await served.client.delete(f"/v1/sessions/{kept}/query")
            assert cleared.status_code == 200
            assert served.core.memory_of(kept).query is None
            await served.client.post("/v1/streaming/reset", json={"session_id": "cam"})
            over = await served.client.post("/v1/sessions/cam/attach-token")
            assert (over.status_code, error(over)["code"]) == (404, "unknown_session")


async def test_nobody_is_invited_to_what_is_not_theirs(tmp_path: Path) -> None:
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        response = await served.client.post("/v1/sessions/nobody/attach-token")
        assert (response.status_code, error(response)["code"]) == (404, "unknown_session")


async def test_a_session_that_began_over_a_socket_is_a_session_like_any_other(tmp_path: Path) -> None:
    async with (
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **UNGATED) as served,
        Talker(served.url, opening={"modalities": ["text"]}) as t,
    ):
        await t.show(picture(0), frame_times_ms=[0])
        await t.until("response.done")
        about = (await served.client.get(f"/v1/sessions/{t.session_id}")).json()
        assert about["live"] is True and about["counts"]["frames"] == 1
        assert (await served.client.get(f"/v1/sessions/{t.session_id}/memory")).status_code == 200
        deleted = await served.client.delete(f"/v1/sessions/{t.session_id}")
        assert deleted.json()["deleted"] is True
        assert await t.closed() == (1000, "deleted")


async def test_a_reset_by_name_ends_the_attached_session_and_frees_the_name(tmp_path: Path) -> None:
    """What waits behind the reset never reaches the fresh session."""
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        t = await invited(served, "cam")
        await t.until("session.resumed")
        await served.client.post("/reset", headers={"x-session-id": "cam"})
        assert await t.closed() == (1000, "reset")
        reply = (await served.see(0)).json()["interaction"]
        assert reply["window_frames"] == 1 and reply["session_id"] != t.session_id


async def test_a_socket_resumes_after_a_restart(tmp_path: Path) -> None:
    """With the token that it had before, and no word of the restart; events that nobody has any more are told
    of."""
    async with FakeEngine(says) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served, Talker(served.url, opening={}) as t:
            await t.show(picture(0))
            await t.until("response.done")
        async with Served(engine, tmp_path, **UNGATED) as served:
            wrong = await resumed(served.url, t, token="not this one")
            await wrong.error("invalid_resume_token")
            wrong.drop()
            again = await resumed(served.url, t)
            told = await again.until("session.resumed")
            assert told["session_id"] == t.session_id and told["journal_gap"] is True
            await again.show(picture(1))
            done = await again.until("response.done")
            assert done["server_event_seq"] > t.last_seq
            assert served.core.memory_of(t.session_id).frames == 2
            again.drop()


async def test_what_cannot_go_on_is_over_and_nothing_is_opened_in_its_place(tmp_path: Path) -> None:
    """Who asks for that session gets no other one; who asks for a decision under its name gets a new one."""
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        await served.see(0, headers={"x-session-id": "door"})
        t = await invited(served, "cam")
        await t.until("session.resumed")
        t.token = (t.seen[-1])["resume_token"]
        t.drop()
    async with FakeEngine(says, model="another") as engine, Served(engine, tmp_path, **UNGATED) as served:
        over = await served.client.post("/v1/sessions/door/attach-token")
        assert (over.status_code, error(over)["code"]) == (404, "unknown_session")
        again = await resumed(served.url, t)
        await again.error("session_resume_expired")
        assert served.core.registry.sessions() == ()
        seen, invitation = await asyncio.gather(
            served.see(1), served.client.post("/v1/sessions/cam/attach-token")
        )
        assert seen.json()["interaction"]["server_session_id"] != t.session_id
        assert invitation.status_code in (200, 404)
        assert len(served.core.registry.sessions()) == 1
