"""Sessions of the known interaction servers: a chat completion for each frame, named by a header."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from uuid import uuid4

import aiohttp
import orjson

from evals.load.job import Job
from evals.load.session import Hears, LoadError, Refused, RequestSession

REFUSALS = frozenset({401, 403, 429, 503})
CONNECT_S = 5.0


class ChatSession(RequestSession):
    """``POST /v1/chat/completions`` with one picture; a new query rides with the frame after it.

    :param http: shared by the sessions of a process, so that connections are kept
    """

    def __init__(self, job: Job, hears: Hears, http: aiohttp.ClientSession) -> None:
        super().__init__(hears)
        self._job, self._http = job, http
        self._url = job.url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions"
        name = f"load-{uuid4().hex[:16]}"
        # Servers of this kind read one of these; both name the same session.
        self._headers = {"x-streaming-session": name, "x-session-id": name}
        if job.api_key:
            self._headers["authorization"] = f"Bearer {job.api_key}"
        self._known = False

    async def _request(self, picture: bytes, media_ms: int) -> None:
        url = "data:image/jpeg;base64," + base64.b64encode(picture).decode()
        content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}}]
        query, self.query = self.query, None
        if query is not None:
            content.insert(0, {"type": "text", "text": query})
        body: dict[str, Any] = {"messages": [{"role": "user", "content": content}]}
        if self._job.model:
            body["model"] = self._job.model
        begin, end = media_ms / 1000, media_ms / 1000 + self._job.period_s
        headers = {**self._headers, "x-frame-time-range": f"{begin:.1f}-{end:.1f}"}
        try:
            async with (
                asyncio.timeout(self._job.patience_s),
                self._http.post(self._url, json=body, headers=headers) as response,
            ):
                text = await response.read()
        except TimeoutError as late:
            self.query = query
            raise LoadError("no_answer") from late
        except aiohttp.ClientError as broken:
            self.query = query
            raise LoadError("connection_failed", str(broken)) from broken
        if response.status != 200:
            self.query = query
            code = _code(text, response.status)
            if not self._known and response.status in REFUSALS:
                raise Refused(code)
            raise LoadError(code)
        self._known = True


def _code(text: bytes, status: int) -> str:
    """What an answer gives as its reason, in whichever of the known shapes."""
    try:
        error = orjson.loads(text)["error"]
        return str(error["code"]) if isinstance(error, dict) else f"http_{status}"
    except (ValueError, LookupError, TypeError):
        return f"http_{status}"
