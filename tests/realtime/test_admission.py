"""Cases H: who gets in, how much may wait, and what a slow reader costs."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urlsplit

import pytest

from orchestrator.api.context import RealtimeLimits
from orchestrator.runtime.registry import RegistryLimits
from orchestrator.session.backend import AudioDelta, TextDelta, TurnEnd
from orchestrator.session.fence import Fence
from orchestrator.session.limits import SessionLimits
from orchestrator.session.outbox import OutboxLimits
from orchestrator.wire.errors import ServerFault
from tests.fakes.backend import ScriptedBackend
from tests.realtime.serving import Scripted, eventually
from tests.realtime.talker import Talker, resumed
from tests.realtime.test_output import CHUNK
from tests.realtime.test_turns import begin_response

FRAME = b"\xff\xd8" + bytes(38)


async def test_case_64_opens_that_come_together_never_overshoot() -> None:
    held: list[ScriptedBackend] = []

    def slow(backend: ScriptedBackend) -> None:
        backend.hold("open")
        held.append(backend)

    limits = RegistryLimits(max_sessions=2, reaper_interval_s=0.02)
    async with Scripted(limits=limits, prepare=slow) as server, AsyncExitStack() as stack:
        talkers = [await stack.enter_async_context(Talker(server.url)) for _ in range(3)]
        for talker in talkers:
            await talker.send("session.update", session={})
        await eventually(lambda: len(held) == 2)
        refused = asyncio.create_task(_first_refused(talkers))
        error, loser = await refused
        assert error["type"] == "rate_limit_error" and error["retryable"] is True and "2" in error["message"]
        assert (await loser.closed())[0] == 1013
        for backend in held:
            backend.free("open")
        winners = [talker for talker in talkers if talker is not loser]
        for talker in winners:
            await talker.opened()
        server._prepare = lambda _: None
        await winners[0].send("session.close")
        await winners[0].closed()
        async with Talker(server.url, opening={}) as fourth:
            assert await fourth.answered() == []


async def _first_refused(talkers: list[Talker]) -> tuple[dict[str, Any], Talker]:
    tasks = {asyncio.create_task(talker.error("resource_exhausted")): talker for talker in talkers}
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    (task,) = done
    return task.result(), tasks[task]


async def test_case_64_a_clean_up_that_fails_keeps_the_place_until_it_succeeds() -> None:
    limits = RegistryLimits(max_sessions=1, reaper_interval_s=0.05)
    async with Scripted(limits=limits) as server:
        async with Talker(server.url, opening={}) as t:
            server.backend().fail("close", ServerFault("not yet"), times=2)
            await t.send("session.close")
            assert await t.closed() == (1000, "client_close")
        await eventually(lambda: not server.registry.statistics()["slots"])
        assert server.backend().methods().count("close") >= 3
        async with Talker(server.url, opening={}):
            pass


async def test_case_65_input_is_charged_until_it_is_used() -> None:
    limits = RegistryLimits(session=SessionLimits(max_pending_input_bytes=100))
    async with Scripted(limits=limits) as server, Talker(server.url, opening={}) as t:
        await t.ask("go")
        await t.send("response.create")
        await t.until("response.created")
        await eventually(server.asked)
        for _ in range(2):
            await t.show(FRAME)
        await t.show(FRAME, event_id="third")
        error = await t.error("input_backpressure")
        assert error["event_id"] == "third" and error["type"] == "rate_limit_error"
        await t.send("input_audio_buffer.commit", response_create=True)
        assert (await t.until("input_audio_buffer.committed"))["event"]["overlap_deferred"] is True
        await t.show(FRAME)
        await t.error("input_backpressure")
        assert server.pending_bytes() == 80
        server.backend().emit(TextDelta(server.asked()[-1], "x"), TurnEnd(server.asked()[-1]))
        await t.until("response.done")
        await eventually(lambda: server.pending_bytes() == 0)
        await t.show(FRAME)
        assert not [e for e in await t.answered() if e["type"] == "error"]
        await t.send("input_audio_buffer.clear")
        await t.until("input_audio_buffer.cleared")
        await eventually(lambda: server.pending_bytes() == 0)


async def test_case_66_a_flood_of_commands_is_refused_by_name() -> None:
    """The mailbox is bounded; what ends the session still finds a place in it."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        server.backend().hold("tell")
        for n in range(300):
            await t.ask(str(n))
        await t.error("input_backpressure")
        await t.send("session.close")
        server.backend().free("tell")
        assert await t.closed() == (1000, "client_close")


class Slow:
    """A client whose kernel holds little and which reads only when it is told to."""

    def __init__(self, url: str) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self._socket.setblocking(False)
        self._url = url

    async def connected(self) -> socket.socket:
        address = urlsplit(self._url)
        await asyncio.get_running_loop().sock_connect(self._socket, (address.hostname, address.port))
        return self._socket


async def test_case_67_a_slow_reader_ends_its_own_session_alone() -> None:
    outbox = OutboxLimits(max_bytes=768 * 1024)
    limits = RegistryLimits(max_sessions=2, session=SessionLimits(outbox=outbox), reaper_interval_s=0.05)
    realtime = RealtimeLimits(write_s=60, last_events_s=60)
    async with Scripted(limits=limits, realtime=realtime) as server, Talker(server.url, opening={}) as other:
        await begin_response(server, other)
        sock = await Slow(server.url).connected()
        async with Talker(server.url, opening={}, sock=sock, max_queue=1) as t:
            response_id = await begin_response(server, t)
            slow, well = server.backend(1), server.backend(0)
            fence = server.asked()[-1]
            sent = 0
            (session,) = [s for s in server.registry.sessions() if s.id == t.session_id]
            while session.is_open:
                slow.emit(AudioDelta(fence, CHUNK, 24000))
                sent += 1
                await asyncio.sleep(0)
            well_fence = next(c for c in well.calls if c.method == "commit").arguments[0]
            for n in range(5):
                well.emit(AudioDelta(well_fence, CHUNK, 24000))
                delta = await other.until("response.output_audio.delta")
                assert delta["metadata"]["audio_duration_ms"] == 1000 * (n + 1)
                await other.until("response.output_audio_transcript.delta")
            assert await t.closed() == (1000, "output_backpressure")
            (error,) = t.of("error")
            assert error["error"]["code"] == "output_backpressure"
            assert error["error"]["type"] == "rate_limit_error"
            (done,) = t.of("response.done")
            assert done["response_id"] == response_id and done["response"]["status"] == "failed"
            assert done["vllm_omni"]["committed"] is False
            assert len(t.of("response.output_audio.delta")) < sent
            assert t.types[-1] == "session.closed"
            seqs = [e["server_event_seq"] for e in t.seen if "server_event_seq" in e]
            assert seqs == list(range(1, len(seqs) + 1))
        await eventually(lambda: server.registry.statistics()["slots"] == 1)
        async with Talker(server.url, opening={}):
            assert await other.answered() == []


async def test_a_client_that_reads_nothing_loses_its_socket_but_not_its_session() -> None:
    """After the write deadline the connection is cut; the session waits for a resume like any other."""
    realtime = RealtimeLimits(write_s=1.0)
    limits = RegistryLimits(session=SessionLimits(outbox=OutboxLimits(max_bytes=2**26, max_events=4096)))
    async with Scripted(limits=limits, realtime=realtime) as server:
        sock = await Slow(server.url).connected()
        async with Talker(server.url, opening={}, sock=sock, max_queue=1) as t:
            await begin_response(server, t)
            fence = server.asked()[-1]
            for _ in range(150):
                server.backend().emit(AudioDelta(fence, CHUNK, 24000))
            await eventually(lambda: not server.statistics()["attached"])
            await eventually(lambda: not server.server.server_state.connections)
            server.backend().emit(TurnEnd(fence))
            second = await resumed(server.url, t)
            event = await second.next()
            assert event["type"] in ("session.resumed", "session.resync_required")
            second.drop()


@pytest.mark.parametrize("queued", [0, 3])
async def test_case_68_a_close_comes_after_what_was_sent_before_it(queued: int) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        fence = server.asked()[-1]
        server.backend().emit(AudioDelta(fence, CHUNK, 24000))
        await t.until("response.output_audio.delta")
        for _ in range(queued):
            await t.speech(200)
        await t.send("session.close")
        assert await t.closed() == (1000, "client_close")
        assert t.types[-1] == "session.closed" and t.seen[-1]["reason"] == "client_close"
        done = t.types.index("response.done")
        assert t.seen[done]["response"]["status"] == "cancelled"
        assert "response.output_audio.delta" not in t.types[done:]
        assert server.backend().closed


async def test_a_client_that_leaves_during_a_slow_open_leaves_nothing() -> None:
    held: list[ScriptedBackend] = []

    def slow(backend: ScriptedBackend) -> None:
        backend.hold("open")
        held.append(backend)

    async with Scripted(prepare=slow) as server:
        async with Talker(server.url) as t:
            await t.send("session.update", session={})
            await eventually(lambda: held)
        # The backend never opens, and nobody waits for it.
        await eventually(lambda: not server.registry.statistics()["slots"])
        assert held[0].closed


async def test_what_a_client_says_before_its_session_is_open_is_taken_in_order() -> None:
    held: list[ScriptedBackend] = []

    def slow(backend: ScriptedBackend) -> None:
        backend.hold("open")
        held.append(backend)

    async with Scripted(prepare=slow) as server, Talker(server.url) as t:
        await t.send("session.update", session={})
        for text in ("one", "two", "three"):
            await t.ask(text)
        await eventually(lambda: held)
        held[0].free("open")
        for _ in range(3):
            await t.until("conversation.item.done")
        said = [event["item"]["content"][0]["text"] for event in t.of("conversation.item.done")]
        assert said == ["one", "two", "three"]


async def test_a_drain_ends_every_session_in_order() -> None:
    """A response under way is finished, then each client is told, then the port closes."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        fence: Fence = server.asked()[-1]
        server.server.should_exit = True
        server.backend().emit(TextDelta(fence, "done"), TurnEnd(fence))
        assert await t.closed() == (1000, "shutdown")
        assert t.of("response.done")
        assert t.types[-1] == "session.closed" and t.seen[-1]["reason"] == "shutdown"
