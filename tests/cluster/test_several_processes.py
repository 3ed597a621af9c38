"""Several services that share their sessions: any of them can be asked, one of them has each session."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orchestrator.replay_track import ReplayTrack
from tests.cluster.members import members
from tests.fakes.postgres import PrivatePostgres
from tests.realtime.talker import Talker


async def test_a_session_is_asked_for_anywhere(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (engine, (one, other)):
        replies = [await (one, other)[number % 2].see(number) for number in range(6)]
        assert [reply.status_code for reply in replies] == [200] * 6
        assert len({reply.json()["interaction"]["server_session_id"] for reply in replies}) == 1
        assert replies[-1].headers["x-session-id"] == "cam"
        assert one.live() and not other.live()
        streamed = await other.see(6, stream=True)
        assert streamed.status_code == 200 and streamed.text.rstrip().endswith("data: [DONE]")
        for path in ("", "/memory", "/plan", "/events?follow=false"):
            answers = [await each.client.get(f"/v1/sessions/cam{path}") for each in (one, other)]
            assert [answer.status_code for answer in answers] == [200, 200], path
            assert answers[0].content == answers[1].content or not path
        asked = await other.client.put("/v1/sessions/cam/query", json={"text": "Is it dark?"})
        assert asked.status_code == 200
        assert one.memory(one.live()[0]).query == "Is it dark?"
        gone = await other.client.delete("/v1/sessions/cam")
        assert gone.status_code == 200 and not one.live()
        assert (await one.client.get("/v1/sessions/cam")).status_code == 404
    assert engine.chats


async def test_two_requests_for_a_new_name_at_two_doors_begin_one_session(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    async with members(postgres, tmp_path) as (_, both):
        for turn in range(5):
            headers = {"x-session-id": f"new-{turn}"}
            replies = await asyncio.gather(*(each.see(n, headers=headers) for n, each in enumerate(both)))
            assert [reply.status_code for reply in replies] == [200, 200]
            assert len({reply.json()["interaction"]["server_session_id"] for reply in replies}) == 1


async def test_a_dead_owner_is_followed_with_the_same_bytes(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        for number in range(5):
            before = (await one.see(number)).json()
        planned = (await one.client.get("/v1/sessions/cam/plan")).json()
        await one.over()
        assert (await other.client.get("/v1/sessions/cam/plan")).json() == {**planned, "live": False}
        after = (await other.see(5)).json()
        assert after["interaction"]["server_session_id"] == before["interaction"]["server_session_id"]
        assert after["interaction"]["frame_index"] == 6

        def unread(reply: dict[str, dict[str, dict[str, int]]]) -> int:
            usage = reply["usage"]
            return usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]  # type: ignore[operator,no-any-return]

        assert after["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        assert unread(after) <= unread(before) + 64, "the engine's cache still hits"


async def test_an_owner_that_ends_in_order_hands_over_at_once(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        first = (await one.see(0)).json()
        await one.core.drain()
        reply = await other.see(1)
        assert reply.status_code == 200
        assert reply.json()["interaction"]["server_session_id"] == first["interaction"]["server_session_id"]
        assert reply.json()["interaction"]["frame_index"] == 2


async def test_a_socket_is_resumed_at_another_door(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        async with Talker(one.url, opening={}) as talker:
            session, token = talker.session["id"], talker.token
            last = talker.seen[-1].get("server_event_seq", 0)
        async with Talker(other.url, query="duplex=1&autostart=0") as again:
            await again.send(
                "session.resume",
                session_id=session,
                resume_token=token,
                last_received_server_event_seq=last,
            )
            resumed = await again.until("session.resumed")
            assert "journal_gap" not in resumed and one.live() == [session] and not other.live()
            await again.send("session.heartbeat")
            await again.until("session.heartbeat_ack")


@pytest.mark.parametrize("attached", [False, True])
async def test_a_socket_is_resumed_after_its_process_died(
    postgres: PrivatePostgres, tmp_path: Path, attached: bool
) -> None:
    """Events of the dead process are lost, and it is said so; no number is given out twice."""
    async with members(postgres, tmp_path) as (_, (one, other)), Talker(one.url, opening={}) as talker:
        session, token = talker.session["id"], talker.token
        last = talker.seen[-1]["server_event_seq"]
        await one.core.registry.get(session).seated()  # type: ignore[union-attr]
        await one.over()
        async with Talker(other.url, query="duplex=1&autostart=0") as again:
            await again.send(
                "session.resume",
                session_id=session,
                resume_token=token,
                last_received_server_event_seq=last,
            )
            resumed = await again.until("session.resumed")
            assert resumed["journal_gap"] is True
            assert resumed["attachment_generation"] == 2 and resumed["resume_token"] != token
            assert other.live() == [session]
            await again.send("session.heartbeat")
            ack = await again.until("session.heartbeat_ack")
            assert ack["server_event_seq"] > 1000
            if attached:
                await one.owning.beat()
                closed = await talker.until("session.closed")
                assert closed["reason"] == "lease_lost" and one.owning.lost == 1


async def test_a_wrong_token_resumes_nothing(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)), Talker(one.url, opening={}) as talker:
        session = talker.session["id"]
        await one.core.registry.get(session).seated()  # type: ignore[union-attr]
        await one.over()
        async with Talker(other.url, query="duplex=1&autostart=0") as again:
            await again.send(
                "session.resume",
                session_id=session,
                resume_token="guessed",
                last_received_server_event_seq=0,
            )
            assert (await again.until("error"))["error"]["code"] == "invalid_resume_token"


async def test_one_engines_room_is_shared_by_all_processes(postgres: PrivatePostgres, tmp_path: Path) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        assert isinstance(one.core.track, ReplayTrack)
        (host,) = one.core.track.hosts.fleet.hosts
        most = host.room.most
        assert most is not None
        for number in range(most // 2):
            assert (await one.see(0, headers={"x-session-id": f"one-{number}"})).status_code == 200
        await other.owning.beat()
        taken = [await other.see(0, headers={"x-session-id": f"other-{number}"}) for number in range(most)]
        codes = [reply.status_code for reply in taken]
        assert codes == [200] * (most - most // 2) + [429] * (most // 2)
        assert taken[-1].headers["retry-after"]


async def test_those_who_found_no_room_take_none_of_the_others(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    async with members(postgres, tmp_path) as (_, (one, other)):
        assert isinstance(one.core.track, ReplayTrack) and isinstance(other.core.track, ReplayTrack)
        (host,) = one.core.track.hosts.fleet.hosts
        one.core.track.hosts.fleet.drain(host.name, True)
        for number in range(3):
            assert (await one.see(0, headers={"x-session-id": f"one-{number}"})).status_code == 503
        await other.owning.beat()
        assert other.core.track.hosts.fleet.beside == 0
        assert (await other.see(0, headers={"x-session-id": "one-0"})).status_code == 200
