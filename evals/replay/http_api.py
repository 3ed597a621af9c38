"""Drives a running ``vigil serve`` over its chat-completions route, as any client would."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx
import orjson

from bridges.circuit import Backoff, Clock
from bridges.frames import FrameBounds
from bridges.sse import SseParser
from evals.replay.drive import PATIENCE_S, Frame, Sampling, Sink
from evals.replay.options import ReplayError
from evals.stats import COLUMNS
from orchestrator.exits import Exit

CONNECT_S = 5.0
ANSWER_S = 130.0
"""Longer than the server's own deadline for a request, so that its error is read, not ours."""
BOUNDS = FrameBounds(1, 512 * 512)
"""Frames are sent no larger than this; the server bounds them further where its model wants less."""
KEPT = frozenset(
    {"timeout", "engine_unavailable", "engine_unreachable", "engine_lost", "engine_wedged", "engine_timeout"}
)
"""Codes of a tick that failed for want of the engine: the server keeps the frame for its next tick."""


class Refused(Exception):
    """The server answered with an error. ``retry``: the same request may succeed later."""

    def __init__(self, status: int, error: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(error.get("code") or f"http_{status}")
        self.message = str(error.get("message") or f"the server answered {status}")
        super().__init__(self.message)

    @property
    def retry(self) -> bool:
        return self.status in (429, 503) and self.code not in KEPT


class HttpDrive:
    """One session of a server, named by a fresh alias.

    :param url: root of the server
    :param clock: for waiting between tries
    """

    transport = "http"

    def __init__(
        self, url: str, *, model: str | None, persona: str | None, api_key: str | None, clock: Clock
    ) -> None:
        self._model = model
        self._persona = persona
        self._clock = clock
        self._alias = f"replay-{secrets.token_hex(8)}"
        self._facts: dict[str, Any] = {"url": url}
        self._sink: Sink | None = None
        self._query: str | None = None
        self._requests = 0
        self._told = 0
        self._http = httpx.AsyncClient(
            base_url=url.rstrip("/"),
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            trust_env=False,
        )

    async def prepare(self) -> Sampling:
        try:
            response = await self._http.get("/v1/models")
            if response.status_code != 200:
                raise _fatal(_refusal(response.status_code, response.content))
            models = [entry for entry in response.json()["data"] if isinstance(entry, dict)]
        except httpx.HTTPError as broken:
            raise self._unreachable(broken) from broken
        except (ValueError, KeyError, TypeError):
            message = f"{self._http.base_url} answers, but not as a server of Vigil does"
            raise ReplayError(Exit.ENGINE_UNREACHABLE, "not_a_server", message) from None
        served = {str(entry.get("id")): entry for entry in models}
        if not served or (self._model is not None and self._model not in served):
            names = ", ".join(served) or "none"
            message = f"the server does not serve {self._model or 'a model'}; it serves: {names}"
            raise ReplayError(Exit.MODEL_MISSING, "model_not_found", message)
        self._model = self._model or next(iter(served))
        self._facts["model"] = self._model
        return Sampling(int(served[self._model].get("chunk_period_ms", 1000)), BOUNDS)

    def engine_facts(self) -> Mapping[str, Any]:
        return self._facts

    async def open(self, sink: Sink) -> None:
        self._sink = sink

    async def ask(self, text: str) -> None:
        self._query = text

    async def withdraw(self) -> None:
        self._query = None
        try:
            response = await self._http.delete(f"/v1/sessions/{self._alias}/query")
        except httpx.HTTPError as broken:
            raise self._unreachable(broken) from broken
        if response.status_code not in (200, 404):  # before its first frame the session is not there
            raise _fatal(_refusal(response.status_code, response.content))

    async def show(self, frame: Frame, *, lossless: bool) -> None:
        self._requests += 1
        self._told = 0
        content: list[dict[str, Any]] = [{"type": "text", "text": self._query}] if self._query else []
        url = "data:image/jpeg;base64," + base64.b64encode(frame.data).decode("ascii")
        content.append({"type": "image_url", "image_url": {"url": url}})
        body = {
            "model": self._model,
            "stream": True,
            "messages": [{"role": "user", "content": content}],
            "frame_time_ranges": [frame.media_time_ms / 1000],
        }
        # The key makes a retry after a broken connection harmless: the frame is taken once.
        headers = {"x-session-id": self._alias, "idempotency-key": f"{self._alias}-{self._requests}"}
        if self._persona is not None:
            headers["x-system-prompt-key"] = self._persona
        if self._query is not None:
            headers["x-query-new"] = "1"
        try:
            await self._until_answered(orjson.dumps(body), headers)
        except Refused as refused:
            if refused.code not in KEPT:
                raise _fatal(refused) from refused
            assert self._sink is not None
            self._sink.notice(refused.code, refused.message)
            if lossless:
                await self._until_ready()
        self._query = None

    async def settle(self) -> None:
        """The route answers requests alone: it tells nothing of a question's answer."""

    async def close(self) -> None:
        if self._sink is not None and not self._http.is_closed:
            # A server that can't be told forgets idle sessions by itself.
            with suppress(httpx.HTTPError):
                await self._http.post(
                    "/v1/streaming/reset", headers={"x-session-id": self._alias}, timeout=CONNECT_S
                )
        await self._http.aclose()

    async def _until_answered(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Send until it is answered, waiting in between where a retry can help."""
        end, backoff = self._clock.now() + PATIENCE_S, Backoff(self._clock)
        while True:
            try:
                return await self._request(body, headers)
            except Refused as refused:
                if not refused.retry or self._clock.now() > end:
                    raise
            except httpx.HTTPError as broken:
                if self._clock.now() > end:
                    raise self._unreachable(broken) from broken
            await backoff.wait()

    async def _request(self, body: bytes, headers: Mapping[str, str]) -> None:
        assert self._sink is not None
        parser = SseParser()
        reply: Mapping[str, Any] | None = None
        seen = 0
        headers = {"content-type": "application/json", **headers}
        async with self._http.stream(
            "POST", "/v1/chat/completions", content=body, headers=headers
        ) as response:
            if response.status_code != 200:
                raise _refusal(response.status_code, await response.aread())
            async for chunk in response.aiter_bytes():
                for payload in parser.feed(chunk):
                    if payload == b"[DONE]":
                        continue
                    event = orjson.loads(payload)
                    if "error" in event:
                        raise Refused(int(event["error"].get("status") or 502), event["error"])
                    for choice in event.get("choices", ()):
                        if text := (choice.get("delta") or {}).get("content"):
                            self._delta(seen, text)
                            seen += len(text)
                    if "interaction" in event:
                        reply = event
        if reply is None:
            raise httpx.RemoteProtocolError("the answer ended without its interaction block")
        self._sink.tick(_record(reply))

    def _delta(self, at: int, text: str) -> None:
        """Tell a piece that begins at character ``at`` of the answer; a retry tells nothing a second time."""
        assert self._sink is not None
        fresh = text[max(0, self._told - at) :]
        if fresh:
            self._told = at + len(text)
            self._sink.delta(fresh)

    async def _until_ready(self) -> None:
        """Wait until the server's engine answers again: a file has time."""
        end, backoff = self._clock.now() + PATIENCE_S, Backoff(self._clock)
        while self._clock.now() < end:
            with suppress(httpx.HTTPError):
                if (await self._http.get("/ready", timeout=CONNECT_S)).status_code == 200:
                    return
            await backoff.wait()
        raise ReplayError(
            Exit.ENGINE_UNREACHABLE, "engine_lost", f"the engine did not come back in {PATIENCE_S:g} s"
        )

    def _unreachable(self, broken: Exception) -> ReplayError:
        why = str(broken) or type(broken).__name__
        message = f"{self._http.base_url} does not answer ({why}); is vigil serve running there?"
        return ReplayError(Exit.ENGINE_UNREACHABLE, "server_unreachable", message)


def _refusal(status: int, body: bytes) -> Refused:
    try:
        error = orjson.loads(body)["error"]
        return Refused(status, error if isinstance(error, dict) else {})
    except (ValueError, KeyError, TypeError):
        return Refused(status, {})


def _fatal(refused: Refused) -> ReplayError:
    """What a refusal that no retry mends means for the run."""
    if refused.code == "model_not_found":
        code = Exit.MODEL_MISSING
    elif refused.status == 503:
        code = Exit.ENGINE_UNREACHABLE
    else:
        code = Exit.USAGE if refused.status in (400, 401, 403, 404) else Exit.FAILED
    return ReplayError(code, refused.code, refused.message)


def _record(reply: Mapping[str, Any]) -> dict[str, Any]:
    """The row of ``decisions.jsonl`` that a reply tells; columns the route does not carry stay empty."""
    told, usage = reply["interaction"], reply.get("usage") or {}
    record = {name: told.get(name) for name in COLUMNS}
    record["question"] = told.get("delegated_question")
    record["chunk"] = told.get("chunk_index")
    if not told.get("inference_skipped"):
        record["prompt_tokens"] = usage.get("prompt_tokens")
        record["completion_tokens"] = usage.get("completion_tokens")
        record["cached_tokens"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    return record
