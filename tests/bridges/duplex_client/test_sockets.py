"""A socket tells of each message whether it was written whole, and is right: so many arrive, no more."""

from __future__ import annotations

import asyncio

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from bridges.circuit import RealClock
from bridges.duplex_client.link import LinkError, LinkOptions
from bridges.duplex_client.sockets import EngineSocket, dial, within
from tests.bridges.duplex_client.linked import LOOPS, run_on
from tests.fakes.clock import VirtualClock


class Peer:
    """Leaves everything in the socket until told to read."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.over = asyncio.Event()
        self.got: list[str] = []

    async def __call__(self, socket: ServerConnection) -> None:
        socket.transport.pause_reading()
        await self.go.wait()
        socket.transport.resume_reading()
        try:
            async for message in socket:
                self.got.append(str(message))
        except ConnectionClosed:
            pass
        self.over.set()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("size", [1000, 20_000, 300_000])
def test_what_is_said_to_be_written_arrives_and_nothing_else(size: int, loop: str) -> None:
    run_on(loop, cut_in_a_write(size))


async def cut_in_a_write(size: int) -> None:
    peer = Peer()
    async with serve(peer, "127.0.0.1", 0, max_size=None, compression=None) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        url = f"ws://127.0.0.1:{port}/"
        socket = await dial(url, LinkOptions(url, "m"), RealClock(), 5.0)
        told: list[bool] = []

        async def put_all() -> None:
            while not told or told[-1]:
                told.append(await socket.put(f"{len(told)}".ljust(size)))

        putting = asyncio.create_task(put_all())
        while not await stuck(socket, told):
            pass
        socket.transport.abort()
        await putting
        peer.go.set()
        await peer.over.wait()
        assert told[-1] is False
        assert [int(message) for message in peer.got] == list(range(len(told) - 1))


async def stuck(socket: EngineSocket, told: list[bool]) -> bool:
    """No message was finished in many turns of the loop."""
    before = len(told)
    for _ in range(200):
        await asyncio.sleep(0)
    return len(told) == before


async def test_a_dead_socket_takes_nothing() -> None:
    peer = Peer()
    async with serve(peer, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        url = f"ws://127.0.0.1:{port}/"
        socket = await dial(url, LinkOptions(url, "m"), RealClock(), 5.0)
        socket.transport.abort()
        assert await socket.put("x") is False
        peer.go.set()
        await peer.over.wait()
        assert not peer.got


async def test_a_host_that_answers_nothing() -> None:
    """The connection is there, the handshake never is."""
    clock = VirtualClock()
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        url = f"ws://127.0.0.1:{port}/"
        dialling = asyncio.create_task(dial(url, LinkOptions(url, "m"), clock, 7.0))
        while not dialling.done():
            await clock.advance(1.0)
        with pytest.raises(LinkError) as late:
            dialling.result()
        assert late.value.code == "timeout"


async def test_within_gives_the_result_or_cancels() -> None:
    clock = VirtualClock()
    assert await within(clock, 5, asyncio.sleep(0, "x")) == "x"
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(clock, 5, never))
    await clock.advance(4.9)
    assert not waiting.done()
    await clock.advance(0.2)
    with pytest.raises(TimeoutError):
        await waiting
    assert never.cancelled()
