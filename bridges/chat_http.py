"""One pooled keep-alive client of an engine, and what one answer over it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
from aiohttp.abc import AbstractStreamWriter

from bridges.circuit import Circuit, Clock
from bridges.deadline import DeadlineWatch
from bridges.engine import (
    ChatRequest,
    EngineDenied,
    EngineError,
    EngineRefused,
    EngineServerError,
    EngineUnreachable,
)
from bridges.engine_errors import message_of, refusal

CHAT = "/v1/chat/completions"

# Stock servers close an idle connection after 5 s; leaving first means never writing into a closing one.
_KEEPALIVE_S = 4.0
_ERROR_BODY_BYTES = 64 * 1024


@dataclass(slots=True)
class Run:
    """What one answer has cost so far, over all its attempts.

    :param path: how the prompt went at last, see ``Finished.path``; ``fallback``: why not in a better way
    :param lost_prompt: the engine's count of the prompt's tokens says that it read another one
    """

    status: int = 0
    body_bytes: int = 0
    retries: int = 0
    path: str = ""
    fallback: str | None = None
    lost_prompt: bool = False
    written_at: float | None = None
    ended_at: float = 0.0
    times: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt: where it goes, its body, the pictures that the engine holds once it has taken it, and the
    tokens that it has at the least."""

    route: str
    body: bytes
    uuids: tuple[str, ...]
    least: int


class _Timed(aiohttp.BytesPayload):
    """A body that tells when it was written first: a trace would tell more, of every part of a request."""

    def __init__(self, body: bytes, run: Run, clock: Clock) -> None:
        super().__init__(body)
        self._run = run
        self._clock = clock

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await super().write_with_length(writer, content_length)
        if self._run.written_at is None:
            self._run.written_at = self._clock.now()


class ChatHttp:
    """:param base_url: root of the engine; :param connect_s: limit for opening a connection
    :param max_connections: requests in flight at a time
    :param circuit: told that the engine is there whenever it refuses something
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        connect_s: float,
        max_connections: int,
        clock: Clock,
        circuit: Circuit,
    ) -> None:
        self._base_url = base_url
        self._circuit = circuit
        self.sent_bytes = 0
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._connect_s = connect_s
        self._max_connections = max_connections
        self._clock = clock
        self._client: aiohttp.ClientSession | None = None

    async def post(
        self, route: str, body: bytes, request: ChatRequest | None = None, run: Run | None = None
    ) -> aiohttp.ClientResponse:
        if self._client is None:  # made in the loop that uses it
            self._client = self._connected()
        self.sent_bytes += len(body)
        headers: dict[str, str] = {}
        if request is not None and request.session:
            headers["x-session-id"] = request.session
        if request is not None and request.traceparent:
            headers["traceparent"] = request.traceparent
        data = body if run is None else _Timed(body, run, self._clock)
        return await self._client.post(
            self._base_url + route, data=data, headers=headers, allow_redirects=False
        )

    async def json(
        self, route: str, body: Mapping[str, Any], watch: DeadlineWatch, request: ChatRequest | None = None
    ) -> dict[str, Any]:
        """A small request and its whole answer. ``request``: the one that it is made for, if any.

        :raises EngineError: as the engine or the connection fails
        """
        try:
            async with await watch.guard(self.post(route, orjson.dumps(body), request)) as response:
                text = await watch.guard(response.read())
        except aiohttp.ClientError as broken:
            raise EngineUnreachable(says(broken)) from broken
        if response.status != 200:
            raise self.refused(response.status, message_of(text))
        try:
            told = orjson.loads(text)
        except orjson.JSONDecodeError as bad:
            raise EngineServerError(f"{route} answered something that is not JSON: {bad}") from bad
        if not isinstance(told, dict):
            raise EngineServerError(f"{route} answered something that is no JSON object")
        return told

    def refused(self, status: int, message: str) -> EngineError:
        """The error of an answer that is none."""
        error = refusal(status, message)
        if isinstance(error, EngineRefused) and not isinstance(error, EngineDenied):
            self._circuit.answered()
        return error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _connected(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._max_connections, keepalive_timeout=_KEEPALIVE_S),
            headers=self._headers,
            # Reads and waits for a free connection are bounded by each request's own deadlines.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )


def numbers_of(told: Mapping[str, Any], name: str) -> list[int]:
    """The whole numbers that an answer tells under a name.

    :raises EngineServerError: there are none
    """
    found = told.get(name)
    if not isinstance(found, list) or not all(isinstance(number, int) for number in found):
        raise EngineServerError(f"the engine's answer has no {name}")
    return found


async def drain(content: aiohttp.StreamReader) -> None:
    while await content.readany():
        pass


async def error_body(content: aiohttp.StreamReader) -> bytes:
    body = b""
    while (chunk := await content.readany()) and len(body) <= _ERROR_BODY_BYTES:
        body += chunk
    return body


def says(error: Exception) -> str:
    return str(error) or type(error).__name__
