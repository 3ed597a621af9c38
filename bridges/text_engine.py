"""Plain chat on an OpenAI-compatible engine, request and answer as they are: nothing kept, nothing added."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx
import orjson

from bridges.circuit import Clock, RealClock
from bridges.deadline import DeadlineWatch
from bridges.engine import Deadlines, EngineBroken, EngineServerError, EngineUnreachable
from bridges.engine_errors import message_of, refusal
from bridges.sse import EventTooLarge, SseParser
from bridges.tls import trusted

_ANSWER_BYTES = 8 * 2**20
_ERROR_BYTES = 64 * 1024


class TextEngine:
    """One pooled client. Both methods raise the errors of :mod:`bridges.engine`.

    :param base_url: root of the engine (a trailing ``/v1`` is taken off)
    :param path: of the chat route below that root
    :param api_key: sent as a bearer token
    :param deadlines: of each request; an answer that does not stream only has the total one
    :param max_connections: requests in flight at a time; more wait inside their deadlines
    """

    def __init__(
        self,
        base_url: str,
        *,
        path: str = "/v1/chat/completions",
        api_key: str | None = None,
        deadlines: Deadlines = Deadlines(60.0, 300.0),  # noqa: B008  frozen
        connect_s: float = 2.0,
        max_connections: int = 16,
        clock: Clock | None = None,
    ) -> None:
        self._path = path
        self._deadlines = deadlines
        self._clock = clock or RealClock()
        self._http = httpx.AsyncClient(
            base_url=base_url.rstrip("/").removesuffix("/v1").rstrip("/"),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(None, connect=connect_s),
            limits=httpx.Limits(max_connections=max_connections, keepalive_expiry=4.0),
            trust_env=False,
            verify=trusted(),
        )

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's own answer."""
        total = Deadlines(self._deadlines.total_s, self._deadlines.total_s)
        async with DeadlineWatch(self._clock, total) as watch:
            response = await self._post(body, watch)
            try:
                raw = await watch.guard(_read(response, _ANSWER_BYTES))
            except httpx.HTTPError as broken:
                raise EngineUnreachable(_says(broken)) from broken
            finally:
                await response.aclose()
        try:
            answer = orjson.loads(raw)
        except orjson.JSONDecodeError as broken:
            raise EngineServerError("the engine's answer is no JSON") from broken
        if not isinstance(answer, dict):
            raise EngineServerError("the engine's answer is no JSON object")
        return answer

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[bytes, None]:
        """Payloads of the engine's events as they come, ``[DONE]`` included."""
        parser = SseParser()
        begun = False
        async with DeadlineWatch(self._clock, self._deadlines) as watch:
            response = await self._post(body, watch)
            try:
                chunks = response.aiter_raw()
                while (chunk := await watch.guard(anext(chunks, None))) is not None:
                    for payload in parser.feed(chunk):
                        watch.started()
                        begun = True
                        yield payload
            except (httpx.HTTPError, EventTooLarge) as broken:
                if begun:
                    raise EngineBroken(_says(broken), "") from broken
                raise EngineUnreachable(_says(broken)) from broken
            finally:
                await response.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _post(self, body: Mapping[str, Any], watch: DeadlineWatch) -> httpx.Response:
        """The response, its body unread; a refusal is raised."""
        request = self._http.build_request(
            "POST",
            self._path,
            content=orjson.dumps(body),
            headers={"content-type": "application/json", "accept-encoding": "identity"},
        )
        try:
            response = await watch.guard(self._http.send(request, stream=True))
            if response.is_success:
                return response
            try:
                raw = await watch.guard(_read(response, _ERROR_BYTES))
            finally:
                await response.aclose()
        except httpx.HTTPError as broken:
            raise EngineUnreachable(_says(broken)) from broken
        raise refusal(response.status_code, message_of(raw))


async def _read(response: httpx.Response, limit: int) -> bytes:
    raw = b""
    async for chunk in response.aiter_raw():
        raw += chunk
        if len(raw) > limit:
            raise EngineServerError(f"the engine's answer is larger than {limit} bytes")
    return raw


def _says(error: Exception) -> str:
    return str(error) or type(error).__name__
