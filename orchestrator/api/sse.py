"""Server-sent events of one answer, and the bridge from streamed words to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson

from orchestrator.api.chat import Answer
from orchestrator.api.chat_reply import ReplyHead, chunk, last_chunk
from orchestrator.api.errors import as_vigil, openai_error

SSE_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE_S = 15.0
_KEEP_ALIVE = b": waiting\n\n"


def event(data: Any) -> bytes:
    return b"data: " + orjson.dumps(data) + b"\n\n"


def fault(error: Exception) -> bytes:
    """The end of a stream that broke."""
    known = as_vigil(error)
    return event({"error": {**openai_error(known), "status": known.http_status}}) + DONE


class Words:
    """Words that have come and not been written yet. Bounded by the length of one answer."""

    def __init__(self) -> None:
        self._pending: list[str] = []
        self._came = asyncio.Event()

    def put(self, text: str) -> None:
        self._pending.append(text)
        self._came.set()

    def take(self) -> str:
        text = "".join(self._pending)
        self._pending.clear()
        self._came.clear()
        return text

    async def wait(self) -> None:
        await self._came.wait()


async def first_sign(words: Words, answer: asyncio.Task[Answer]) -> None:
    """Return at the first word or at the answer; raises what ended the request before either."""
    came = asyncio.create_task(words.wait())
    try:
        await asyncio.wait((came, answer), return_when=asyncio.FIRST_COMPLETED)
    finally:
        came.cancel()
    if answer.done():
        answer.result()


async def stream(head: ReplyHead, words: Words, answer: asyncio.Task[Answer]) -> AsyncIterator[bytes]:
    """Role, words as they come, finish, one chunk with usage and interaction, ``[DONE]``.

    Words that came before a failure stay said: the stream then ends with an ``error`` event.
    """
    yield event(chunk(head, {"role": "assistant", "content": ""}))
    said = ""
    while not answer.done():
        came = asyncio.create_task(words.wait())
        try:
            await asyncio.wait((came, answer), return_when=asyncio.FIRST_COMPLETED, timeout=KEEP_ALIVE_S)
        finally:
            came.cancel()
        text = words.take()
        said += text
        if text:
            yield event(chunk(head, {"content": text}))
        elif not answer.done():
            yield _KEEP_ALIVE
    try:
        result = answer.result()
    except Exception as error:
        yield fault(error)
        return
    # The reader of events may be one step behind the answer itself.
    rest = result.text.removeprefix(said) if result.text.startswith(said) else ""
    if rest:
        yield event(chunk(head, {"content": rest}))
    yield event(chunk(head, {}, finish_reason=result.body["choices"][0]["finish_reason"]))
    yield event(last_chunk(head, result.body))
    yield DONE
