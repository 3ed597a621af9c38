"""The client over real sockets against the real service: it loses nothing, and says when all is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import ClientError, ConnectionResumed, Invitation, SessionLost, VigilClient
from orchestrator.client.protocol import Incoming
from orchestrator.wire import server as wire
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.pictures import jpeg

WORDS = " ".join(map(str, range(60)))


def counts(seen: Seen) -> str:
    return f"<response> {WORDS}" if seen.tick == 0 else f"<response> Then {seen.tick}."


@asynccontextmanager
async def service(folder: Path, per_token_s: float = 0.0, **settings: Any) -> AsyncIterator[Served]:
    settings = {"decision": {"gate": False}, **settings}
    pace = Pace(per_token_s=per_token_s)
    async with FakeEngine(counts, pace=pace) as engine, Served(engine, folder, **settings) as served:
        yield served


async def until(client: VigilClient, kind: type[Any]) -> tuple[list[Incoming], Any]:
    """Events up to the next of that kind, and that one."""
    seen: list[Incoming] = []
    async with asyncio.timeout(30):
        async for event in client.events():
            seen.append(event)
            if isinstance(event, kind):
                return seen, event
    raise AssertionError(f"the session ended without {kind.__name__}: {seen}")


async def test_frames_and_questions(tmp_path: Path) -> None:
    async with (
        service(tmp_path) as served,
        VigilClient(served.url, session={"include": ["vigil.tick"]}) as vigil,
    ):
        await vigil.append(frames=[jpeg(1, 224, 224)], frame_times_ms=[0], frame_ids=["a"])
        await vigil.append(frames=[jpeg(1, 224, 224)], frame_times_ms=[0], frame_ids=["a"])
        _, tick = await until(vigil, wire.Tick)
        assert (tick.frames, tick.action) == (1, "response")
        await vigil.ask("what?")
        _, done = await until(vigil, wire.ResponseDone)
        assert done.response.status == "completed"
        await vigil.close()
        rest = [event async for event in vigil.events()]
        assert isinstance(rest[-1], wire.SessionClosed) and rest[-1].reason == "client_close"
        with pytest.raises(SessionLost):
            await vigil.ask("still there?")
    assert not served.core.registry.statistics()["open"]


async def test_lost_connections_lose_and_double_nothing(tmp_path: Path) -> None:
    async with (
        service(tmp_path, per_token_s=0.05) as served,
        VigilClient(served.url, jitter=lambda: 0.0) as vigil,
    ):
        await vigil.ask("count")
        words: list[str] = []
        resumes, cut = 0, False
        async with asyncio.timeout(60):
            async for event in vigil.events():
                if isinstance(event, ConnectionResumed):
                    resumes, cut = resumes + 1, False
                    assert event.attachment_generation == resumes + 1
                if isinstance(event, wire.TextDelta):
                    words.append(event.delta)
                    if not cut and resumes < 3:
                        cut = True
                        await vigil.drop()
                if isinstance(event, wire.ResponseDone):
                    break
        assert "".join(words) == WORDS and resumes == 3
        assert served.core.registry.statistics()["open"] == 1


async def test_the_session_goes_on_over_the_new_socket(tmp_path: Path) -> None:
    async with service(tmp_path) as served, VigilClient(served.url, jitter=lambda: 0.0) as vigil:
        await until(vigil, wire.SessionUpdated)
        await vigil.drop()
        await until(vigil, ConnectionResumed)
        for _ in range(2):
            await vigil.append(frames=[jpeg(1, 224, 224)], frame_times_ms=[1000], operation_id="op1")
        await until(vigil, wire.ResponseDone)
        assert served.core.memory_of(str(vigil.session_id)).frames == 1


async def test_a_session_is_joined_by_invitation(tmp_path: Path) -> None:
    async with service(tmp_path) as served:
        await served.see(0)
        token = (await served.client.post("/v1/sessions/cam/attach-token")).json()
        del token["object"]
        async with VigilClient(served.url, invitation=Invitation(**token)) as first:
            assert first.session_id == token["session_id"] and first.protocol.session["model"]
            await first.ask("what?")
            await until(first, wire.ResponseDone)
            with pytest.raises(SessionLost) as void:
                await VigilClient(served.url, invitation=Invitation(**token)).__aenter__()
            assert void.value.code == "invalid_resume_token"
            token = (await served.client.post("/v1/sessions/cam/attach-token")).json()
            del token["object"]
            async with VigilClient(served.url, invitation=Invitation(**token)):
                _, replaced = await until(first, wire.SessionReplaced)
                assert replaced.session_id == token["session_id"]
                assert [event async for event in first.events()] == []


async def test_refusals_at_the_door(tmp_path: Path) -> None:
    async with service(tmp_path, limits={"sessions": 1}) as served, VigilClient(served.url):
        for more, code in (({}, "resource_exhausted"), ({"model": "nobody"}, "model_not_found")):
            with pytest.raises(ClientError) as refused:
                await VigilClient(served.url, **more).__aenter__()
            assert refused.value.code == code
    with pytest.raises(ClientError) as unreachable:
        await VigilClient("ws://127.0.0.1:9").__aenter__()
    assert unreachable.value.code == "connection_failed"
