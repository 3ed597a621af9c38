"""Short cuts for tests that talk to an engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from bridges.chat_engine import VllmChat
from bridges.engine import ChatRequest, Deadlines, Delta, Finished
from tests.fakes.pictures import jpeg


class Frames:
    """Bytes of frames by uuid; every uuid ``f<N>`` exists unless it was removed."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.asked: list[str] = []

    def __call__(self, uuid: str) -> bytes:
        self.asked.append(uuid)
        if uuid in self.gone:
            raise KeyError(uuid)
        return jpeg(int(uuid[1:]))


def user(*parts: str) -> dict[str, Any]:
    """A user message; a part ``f<N>`` is a frame, anything else is text."""
    content = [
        {"type": "image_url", "uuid": part}
        if part[:1] == "f" and part[1:].isdigit()
        else {"type": "text", "text": part}
        for part in parts
    ]
    return {"role": "user", "content": content}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def request(*messages: Mapping[str, Any], first: float = 30, total: float = 60, **params: Any) -> ChatRequest:
    session = params.pop("session", "s1")
    return ChatRequest(messages, {"max_tokens": 64, **params}, Deadlines(first, total), session)


async def ask(
    chat: VllmChat, asked: ChatRequest, frames: Frames | None = None
) -> tuple[list[Delta], Finished]:
    deltas: list[Delta] = []
    finished = None
    async with aclosing(chat.chat(asked, frames or Frames())) as events:
        async for event in events:
            if isinstance(event, Delta):
                deltas.append(event)
            else:
                assert finished is None
                finished = event
    assert finished is not None
    return deltas, finished


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


async def until(condition: Callable[[], bool]) -> None:
    """Yield to the loop until something real (a socket) has made ``condition`` true."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - nothing on the other side can set an event
            await asyncio.sleep(0.001)
