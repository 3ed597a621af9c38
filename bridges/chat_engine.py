"""``VllmChat``: the chat seam over HTTP, for vLLM and servers that speak like it."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import orjson

from bridges.chat_http import CHAT, Call, ChatHttp, Run, drain, error_body, says
from bridges.chat_stream import ChatStream
from bridges.circuit import Circuit, Clock, EngineState, RealClock
from bridges.deadline import DeadlineWatch
from bridges.engine import (
    ChatEvent,
    ChatRequest,
    Deadlines,
    Delta,
    EngineBroken,
    EngineDenied,
    EngineError,
    EngineServerError,
    EngineTimeout,
    EngineUnreachable,
    Finished,
    ImageBytes,
)
from bridges.engine_errors import ImageNotHeld, message_of
from bridges.image_ledger import ImageLedger, Rendered, render
from bridges.sse import EventTooLarge, SseParser
from bridges.token_calls import FAULTS, ByIds, IdCalls, to_blame, why
from bridges.token_path import TokenPath
from bridges.token_prompt import Mismatch, TokenPrompts
from bridges.token_route import TokenRoute, Untranslatable

PRIORITIES_PER_S = 10
"""Whole numbers are taken. Of requests in the same tenth of a second the first that came goes first."""


class VllmChat:
    """One engine behind one pooled keep-alive client. ``chat`` may be called concurrently.

    Images travel once: the first time with payload and uuid, then by uuid alone. Prompts of a window go as
    token ids where the engine has a route for them. When the engine answers that it does not hold an image,
    with a 500, or not to what was asked, the same request goes out once more as messages with every payload,
    inside the same deadlines.

    Where the engine schedules by priority each request's is the moment from which on later ones wait for it.
    So background work lets ticks go first, and yet none waits for ever where there are always ticks: a class
    of its own, below them, would. Requests of others, that name no priority, go before all of these.

    :param base_url: root of the engine (a trailing ``/v1`` is taken off)
    :param model: served model name
    :param api_key: sent as a bearer token
    :param uuid_parts: False sends every payload every time, without uuids
    :param held_images: frames that the engine's image cache holds, at most
    :param token_route: what the self-check learned of the engine's token route, if it can be used
    :param priority: the engine schedules by priority
    :param connect_s: limit for opening a connection
    :param max_connections: requests in flight at a time; more wait inside their deadlines
    :param tokenize_s: deadline of ``tokenize``
    :param clock: monotonic seconds and sleep; deadlines, latencies and backoff follow it
    :param wall: seconds that are the same for all processes that ask this engine
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        uuid_parts: bool = True,
        held_images: int = 2000,
        token_route: TokenRoute | None = None,
        priority: bool = False,
        connect_s: float = 2.0,
        max_connections: int = 64,
        tokenize_s: float = 20.0,
        clock: Clock | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.base_url = base_url.rstrip("/").removesuffix("/v1").rstrip("/")
        self.model = model
        self._clock = clock or RealClock()
        self._priority, self._wall = priority, wall
        self._tokenize_s = tokenize_s
        self._ledger = ImageLedger(held_images) if uuid_parts else None
        self._circuit = Circuit(self._clock)
        self._counts = {"requests": 0, "in_flight": 0, "retries": 0, "timeouts": 0, "lost": 0, "suspect": 0}
        self._http = ChatHttp(self.base_url, api_key, connect_s, max_connections, self._clock, self._circuit)
        self._ids = IdCalls(self._http, model, self._ledger) if self._ledger is not None else None
        self.tokens = TokenPath(token_route if uuid_parts else None, self._clock)
        self.unlike: str | None = None
        """Why nothing may be asked of what is there now, where whoever checked it says so."""

    # --- the seam ---------------------------------------------------------------------------------------

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        """Deltas as they come, then one :class:`Finished`.

        :raises EngineError: see the tree in :mod:`bridges.engine`
        """
        if self.unlike is not None:
            self._circuit.lost(denied=True)
            raise EngineDenied(self.unlike)
        request = self._in_turn(request)
        started_at = self._clock.now()
        self._counts["requests"] += 1
        self._counts["in_flight"] += 1
        try:
            async with DeadlineWatch(self._clock, request.deadlines) as watch:
                run = Run()
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
        except EngineDenied:
            self._lost(denied=True)
            raise
        except EngineServerError:
            self._circuit.missed(started_at)  # whoever fails at every request answers nobody
            raise
        finally:
            self._counts["in_flight"] -= 1

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        """Exact prompt tokens, from the engine. Every image goes along: this route knows no uuids."""
        filled = render(messages, images, None, with_uuid=False).messages
        body = {"model": self.model, "messages": filled}
        async with DeadlineWatch(self._clock, Deadlines(self._tokenize_s, self._tokenize_s)) as watch:
            try:
                told = await self._http.json("/tokenize", body, watch)
            except EngineUnreachable:
                self._lost()
                raise
        if not isinstance(told.get("count"), int):
            raise EngineServerError("the engine's answer has no count")
        return int(told["count"])

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
        await self._http.aclose()

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
            "body_bytes": self._http.sent_bytes,
            "state": self.state.value,
            "misses_in_a_row": self._circuit.misses,
            "last_answer_at": self._circuit.last_answer_at,
            "denied": self._circuit.denied,
            "images_held": len(ledger) if ledger else 0,
            "images_evicted": ledger.evicted if ledger else 0,
            "tokens": self.tokens.statistics(),
        }

    def _in_turn(self, request: ChatRequest) -> ChatRequest:
        if not self._priority:
            return request
        turn = round((self._wall() + request.behind_s) * PRIORITIES_PER_S)
        return replace(request, params={**request.params, "priority": turn})

    # --- one request -----------------------------------------------------------------------------------

    async def _with_fallback(
        self, request: ChatRequest, images: ImageBytes, watch: DeadlineWatch, run: Run
    ) -> AsyncGenerator[ChatEvent, None]:
        try:
            prompts = self.tokens.prompts(request)
        except Untranslatable as fault:
            prompts, run.fallback = None, why(fault)
        if prompts is not None and prompts.knows(request.window_name, request.messages):
            async with aclosing(self._by_ids(request, images, prompts, watch, run)) as events:
                async for event in events:
                    yield event
            if run.path:
                return
        sent = run.retries > 0  # what the engine made of ids is in doubt: nothing is taken for granted
        rendered = self._render(request, images, None if sent else self._ledger)
        try:
            async with aclosing(self._by_messages(request, rendered, prompts, watch, run)) as events:
                async for event in events:
                    yield event
            return
        except ImageNotHeld:
            if sent:
                raise
        except EngineServerError as failed:
            # A 500 can be an image that the engine's two caches disagree on; other 5xx come from proxies.
            if sent or run.status != 500 or not rendered.uuids:
                raise failed
        if self._ledger is not None:
            self._ledger.forget(rendered.uuids)
        run.retries += 1
        self._counts["retries"] += 1
        rendered = self._render(request, images, None)
        async with aclosing(self._by_messages(request, rendered, prompts, watch, run)) as events:
            async for event in events:
                yield event

    async def _by_ids(
        self, request: ChatRequest, images: ImageBytes, prompts: TokenPrompts, watch: DeadlineWatch, run: Run
    ) -> AsyncGenerator[ChatEvent, None]:
        """Sets ``run.path`` once it is clear that the answer is to this prompt; else the messages go."""
        assert self._ids is not None
        asked: ByIds | None = None
        try:
            asked = await self._ids.asked(request, prompts, watch)
            call = await self._ids.call(asked, images, watch)

            def counted(tokens: int) -> None:
                try:
                    asked.counted(tokens)
                except Mismatch:
                    if not run.times:
                        raise
                    run.lost_prompt = True  # counted at the end only: what was shown stands
                run.path = prompts.route.kind

            stream = ChatStream(spelled=prompts.route.spelled)
            async with aclosing(self._attempt(request, call, stream, watch, run, counted)) as events:
                async for event in events:
                    yield event
            self.tokens.answered()
        except FAULTS as fault:
            if run.times:
                raise
            run.path, run.fallback = "", why(fault)
            self.tokens.fault(run.fallback, counts=to_blame(fault))
            prompts.forget(request.window_name)
            if asked is not None:
                # What the engine made of the ids is in doubt: nothing is taken for granted.
                if self._ledger is not None:
                    self._ledger.forget(asked.prompt.images)
                run.retries += 1
                self._counts["retries"] += 1

    async def _by_messages(
        self,
        request: ChatRequest,
        rendered: Rendered,
        prompts: TokenPrompts | None,
        watch: DeadlineWatch,
        run: Run,
    ) -> AsyncGenerator[ChatEvent, None]:
        run.path = "uuids" if rendered.nulls else "payloads"
        learns = prompts is not None and not request.params.get("continue_final_message")
        call = Call(CHAT, self._body(request, rendered, learns=learns), rendered.uuids, rendered.least)
        stream = ChatStream()
        async with aclosing(self._attempt(request, call, stream, watch, run)) as events:
            async for event in events:
                if isinstance(event, Finished) and prompts is not None and stream.prompt_token_ids:
                    await self._learn(request, prompts, stream.prompt_token_ids, watch)
                yield event

    async def _learn(
        self, request: ChatRequest, prompts: TokenPrompts, ids: list[int], watch: DeadlineWatch
    ) -> None:
        assert self._ids is not None
        try:
            await self._ids.learn(request, prompts, ids, watch)
        except (Mismatch, EngineError) as fault:  # the answer is whole; its window goes on as messages
            self.tokens.fault(why(fault), counts=to_blame(fault))

    def _render(self, request: ChatRequest, images: ImageBytes, held: ImageLedger | None) -> Rendered:
        with_uuid = self._ledger is not None
        return render(request.messages, images, held, with_uuid=with_uuid, window=request.window)

    async def _attempt(
        self,
        request: ChatRequest,
        call: Call,
        stream: ChatStream,
        watch: DeadlineWatch,
        run: Run,
        counted: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[ChatEvent, None]:
        """``counted``: told the engine's count of the prompt's tokens before anything of the answer is."""
        run.body_bytes += len(call.body)
        parser = SseParser()
        entered = False
        response: aiohttp.ClientResponse | None = None
        try:
            response = await watch.guard(self._http.post(call.route, call.body, request, run))
            run.status = response.status
            if response.status != 200:
                text = await watch.guard(error_body(response.content))
                raise self._http.refused(response.status, message_of(text))
            while not stream.done and (chunk := await watch.guard(response.content.readany())):
                for payload in parser.feed(chunk):
                    delta = self._take(payload, stream, run)
                    if counted is not None and stream.usage is not None:
                        counted(int(stream.usage["prompt_tokens"]))
                        counted = None
                    if stream.accepted and self._ledger is not None and not entered:
                        # Taken by the engine, and not only by its front end: now it holds these images.
                        entered = True
                        self._ledger.sent(call.uuids)
                    if delta is not None:
                        watch.started()
                        run.times.append(self._clock.now())
                        yield delta
            run.ended_at = self._clock.now()
            if stream.done:
                # Only a response read to its very end leaves a connection that can be used again. The answer
                # is whole already, so nothing that goes wrong here matters to it.
                with suppress(EngineTimeout, aiohttp.ClientError):
                    await watch.guard(drain(response.content))
            if not stream.whole:
                raise aiohttp.ClientPayloadError("the stream ended early")
        except (aiohttp.ClientError, EventTooLarge) as broken:
            if run.times:
                raise EngineBroken(says(broken), stream.text) from broken
            raise EngineUnreachable(says(broken)) from broken
        finally:
            if response is not None:
                response.close()  # cuts the connection, unless the answer was read to its end
        self._circuit.answered()
        yield self._finished(call, stream, run)

    def _take(self, payload: bytes, stream: ChatStream, run: Run) -> Delta | None:
        try:
            return stream.take(payload)
        except EngineError as failed:
            if run.times:
                raise EngineBroken(failed.message, stream.text) from failed
            run.status = 500
            raise

    def _body(self, request: ChatRequest, rendered: Rendered, *, learns: bool) -> bytes:
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
        if learns:
            body["return_token_ids"] = True
        return orjson.dumps(body)

    def _finished(self, call: Call, stream: ChatStream, run: Run) -> Finished:
        usage = stream.usage or {}
        written = run.written_at or 0.0
        times = tuple((at - written) * 1000 for at in run.times)
        total_ms = (run.ended_at - written) * 1000
        prompt_tokens = int(usage.get("prompt_tokens") or 0)
        suspect = run.lost_prompt or prompt_tokens < call.least
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
            path=run.path,
            fallback=run.fallback,
        )

    def _lost(self, *, denied: bool = False) -> None:
        """Whoever answers next may be a new instance, and a new instance holds no images."""
        self._counts["lost"] += 1
        self._circuit.lost(denied=denied)
        self.tokens.lost()
        if self._ledger is not None:
            self._ledger.clear()


def _no_images(uuid: str) -> bytes:
    raise KeyError(uuid)
