"""Requests and sockets passed on to the process that has their session.

Passed on, not redirected: which session a socket resumes is known only from its first message, when no
redirect is possible any more; browsers and most clients follow none on a socket anyway; HTTP clients drop
their key at one to another host; and processes behind a load balancer need not be reachable for clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import httpx
from starlette.requests import HTTPConnection, Request
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from orchestrator.api.peer import Gone, Peer
from orchestrator.wire.client import MAX_FRAME_BYTES
from orchestrator.wire.errors import EngineUnavailable

FORWARDED = "x-vigil-forwarded"
"""On what was passed on once: it is not passed on again."""

_CONNECT_S = 2.0
_POOL = 512
_NOT_PASSED_ON = frozenset(
    {"host", "content-length", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}
    # The origin was checked at this door; the next one has another name, with which it would not fit.
    | {"proxy-authorization", "expect", "accept-encoding", "origin", FORWARDED}
)
_ANSWERED = frozenset(
    {"content-type", "content-length", "content-disposition", "retry-after", "cache-control", "x-session-id"}
    | {"www-authenticate", "x-accel-buffering"}
)
_TRY_LATER = 1013


class Unreachable(Exception):
    """The process can't be connected to; nothing was sent."""


class Forwarder:
    """:param answer_s: for a process to answer, or to go on answering"""

    def __init__(self, answer_s: float) -> None:
        limits = httpx.Limits(max_connections=_POOL, max_keepalive_connections=_POOL, keepalive_expiry=30)
        timeout = httpx.Timeout(answer_s, connect=_CONNECT_S, pool=answer_s)
        self._http = httpx.AsyncClient(
            timeout=timeout, limits=limits, trust_env=False, follow_redirects=False
        )

    async def answer(self, address: str, request: Request, body: bytes) -> StreamingResponse:
        """The answer of the process at ``address``, as it comes.

        :raises Unreachable: it is not there
        :raises EngineUnavailable: ``owner_lost``: it went away after it had got the request
        """
        url = httpx.URL(
            address + request.scope["raw_path"].decode("ascii"), query=request.scope["query_string"]
        )
        passed = self._http.build_request(request.method, url, headers=_headers(request), content=body)
        try:
            response = await self._http.send(passed, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout) as away:
            raise Unreachable(str(away)) from away
        except httpx.HTTPError as lost:
            raise _lost() from lost
        headers = {name: value for name, value in response.headers.items() if name in _ANSWERED}
        return StreamingResponse(_parts(response), response.status_code, headers)

    async def relay(self, address: str, socket: WebSocket, peer: Peer, first: str) -> None:
        """Have a socket served by the process at ``address`` until either side ends it.

        :param first: the client's first message
        :raises Unreachable: it is not there, or takes no sockets
        """
        query = socket.scope["query_string"].decode("ascii")
        url = f"ws{address.removeprefix('http')}{socket.url.path}{'?' + query if query else ''}"
        try:
            there = await connect(
                url,
                additional_headers=_headers(socket),
                subprotocols=socket.scope.get("subprotocols") or None,
                open_timeout=_CONNECT_S,
                max_size=2 * MAX_FRAME_BYTES,
                compression=None,
                proxy=None,
                user_agent_header=None,
            )
        except (OSError, TimeoutError, InvalidHandshake) as away:
            raise Unreachable(str(away)) from away
        async with there:
            await there.send(first)
            tasks = [asyncio.create_task(_up(peer, there)), asyncio.create_task(_down(there, peer))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def aclose(self) -> None:
        await self._http.aclose()


def was_forwarded(connection: HTTPConnection) -> bool:
    return FORWARDED in connection.headers


async def _up(peer: Peer, there: ClientConnection) -> None:
    try:
        while True:
            await there.send(await peer.receive())
    except (Gone, ConnectionClosed):
        return


async def _down(there: ClientConnection, peer: Peer) -> None:
    try:
        while True:
            await peer.pass_on(await there.recv())
    except Gone:
        return
    except ConnectionClosed as ended:
        code = ended.rcvd.code if ended.rcvd else _TRY_LATER
        await peer.close(code, ended.rcvd.reason if ended.rcvd else "owner_lost")


async def _parts(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for part in response.aiter_raw():
            yield part
    finally:
        await response.aclose()


def _headers(connection: HTTPConnection) -> list[tuple[str, str]]:
    found: Iterable[tuple[str, str]] = connection.headers.items()
    kept = [
        (name, value)
        for name, value in found
        if name not in _NOT_PASSED_ON and not name.startswith("sec-websocket-")
    ]
    return [*kept, (FORWARDED, "1")]


def _lost() -> EngineUnavailable:
    return EngineUnavailable(
        "the process that has this session went away while it was asked; ask again",
        code="owner_lost",
        retry_after_s=1.0,
    )
