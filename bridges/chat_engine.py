"""``VllmChat``: the chat seam over HTTP, for vLLM and servers that speak like it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson

from bridges.chat_stream import ChatStream
from bridges.circuit import Circuit, Clock, EngineState, RealClock
from bridges.deadline import DeadlineWatch
from bridges.engine import (
    ChatEvent,
    ChatRequest,
    Deadlines,
    Delta,
    EngineBroken,
    EngineError,
    EngineRefused,
    EngineServerError,
    EngineTimeout,
    EngineUnreachable,
    Finished,
    ImageBytes,
)
from bridges.engine_errors import ImageNotHeld, message_of, refusal
from bridges.image_ledger import ImageLedger, Rendered, least_tokens, render
from bridges.sse import EventTooLarge, SseParser

# Stock servers close an idle connection after 5 s; leaving first means never writing into a closing one.
_KEEPALIVE_S = 4.0
_ERROR_BODY_BYTES = 64 * 1024


class VllmChat:
    """One engine behind one pooled keep-alive client. ``chat`` may be called concurrently.

    Images travel once: the first time with payload and uuid, then by uuid alone. When the engine answers
    that it does not hold an image, or with a 500, the same request goes out once more with every payload,
    inside the same deadlines.

    :param base_url: root of the engine (a trailing ``/v1`` is taken off)
    :param model: served model name
    :param api_key: sent as a bearer token
    :param uuid_parts: False sends every payload every time, without uuids
    :param held_images: frames that the engine's image cache holds, at most
    :param connect_s: limit for opening a connection
    :param max_connections: requests in flight at a time; more wait inside their deadlines
    :param tokenize_s: deadline of ``tokenize``
    :param clock: monotonic seconds and sleep; deadlines, latencies and backoff follow it
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        uuid_parts: bool = True,
        held_images: int = 2000,
        connect_s: float = 2.0,
        max_connections: int = 64,
        tokenize_s: float = 20.0,
        clock: Clock | None = None,
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1").rstrip("/")
        self.model = model
        self._clock = clock or RealClock()
        self._tokenize_s = tokenize_s
        self._ledger = ImageLedger(held_images) if uuid_parts else None
        self._circuit = Circuit(self._clock)
        self._counts = {"requests": 0, "in_flight": 0, "retries": 0, "timeouts": 0, "lost": 0, "suspect": 0}
        self._body_bytes = 0
        self._headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"
        self._connect_s = connect_s
        self._max_connections = max_connections
        self._client: aiohttp.ClientSession | None = None

    # --- the seam ---------------------------------------------------------------------------------------

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        """Deltas as they come, then one :class:`Finished`.

        :raises EngineError: see the tree in :mod:`bridges.engine`
        """
        started_at = self._clock.now()
        self._counts["requests"] += 1
        self._counts["in_flight"] += 1
        try:
            async with DeadlineWatch(self._clock, request.deadlines) as watch:
                run = _Run()
                async with aclosing(self._with_fallback(request, images, watch, run)) as events:
                    async for event in events:
                        yield event
        except EngineTimeout:
            self._counts["timeouts"] += 1
            self._circuit.missed(started_at)
            raise
        except (EngineUnreachable, EngineBroken):
            self._lost()
            raise
        finally:
            self._counts["in_flight"] -= 1

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        """Exact prompt tokens, from the engine. Every image goes along: this route knows no uuids."""
        filled = render(messages, images, None, with_uuid=False).messages
        body = orjson.dumps({"model": self.model, "messages": filled})
        self._body_bytes += len(body)
        async with DeadlineWatch(self._clock, Deadlines(self._tokenize_s, self._tokenize_s)) as watch:
            try:
                async with await watch.guard(self._post("/tokenize", body)) as response:
                    text = await watch.guard(response.read())
            except aiohttp.ClientError as broken:
                self._lost()
                raise EngineUnreachable(_says(broken)) from broken
        if response.status != 200:
            raise self._refused(response.status, message_of(text))
        return int(orjson.loads(text)["count"])

    async def ping(self, timeout_s: float) -> bool:
        """True when a real one-token request was answered in time."""
        request = ChatRequest(
            messages=[{"role": "user", "content": "ping"}],
            params={"max_tokens": 1, "temperature": 0},
            deadlines=Deadlines(timeout_s, timeout_s),
        )
        try:
            async with aclosing(self.chat(request, _no_images)) as events:
                async for _ in events:
                    pass
        except EngineError:
            return False
        return True

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.close()

    # --- health -----------------------------------------------------------------------------------------

    @property
    def state(self) -> EngineState:
        """Judged by real answers alone. A wedged or lost engine stays so until it answers."""
        return self._circuit.state

    def statistics(self) -> dict[str, Any]:
        """Counters since the start, and the circuit and the ledger as they are now."""
        ledger = self._ledger
        return {
            **self._counts,
            "body_bytes": self._body_bytes,
            "state": self.state.value,
            "misses_in_a_row": self._circuit.misses,
            "last_answer_at": self._circuit.last_answer_at,
            "images_held": len(ledger) if ledger else 0,
            "images_evicted": ledger.evicted if ledger else 0,
        }

    # --- one request -----------------------------------------------------------------------------------

    async def _with_fallback(
        self, request: ChatRequest, images: ImageBytes, watch: DeadlineWatch, run: _Run
    ) -> AsyncGenerator[ChatEvent, None]:
        rendered = self._render(request, images, self._ledger)
        try:
            async with aclosing(self._attempt(request, rendered, watch, run)) as events:
                async for event in events:
                    yield event
            return
        except ImageNotHeld:
            pass
        except EngineServerError as failed:
            # A 500 can be an image that the engine's two caches disagree on; other 5xx come from proxies.
            if run.status != 500 or not rendered.uuids:
                raise failed
        if self._ledger is not None:
            self._ledger.forget(rendered.uuids)
        run.retries += 1
        self._counts["retries"] += 1
        rendered = self._render(request, images, None)
        async with aclosing(self._attempt(request, rendered, watch, run)) as events:
            async for event in events:
                yield event

    def _render(self, request: ChatRequest, images: ImageBytes, held: ImageLedger | None) -> Rendered:
        return render(request.messages, images, held, with_uuid=self._ledger is not None)

    async def _attempt(
        self, request: ChatRequest, rendered: Rendered, watch: DeadlineWatch, run: _Run
    ) -> AsyncGenerator[ChatEvent, None]:
        body = self._body(request, rendered)
        run.body_bytes += len(body)
        self._body_bytes += len(body)
        stream = ChatStream()
        parser = SseParser()
        entered = False
        response: aiohttp.ClientResponse | None = None
        try:
            response = await watch.guard(self._post("/v1/chat/completions", body, request.session, run))
            run.status = response.status
            if response.status != 200:
                text = await watch.guard(_error_body(response.content))
                raise self._refused(response.status, message_of(text))
            while not stream.done and (chunk := await watch.guard(response.content.readany())):
                for payload in parser.feed(chunk):
                    delta = self._take(payload, stream, run)
                    if stream.accepted and self._ledger is not None and not entered:
                        # Taken by the engine, and not only by its front end: now it holds these images.
                        entered = True
                        self._ledger.sent(rendered.uuids)
                    if delta is not None:
                        watch.started()
                        run.times.append(self._clock.now())
                        yield delta
            run.ended_at = self._clock.now()
            if stream.done:
                # Only a response read to its very end leaves a connection that can be used again. The answer
                # is whole already, so nothing that goes wrong here matters to it.
                with suppress(EngineTimeout, aiohttp.ClientError):
                    await watch.guard(_drain(response.content))
            if not stream.whole:
                raise aiohttp.ClientPayloadError("the stream ended early")
        except (aiohttp.ClientError, EventTooLarge) as broken:
            if run.times:
                raise EngineBroken(_says(broken), stream.text) from broken
            raise EngineUnreachable(_says(broken)) from broken
        finally:
            if response is not None:
                response.close()  # cuts the connection, unless the answer was read to its end
        self._circuit.answered()
        yield self._finished(request, stream, run)

    def _take(self, payload: bytes, stream: ChatStream, run: _Run) -> Delta | None:
        try:
            return stream.take(payload)
        except EngineError as failed:
            if run.times:
                raise EngineBroken(failed.message, stream.text) from failed
            run.status = 500
            raise

    def _body(self, request: ChatRequest, rendered: Rendered) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": rendered.messages,
            **request.params,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if body.get("logprobs"):
            # Texts of tokens are not unique and not always characters; their ids are.
            body["return_tokens_as_token_ids"] = True
        return orjson.dumps(body)

    async def _post(
        self, route: str, body: bytes, session: str | None = None, run: _Run | None = None
    ) -> aiohttp.ClientResponse:
        if self._client is None:  # made in the loop that uses it
            self._client = self._connected()
        headers = {"x-session-id": session} if session else None
        return await self._client.post(
            self.base_url + route, data=body, headers=headers, allow_redirects=False, trace_request_ctx=run
        )

    def _connected(self) -> aiohttp.ClientSession:
        async def written(_client: object, context: Any, _sent: object) -> None:
            run: _Run | None = context.trace_request_ctx
            if run is not None and run.written_at is None:
                run.written_at = self._clock.now()

        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(written)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._max_connections, keepalive_timeout=_KEEPALIVE_S),
            headers=self._headers,
            # Reads and waits for a free connection are bounded by each request's own deadlines.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
        )

    def _finished(self, request: ChatRequest, stream: ChatStream, run: _Run) -> Finished:
        usage = stream.usage or {}
        written = run.written_at or 0.0
        times = tuple((at - written) * 1000 for at in run.times)
        total_ms = (run.ended_at - written) * 1000
        prompt_tokens = int(usage.get("prompt_tokens") or 0)
        suspect = prompt_tokens < least_tokens(request.messages)
        self._counts["suspect"] += suspect
        return Finished(
            finish_reason=stream.finish_reason or "stop",
            prompt_tokens=prompt_tokens,
            completion_tokens=int(usage.get("completion_tokens", stream.tokens)),
            cached_tokens=stream.cached_tokens,
            body_bytes=run.body_bytes,
            retries=run.retries,
            ttft_ms=times[0] if times else total_ms,
            total_ms=total_ms,
            stop_token_id=stream.stop_token_id,
            token_times_ms=times,
            suspect=suspect,
        )

    def _refused(self, status: int, message: str) -> EngineError:
        error = refusal(status, message)
        if isinstance(error, EngineRefused):
            self._circuit.answered()
        return error

    def _lost(self) -> None:
        """Whoever answers next may be a new instance, and a new instance holds no images."""
        self._counts["lost"] += 1
        self._circuit.lost()
        if self._ledger is not None:
            self._ledger.clear()


@dataclass(slots=True)
class _Run:
    """What one answer has cost so far, over all its attempts."""

    status: int = 0
    body_bytes: int = 0
    retries: int = 0
    written_at: float | None = None
    ended_at: float = 0.0
    times: list[float] = field(default_factory=list)


def _no_images(uuid: str) -> bytes:
    raise KeyError(uuid)


async def _drain(content: aiohttp.StreamReader) -> None:
    while await content.readany():
        pass


async def _error_body(content: aiohttp.StreamReader) -> bytes:
    body = b""
    while (chunk := await content.readany()) and len(body) <= _ERROR_BODY_BYTES:
        body += chunk
    return body


def _says(error: Exception) -> str:
    return str(error) or type(error).__name__
