"""Cases G: a session outlives its socket, and changes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from orchestrator.runtime.registry import RegistryLimits
from orchestrator.session.backend import AudioDelta, TextDelta, TurnEnd
from orchestrator.session.limits import SessionLimits
from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker, resumed
from tests.realtime.test_turns import begin_response


@asynccontextmanager
async def resuming(server: Scripted, talker: Talker, **more: Any) -> AsyncIterator[Talker]:
    other = await resumed(server.url, talker, **more)
    try:
        yield other
    finally:
        other.drop()


def detached(server: Scripted) -> bool:
    return not server.statistics()["attached"]


async def test_case_58_tokens_are_good_once() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        t.drop()
        await eventually(lambda: detached(server))
        async with resuming(server, t) as second:
            first_event = await second.next()
            assert first_event["type"] == "session.resumed" and first_event["attachment_generation"] == 2
            assert first_event["session"]["id"] == first_event["session_id"] == t.session_id
            assert first_event["resume_token"] != t.token and "server_event_seq" not in first_event
            async with resuming(server, t) as thief:
                await thief.error("invalid_resume_token")
                assert await thief.closed() == (1008, "invalid_resume_token")
            assert await second.answered() == []


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"session_id": None}, "invalid_session_resume"),
        ({"resume_token": 5}, "invalid_session_resume"),
        ({"last_received_server_event_seq": -1}, "invalid_session_resume"),
        ({"last_received_server_event_seq": "1"}, "invalid_session_resume"),
        ({"last_received_server_event_seq": True}, "invalid_session_resume"),
        ({"session_id": "duplex-nobody"}, "session_resume_expired"),
        ({"resume_token": "guess"}, "invalid_resume_token"),
        ({"last_received_server_event_seq": 99}, "session_resume_conflict"),
    ],
)
async def test_case_58_resumes_that_are_refused(fields: dict[str, Any], code: str) -> None:
    """Whoever is attached is not disturbed by any of them."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        async with Talker(server.url, query="resume=1&model=scripted") as other:
            event = {"session_id": t.session_id, "resume_token": t.token, "last_received_server_event_seq": 1}
            await other.send("session.resume", event_id="e1", **{**event, **fields})
            assert (await other.error(code))["event_id"] == "e1"
            assert (await other.closed())[0] == 1008
        assert await t.answered() == []
        await t.send("session.resume", **event)
        await t.error("unsupported_session_resume")


async def test_case_58_another_tenants_session_is_unknown() -> None:
    keys = {"one": "me", "two": "you"}
    async with Scripted(tenants=keys) as server:
        mine, yours = ({"Authorization": f"Bearer {key}"} for key in keys)
        async with Talker(server.url, headers=mine, opening={}) as t, Talker(server.url, headers=yours) as u:
            await u.send("session.resume", session_id=t.session_id, resume_token=t.token)
            await u.error("session_resume_expired")


async def test_case_59_a_takeover_displaces_and_ignores_the_former_socket() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t, resuming(server, t) as second:
        await second.until("session.resumed")
        for n in range(4):
            await t.send("session.close" if n % 2 else "input_audio_buffer.clear")
        assert await t.closed() == (1000, "session_replaced")
        (replaced,) = t.of("session.replaced")
        assert replaced["attachment_generation"] == 1 and "server_event_seq" not in replaced
        assert t.types[-1] == "session.replaced"
        assert await second.answered() == []
        assert server.statistics()["attached"] and server.statistics()["generation"] == 2


async def test_case_60_nothing_is_lost_or_doubled() -> None:
    """Cut anywhere in a response: what was not read comes again, in its order and with its numbers."""
    async with Scripted() as server, Talker(server.url, opening={"modalities": ["text"]}) as t:
        await begin_response(server, t)
        (fence,) = server.asked()
        server.backend().emit(*(TextDelta(fence, f"{n} ") for n in range(5)))
        await t.until("response.output_text.delta")
        t.drop()
        await eventually(lambda: detached(server))
        server.backend().emit(*(TextDelta(fence, f"{n} ") for n in range(5, 10)), TurnEnd(fence))
        async with resuming(server, t) as second:
            await second.until("response.done")
            everything = [*t.seen, *second.seen]
            seqs = [e["server_event_seq"] for e in everything if "server_event_seq" in e]
            assert seqs == list(range(1, len(seqs) + 1))
            deltas = [e["delta"] for e in everything if e["type"] == "response.output_text.delta"]
            assert deltas == [f"{n} " for n in range(10)]
            assert second.types[0] == "session.resumed"


async def test_case_60_wire_formats_hold_over_a_resume() -> None:
    opening = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}}
    auto = replace(VOICE, auto_response=True, holds_turn_input=False)
    async with Scripted(auto) as server, Talker(server.url, opening=opening) as t:
        t.drop()
        await eventually(lambda: detached(server))
        async with resuming(server, t) as second:
            await second.speech(200, rate=24000)
            await second.send("input_audio_buffer.commit")
            await second.until("input_audio_buffer.committed")
            await second.answered()
            assert abs(server.heard() - 3200) <= 1


def small_journal(journal: int) -> RegistryLimits:
    return RegistryLimits(session=SessionLimits(journal_bytes=journal))


async def test_case_61_a_journal_that_overflows_while_nobody_is_attached() -> None:
    async with Scripted(limits=small_journal(64 * 1024)) as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        (fence,) = server.asked()
        t.drop()
        await eventually(lambda: detached(server))
        server.backend().emit(AudioDelta(fence, bytes(100 * 1024), 24000))
        await eventually(lambda: server.statistics()["journal"]["overflowed"])  # type: ignore[index]
        async with resuming(server, t) as second:
            assert (await second.next())["reason"] == "journal_gap"
            assert second.types == ["session.resync_required"]
            assert (await second.closed())[0] == 1008


async def test_case_61_an_overflow_is_told_once_and_ends_the_numbers() -> None:
    async with Scripted(limits=small_journal(64 * 1024)) as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        (fence,) = server.asked()
        for _ in range(3):
            server.backend().emit(AudioDelta(fence, bytes(40 * 1024), 24000))
        server.backend().emit(TurnEnd(fence))
        await t.until("response.done")
        (resync,) = t.of("session.resync_required")
        assert resync["reason"] == "journal_overflow"
        after = t.seen[t.seen.index(resync) :]
        assert len(after) > 3 and not [e for e in after if "server_event_seq" in e]


@pytest.mark.parametrize("seq", [1000, -1, "1", None, 1.5, True])
async def test_case_61_acknowledgements_of_what_was_never_sent(seq: Any) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.send("session.event_ack", server_event_seq=seq, event_id="e1")
        assert (await t.error("invalid_event_ack"))["event_id"] == "e1"
        await t.send("session.event_ack", server_event_seq=1)
        assert await t.answered() == []


async def test_case_61_what_was_acknowledged_is_gone() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.answered()
        await t.send("session.event_ack", server_event_seq=2)
        await t.answered()
        async with resuming(server, t, after=0) as second:
            assert (await second.next())["type"] == "session.resync_required"
        assert await t.answered() == []


async def test_acknowledgements_wait_behind_nothing() -> None:
    """However many of them: a client that says what it has is never told that it says too much."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        server.backend().hold("append")
        await t.speech(800)
        await t.send("input_audio_buffer.commit", response_create=True)
        await t.ask("and?")  # waits for what is under way, and all that is sent later behind it
        await eventually(lambda: "append" in server.backend().methods())
        for _ in range(300):
            await t.send("session.event_ack", server_event_seq=t.last_seq)
        await t.send("session.event_ack", server_event_seq=10**6, event_id="far")
        assert (await t.error("invalid_event_ack"))["event_id"] == "far"
        server.backend().free("append")
        await t.answered()
        assert len(t.of("error")) == 1


async def test_case_62_a_lost_client_is_waited_for_and_no_longer() -> None:
    limits = RegistryLimits(max_sessions=1, disconnect_grace_s=0.2, reaper_interval_s=0.02)
    async with Scripted(limits=limits) as server, Talker(server.url, opening={}) as t:
        t.drop()
        await eventually(lambda: not server.registry.statistics()["slots"])
        assert server.backend().closed
        ended = [data for kind, data in server.logs[0].entries if kind == "session_ended"]
        assert ended[0]["reason"] == "disconnect_grace_expired"
        async with resuming(server, t) as second:
            await second.error("session_resume_expired")
        async with Talker(server.url, opening={}):
            pass


async def test_case_62_without_resume_a_lost_client_ends_its_session() -> None:
    plain = replace(VOICE, supports_session_resume=False)
    async with Scripted(plain, limits=RegistryLimits(max_sessions=1)) as server:
        async with Talker(server.url, opening={}) as t:
            assert t.token is None and "attachment_generation" not in t.seen[0]
            async with resuming(server, t, token="x", after=0) as other:
                await other.error("unsupported_session_resume")
        await eventually(lambda: not server.registry.statistics()["slots"])
        assert [d["reason"] for k, d in server.logs[0].entries if k == "session_ended"] == ["disconnect"]


async def test_case_63_a_session_without_life_expires() -> None:
    limits = RegistryLimits(idle_ttl_s=0.2, reaper_interval_s=0.02)
    async with Scripted(limits=limits) as server, Talker(server.url, opening={}) as t:
        assert (await t.until("session.expired"))["reason"] == "idle_ttl_expired"
        assert await t.closed() == (1000, "idle_ttl_expired")


async def test_case_63_a_silent_socket_is_closed_and_its_session_kept() -> None:
    async with Scripted() as server, Talker(server.url, opening={"idle_timeout_s": 0.1}) as t:
        assert await t.closed() == (1000, "idle_timeout")
        async with resuming(server, t) as second:
            assert (await second.next())["type"] == "session.resumed"


async def test_an_answer_that_was_lost_can_be_asked_for_again() -> None:
    """A resume whose answer never arrived leaves the old token good, as long as nobody is attached."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        lost = await resumed(server.url, t)
        await lost.until("session.resumed")
        lost.drop()
        await eventually(lambda: detached(server))
        async with resuming(server, t) as second:
            assert (await second.next())["type"] == "session.resumed"


async def test_many_takeovers_leave_one_socket() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        talkers, last = [t], t
        for _ in range(5):
            last = await resumed(server.url, last, after=t.last_seq)
            last.token = (await last.until("session.resumed"))["resume_token"]
            talkers.append(last)
        results = await asyncio.gather(*(each.closed() for each in talkers[:-1]))
        assert set(results) == {(1000, "session_replaced")}
        assert await last.answered() == []
        await last.send("session.close")
        assert await last.closed() == (1000, "client_close")
        with pytest.raises(ConnectionClosed):
            await last.next()
