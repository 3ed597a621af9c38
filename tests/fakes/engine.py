"""A scripted stand-in of stock vLLM behind a real socket.

It answers what its script says, and it accounts truly: prompt tokens, blocks of the prefix cache with
eviction, an image cache by uuid with eviction, the image limit, the context length. Faults are data. ::

    async with FakeEngine(script=["</silence>", "</response> A dog."]) as engine:
        chat = VllmChat(engine.url, engine.model)
        ...
        engine.faults.append(Fault(status=500, when=has_image(uuid)))
        assert engine.chats[-1].cached_tokens == ...

A request's ``kind`` is ``probe`` (one token: pings, prewarms; answered with a dot), ``summary`` (at least
``summary_tokens`` output tokens asked for; answered by ``summaries``) or ``decide`` (answered by ``script``).
``tick`` counts the answered ``decide`` requests of one ``x-session-id``.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from bridges.token_route import GENERATE
from tests.fakes.engine_front import (
    Refusal,
    check_length,
    image_key,
    image_parts,
    measure,
    parse_body,
    parse_ids,
)
from tests.fakes.engine_ids import BESIDE, beside, expanded
from tests.fakes.engine_output import (
    Generation,
    Output,
    Receive,
    Send,
    StreamWriter,
    error_body,
    event,
    reply,
    reply_json,
)
from tests.fakes.engine_script import Answer, Fault, Pace, Script, Seen, has_image, held_to, of_kind
from tests.fakes.engine_tokens import WIDTH, ImageCache, PrefixCache, Prompt, Tokenizer, image_pads, template

__all__ = ["GENERATE", "Answer", "FakeEngine", "Fault", "Pace", "Script", "Seen", "has_image", "of_kind"]


ANSWERED = ("/v1/chat/completions", GENERATE)


class ClientGone(Exception):
    pass


class FakeEngine:
    """
    :param script: answers of ``decide`` requests; ``summaries``: of summary requests
    :param image_tokens: tokens of every image, whose bytes then need not be a picture; ``None``: one per
        32x32 pixels of the decoded picture
    :param image_cache: images the processor cache holds
    :param kv_tokens: capacity of the prefix cache; ``prefix_cache=False``: it never hits
    :param bytes_per_token: 4 makes usual tags differ at their first token, 2 makes them share ``</``
    :param structured: ``structured_outputs`` are honoured; else they are ignored, as older engines do
    :param token_route: told to whoever asks what there is; it works in any case
    :param tags: texts that are single tokens
    :param cut: re-cut streams into pieces of so many bytes, anywhere
    :param keep_bytes: request bodies kept in ``requests``, oldest dropped first
    """

    def __init__(
        self,
        script: Script = ("</silence>",),
        *,
        summaries: Script = ("A short summary of what was seen.",),
        model: str = "stand-in",
        context_tokens: int = 32768,
        max_images: int = 256,
        image_tokens: int | None = None,
        image_cache: int = 2000,
        block: int = 32,
        kv_tokens: int | None = 400_000,
        prefix_cache: bool = True,
        structured: bool = True,
        reports_cached: bool = True,
        priority_scheduling: bool = True,
        token_route: bool = False,
        bytes_per_token: int = 4,
        tags: Sequence[str] = (),
        summary_tokens: int = 512,
        tokens_per_delta: int = 1,
        cut: int | None = None,
        pace: Pace = Pace(),  # noqa: B008 - immutable
        seed: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        now: Callable[[], float] = time.monotonic,
        keep_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self.script = script
        self.summaries = summaries
        self.model = model
        self.context_tokens = context_tokens
        self.max_images = max_images
        self.prefix_cache = prefix_cache
        self.structured = structured
        self.reports_cached = reports_cached
        self.priority_scheduling = priority_scheduling
        self.token_route = token_route
        self.tokenizer = Tokenizer(bytes_per_token, tags)
        self.kv = PrefixCache(block, kv_tokens)
        self.kv_tokens = kv_tokens
        self.image_cache = ImageCache(image_cache)
        self.pace = pace
        self.faults: list[Fault] = []
        self.requests: deque[Seen] = deque()
        self.ticks: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.running = 0
        self._image_tokens = image_tokens
        self._summary_tokens = summary_tokens
        self._tokens_per_delta = tokens_per_delta
        self._cut = cut
        self._seed = seed
        self._sleep = sleep
        self._now = now
        self._keep_bytes = keep_bytes
        self._kept_bytes = 0
        self._port = 0
        self._server: asyncio.Server | None = None
        self._state = ServerState()

    # --- life ------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def asked(self) -> list[Seen]:
        """Requests that were to be answered, by either route, oldest first."""
        return [seen for seen in self.requests if seen.path in ANSWERED]

    @property
    def chats(self) -> list[Seen]:
        """Chat requests, oldest first."""
        return [seen for seen in self.requests if seen.path == "/v1/chat/completions"]

    async def __aenter__(self) -> FakeEngine:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        tasks = list(self._state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def kill(self) -> None:
        """Die at once: no listener, every connection reset."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self._state.connections):
            connection.transport.abort()

    async def restart(self) -> None:
        """A new instance on the same port: its caches are empty."""
        self.kill()
        for _ in range(5):  # a start takes time: clients in this loop have seen their connections end
            await asyncio.sleep(0)
        self.kv.clear()
        self.image_cache.clear()
        await self._listen()

    async def _listen(self) -> None:
        config = uvicorn.Config(
            self, log_config=None, log_level="critical", access_log=False, lifespan="off", ws="none",
            interface="asgi3", proxy_headers=False, timeout_keep_alive=5,
        )  # fmt: skip
        config.load()
        self._state = ServerState()
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        state = self._state
        self._server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=state, app_state={}),  # type: ignore[call-arg]
            sock=listener,
            backlog=512,
        )

    # --- HTTP ------------------------------------------------------------------------------------------

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        path = scope["path"]
        try:
            if path in ANSWERED:
                await self._chat(await self._seen(scope, receive), scope, receive, send)
            elif path == "/tokenize":
                await self._tokenize(await self._seen(scope, receive), send)
            elif path == "/v1/models":
                card = {"id": self.model, "object": "model", "owned_by": "vllm", "root": self.model}
                await reply_json(
                    send, 200, {"object": "list", "data": [{**card, "max_model_len": self.context_tokens}]}
                )
            elif path in BESIDE and self.token_route:
                body = (await self._seen(scope, receive)).body
                await reply_json(send, 200, beside(self.tokenizer, path, body))
            elif path == "/version":
                await reply_json(send, 200, {"version": "0.32.0"})
            elif path == "/metrics":
                await reply(send, 200, self._metrics().encode(), b"text/plain; version=0.0.4; charset=utf-8")
            elif path == "/health":
                await reply(send, 200, b"", b"text/plain")
            else:
                await reply_json(send, 404, {"detail": "Not Found"})
        except ClientGone:
            return

    async def _seen(self, scope: dict[str, Any], receive: Receive) -> Seen:
        pieces = []
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            pieces.append(message.get("body", b""))
            more = message.get("more_body", False)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        seen = Seen(scope["path"], b"".join(pieces), headers, self._now(), seed=self._seed)
        session = headers.get("x-session-id", "")
        seen.session = "" if session.startswith("check-") else session  # a self-check is of no session
        seen.peer = scope["client"][1]
        self.requests.append(seen)
        self._kept_bytes += len(seen.body)
        while self._kept_bytes > self._keep_bytes and len(self.requests) > 1:
            self._kept_bytes -= len(self.requests.popleft().body)
        return seen

    async def _refuse(self, seen: Seen, send: Send, refusal: Refusal) -> None:
        seen.status = refusal.status
        seen.ended_at = self._now()
        await reply_json(send, refusal.status, error_body(refusal.status, refusal.message, refusal.param))

    async def _tokenize(self, seen: Seen, send: Send) -> None:
        try:
            body = parse_body(seen.body)
            prompt = self._prompt(seen, body, use_cache=False)
        except Refusal as refusal:
            await self._refuse(seen, send, refusal)
            return
        seen.status = 200
        ids = self.tokenizer.ids(prompt.shown)
        await reply_json(send, 200, {"count": len(ids), "max_model_len": self.context_tokens, "tokens": ids})

    async def _chat(self, seen: Seen, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        self.running += 1
        try:
            await self._answer(seen, scope, receive, send)
        except Refusal as refusal:
            await self._refuse(seen, send, refusal)
        except ClientGone:
            seen.disconnected = True
            raise
        finally:
            self.running -= 1
            seen.ended_at = self._now()

    async def _answer(self, seen: Seen, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = parse_ids(seen.body) if seen.path == GENERATE else parse_body(seen.body)
        self._classify(seen, body)
        fault = next((fault for fault in self.faults if fault.take(seen)), None) or Fault()
        if fault.die:
            self.kill()
        if fault.die or fault.drop:
            for connection in self._state.connections:
                if getattr(connection, "client", None) == scope["client"]:
                    connection.transport.abort()
            raise ClientGone
        if fault.status is not None and not fault.in_stream:
            raise Refusal(fault.status, fault.message)
        prompt = self._prompt(seen, body, use_cache=True)
        seen.prompt_tokens = len(prompt)
        seen.continued = prompt.continued
        check_length(seen, self.context_tokens)
        chain = self.kv.chain(prompt.tokens, body.get("cache_salt"))
        if self.prefix_cache:
            seen.cached_tokens = self.kv.cached(chain, seen.prompt_tokens)
        uncached = seen.prompt_tokens - seen.cached_tokens
        delay = fault.delay_s + self.pace.first_token_s + self.pace.per_uncached_token_s * uncached
        if fault.hang or delay:
            await self._pause(None if fault.hang else delay, receive)
        generation = self._generate(seen, body, prompt)
        # The last generated token was sampled but never computed.
        self.kv.keep(self.kv.chain(prompt.tokens + generation.tokens[:-WIDTH], body.get("cache_salt"), chain))
        self._account(seen, generation)
        out = Output(self.model, self.tokenizer, body, prompt, generation)
        if body.get("stream"):
            await self._stream(seen, fault, out, receive, send)
        else:
            seen.status = 200
            seen.first_token_at = self._now()
            await reply_json(send, 200, out.whole(self._usage(seen, fault)))

    def _account(self, seen: Seen, generation: Generation) -> None:
        seen.completion_tokens = len(generation.tokens) // WIDTH
        seen.text = generation.text
        if seen.kind == "decide":
            self.ticks[seen.session] += 1
        self.totals["queries"] += seen.prompt_tokens
        self.totals["hits"] += seen.cached_tokens
        self.totals["generated"] += seen.completion_tokens

    def _usage(self, seen: Seen, fault: Fault) -> dict[str, Any]:
        prompt = seen.prompt_tokens if fault.prompt_tokens is None else fault.prompt_tokens
        cached = seen.cached_tokens if fault.cached_tokens is None else fault.cached_tokens
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": seen.completion_tokens,
            "total_tokens": prompt + seen.completion_tokens,
        }
        if self.reports_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        return usage

    async def _stream(self, seen: Seen, fault: Fault, out: Output, receive: Receive, send: Send) -> None:
        seen.status = 200
        writer = StreamWriter(send, self._cut)
        await writer.start()
        if not out.by_ids:
            await writer.write(out.role())
        if fault.status is not None:
            await writer.write(event(error_body(fault.status, fault.message)))
            await writer.end()
            return
        along = self._usage(seen, fault) if out.counts_along else None
        for sent, delta in enumerate(out.deltas(self._tokens_per_delta, along)):
            if sent == fault.stall_after:
                await self._pause(fault.stall_s, receive)
            if sent == fault.cut_after:
                # Raising inside a started response makes the server close the connection.
                raise ConnectionAbortedError
            if sent and self.pace.per_token_s:
                await self._pause(self.pace.per_token_s * self._tokens_per_delta, receive)
            if seen.first_token_at is None:
                seen.first_token_at = self._now()
            await writer.write(delta)
        if fault.cut_after is not None:
            raise ConnectionAbortedError
        if out.wants_usage and not fault.no_usage:
            await writer.write(out.usage_event(self._usage(seen, fault)))
        await writer.write(b"data: [DONE]\n\n")
        await writer.end()

    async def _pause(self, seconds: float | None, receive: Receive) -> None:
        """Wait through the injected sleep (``None``: for ever), but not longer than the client does."""

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        async def timer(seconds: float) -> None:
            await self._sleep(seconds)

        left = asyncio.create_task(gone())
        waits = {left} if seconds is None else {left, asyncio.create_task(timer(seconds))}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        if left in done:
            raise ClientGone

    # --- the model ------------------------------------------------------------------------------------

    def _classify(self, seen: Seen, body: Mapping[str, Any]) -> None:
        most = body.get("max_completion_tokens") or body.get("max_tokens") or 256
        seen.kind = "probe" if most == 1 else "summary" if most >= self._summary_tokens else "decide"
        seen.tick = self.ticks[seen.session]
        parts = list(image_parts(body))
        seen.images = tuple(image_key(part) for part in parts)
        seen.payloads = tuple(image_key(part) for part in parts if part.get("image_url"))

    def _prompt(self, seen: Seen, body: Mapping[str, Any], *, use_cache: bool) -> Prompt:
        """The checks of the front end in its order: parameters, image limit, pictures, cache."""
        if body.get("model") not in (None, self.model):
            raise Refusal(404, f"The model `{body['model']}` does not exist.", "model")
        if body.get("cache_salt") == "":
            raise Refusal(400, "Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
        if body.get("priority") and not self.priority_scheduling:
            raise Refusal(400, "Got priority 1 but Priority scheduling is not enabled.")
        if body.get("continue_final_message") and body.get("add_generation_prompt", True):
            raise Refusal(
                400, "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
            )
        parts = list(image_parts(body))
        if len(parts) > self.max_images:
            raise Refusal(
                400,
                f"At most {self.max_images} image(s) may be provided in one prompt. (parameter=image)",
                "image",
            )
        sizes: dict[str, int] = {}
        for index, part in enumerate(parts):
            key = image_key(part)
            if use_cache and key in self.image_cache:
                sizes[key] = self.image_cache.tokens(key)
            elif part.get("image_url"):
                sizes[key] = measure(part["image_url"]["url"], self._image_tokens)
            elif key not in sizes:
                raise Refusal(400, f"Cache miss for image at index {index} but data is not provided.")
        if use_cache:
            for part in parts:
                self.image_cache.use(image_key(part), sizes[image_key(part)])
        pads = [image_pads(key := image_key(part), sizes[key]) for part in parts]
        if "token_ids" in body:
            return expanded(self.tokenizer, body, pads)
        given = iter(pads)
        return template(self.tokenizer, body, lambda _part: next(given))

    def _generate(self, seen: Seen, body: Mapping[str, Any], prompt: Prompt) -> Generation:
        if allowed := body.get("allowed_token_ids"):
            answer = Answer(self.tokenizer.decode(allowed[0].to_bytes(WIDTH, "big")).decode())
        elif seen.kind == "probe":
            answer = Answer(".")
        else:
            script = self.script if seen.kind == "decide" else self.summaries
            said = script(seen) if callable(script) else script[seen.tick % len(script)]
            answer = said if isinstance(said, Answer) else Answer(said)
            if self.structured and (held := body.get("structured_outputs")):
                answer = held_to(held["regex"], answer)
        return Generation.run(self.tokenizer, answer, body, prompt, self.context_tokens)

    # --- metrics --------------------------------------------------------------------------------------

    def _metrics(self) -> str:
        label = f'{{engine="0",model_name="{self.model}"}}'
        block, total = self.kv.block, self.kv_tokens or 10_000_000
        values = {
            "num_requests_running": ("gauge", self.running),
            "num_requests_waiting": ("gauge", 0),
            "kv_cache_usage_perc": ("gauge", min(1.0, len(self.kv) * block / total)),
            "prefix_cache_queries_total": ("counter", self.totals["queries"]),
            "prefix_cache_hits_total": ("counter", self.totals["hits"]),
            "mm_cache_queries_total": ("counter", self.image_cache.queries),
            "mm_cache_hits_total": ("counter", self.image_cache.hits),
            "num_preemptions_total": ("counter", 0),
            "generation_tokens_total": ("counter", self.totals["generated"]),
        }
        lines = []
        for name, (kind, value) in values.items():
            lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{label} {float(value)}"]
        facts = f'block_size="{block}",kv_cache_size_tokens="{total}",num_gpu_blocks="{total // block}"'
        lines += ["# TYPE vllm:cache_config_info gauge", f"vllm:cache_config_info{{{facts}}} 1.0"]
        return "\n".join(lines) + "\n"
