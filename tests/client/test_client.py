"""The client over real sockets against the real service: it loses nothing, and says when all is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from orchestrator.api.credentials import key_hash, new_key
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
    async with asyncio.timeout(60):
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
    assert "ws://127.0.0.1:9" in unreachable.value.message


async def test_a_refused_handshake_tells_the_services_reason(tmp_path: Path) -> None:
    key = new_key()
    async with service(tmp_path, auth={"required": True, "api_keys": {"ann": key_hash(key)}}) as served:
        for wrong in (None, "vigil_wrong"):
            with pytest.raises(ClientError) as refused:
                await VigilClient(served.url, api_key=wrong).__aenter__()
            assert refused.value.code == "invalid_api_key" and "API key" in refused.value.message
        async with VigilClient(served.url, api_key=key) as client:
            assert client.session_id


async def test_a_server_that_is_no_service() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno")
        await writer.drain()
        writer.close()

    async def chatter(socket: ServerConnection) -> None:
        await socket.send("hello")
        await socket.wait_closed()

    async with (
        await asyncio.start_server(page, "127.0.0.1", 0) as pages,
        serve(chatter, "127.0.0.1", 0) as talker,
    ):
        for server, code in ((pages, "connection_failed"), (talker, "invalid_event")):
            port = next(iter(server.sockets)).getsockname()[1]
            with pytest.raises(ClientError) as refused:
                await VigilClient(f"ws://127.0.0.1:{port}").__aenter__()
            assert refused.value.code == code


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "127.0.0.1:8070", "ws://", "ws://host:port", "http://[::1"]
)
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ClientError) as refused:
        VigilClient(url)
    assert refused.value.code == "invalid_url" and url in refused.value.message
