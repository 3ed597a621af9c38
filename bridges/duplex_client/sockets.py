"""Sockets to an engine: dialled within deadlines, and measured so that a frame is written wholly or not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.protocol import State

from bridges.circuit import Clock
from bridges.duplex_client.address import host_and_port
from bridges.duplex_client.link import LinkCode, LinkError, LinkOptions

T = TypeVar("T")
MAX_FRAME = 64 * 2**20
READ_AHEAD = 64
"""Frames that wait for our reader; then the engine is held back."""


class EngineSocket(ClientConnection):
    """A WebSocket without a write buffer, which so can tell whether a message was written whole."""

    _waited = _stuck = _cut = False

    def pause_writing(self) -> None:
        self._waited = self._stuck = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck = False
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut = self._stuck
        super().connection_lost(exc)

    async def put(self, text: str) -> bool:
        """Write one message. True: all of it is with the system. False: its end never left us, so that
        the engine cannot have it."""
        if self.state is not State.OPEN or self.transport.is_closing():
            return False
        self._waited = self._stuck
        try:
            await self.send(text)
        except ConnectionClosed:
            return False
        # A write that fails at once closes the transport in the same step; one that had to wait was
        # finished, unless the connection was lost while it waited.
        return not self._cut if self._waited else not self.transport.is_closing()


Dial = Callable[[str, LinkOptions, Clock, float], Awaitable[EngineSocket]]
"""(address, options, clock, seconds for the handshake): a socket, or ``LinkError``."""


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """The result of ``work``, or ``TimeoutError`` after ``seconds`` of the clock; then it is cancelled."""
    task = asyncio.ensure_future(work)
    timer = asyncio.ensure_future(clock.sleep(max(0.0, seconds)))
    try:
        await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise TimeoutError
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def dial(url: str, options: LinkOptions, clock: Clock, handshake_s: float) -> EngineSocket:
    """Connect. An engine that warms up takes the connection at once and answers the handshake late.

    :raises LinkError: ``connect_failed``, or ``timeout``
    """
    headers = {"Authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    plug: socket.socket | None = None
    try:
        plug = await within(clock, min(options.connect_s, handshake_s), _plug(*host_and_port(url)))
        opening = connect(
            url,
            sock=plug,
            create_connection=EngineSocket,
            additional_headers=headers,
            open_timeout=None,
            close_timeout=1.0,
            ping_interval=None,
            compression=None,
            max_size=MAX_FRAME,
            max_queue=READ_AHEAD,
            write_limit=0,
            proxy=None,
        )
        return await within(clock, handshake_s, _entered(opening))
    except TimeoutError as error:
        raise LinkError(LinkCode.TIMEOUT, f"{url} does not answer", retryable=True) from error
    except InvalidStatus as error:
        status = error.response.status_code
        told = f"{url} answered with status {status}; does it serve duplex sessions?"
        raise LinkError(LinkCode.CONNECT_FAILED, told, retryable=status >= 500) from error
    except (OSError, InvalidHandshake, EOFError) as error:
        told = f"can't reach {url}: {str(error) or 'no answer'}"
        raise LinkError(LinkCode.CONNECT_FAILED, told, retryable=True) from error


async def _entered(opening: connect) -> EngineSocket:
    made = await opening
    assert isinstance(made, EngineSocket)
    return made


async def _plug(host: str, port: int) -> socket.socket:
    """A connected socket to one of the host's addresses."""
    loop = asyncio.get_running_loop()
    failed: OSError = OSError(f"{host} has no address")
    for family, kind, proto, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        plug = socket.socket(family, kind, proto)
        try:
            plug.setblocking(False)
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(plug, address)
        except OSError as error:
            plug.close()
            failed = error
        except BaseException:
            plug.close()
            raise
        else:
            return plug
    raise failed
