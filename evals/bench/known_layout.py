"""Clients of the known layout, straight at an engine; a generator: ``python -m evals.bench.known_layout``.

What the known orchestrators send at each tick: a system prompt, the standing query glued to the first frame's
turn, then a turn of time tag and picture and the model's own words for each frame so far. A window that is
full is dropped at once. They are given what makes a comparison fair: connections are kept, the head never
changes within a window, nothing is summarised, and frames before the query are recorded without asking.

- ``resend``: every picture of the window again with every tick
- ``uuid``: each picture once; after that its name
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from bridges.chat_engine import VllmChat
from bridges.engine import ChatRequest, Deadlines, Delta, EngineError
from evals.load.generator import Shape, main
from evals.load.heads import head
from evals.load.job import Job
from evals.load.session import Hears, LoadError, LoadSession, Opener, RequestSession

CONNECTIONS = 4096


class LayoutSession(RequestSession):
    """One session. The job's ``extra`` has ``system``, ``silence`` (tag), ``window`` (frames), ``params`` and
    ``engines``: addresses over which sessions are spread, as a router does that pins them."""

    def __init__(self, job: Job, number: int, hears: Hears, chat: VllmChat) -> None:
        super().__init__(hears)
        self._chat, self._job = chat, job
        self._system = "\n\n".join(
            text for text in (job.extra["system"], head(job.mark, number, job.head)) if text
        )
        self._turns: list[dict[str, Any]] = []
        self._images: dict[str, bytes] = {}

    async def _request(self, picture: bytes, media_ms: int) -> None:
        extra = self._job.extra
        if len(self._images) == extra["window"]:
            self._turns, self._images = [], {}
        uuid = hashlib.sha256(picture).hexdigest()
        self._images[uuid] = picture
        tag = {"type": "text", "text": f"<{media_ms / 1000:.1f} seconds>"}
        turn = {"role": "user", "content": [tag, {"type": "image_url", "uuid": uuid}]}
        if self.query is None:
            self._turns += [turn, {"role": "assistant", "content": extra["silence"]}]
            return
        try:
            said = await self._answer([*self._turns, turn])
        except EngineError as failed:
            del self._images[uuid]
            raise LoadError(failed.code, failed.message) from failed
        self._turns += [turn, {"role": "assistant", "content": said or extra["silence"]}]

    async def _answer(self, turns: list[dict[str, Any]]) -> str:
        extra, patience = self._job.extra, self._job.patience_s
        first = {**turns[0], "content": [{"type": "text", "text": self.query}, *turns[0]["content"]]}
        request = ChatRequest(
            messages=[{"role": "system", "content": self._system}, first, *turns[1:]],
            params=extra["params"],
            deadlines=Deadlines(patience, patience),
        )
        said = ""
        async with aclosing(self._chat.chat(request, self._images.__getitem__)) as events:
            async for event in events:
                if isinstance(event, Delta):
                    said += event.text
        return said


def _shape(*, uuid_parts: bool) -> Shape:
    @asynccontextmanager
    async def shape(job: Job) -> AsyncIterator[Opener]:
        chats = [
            VllmChat(
                engine,
                job.model or "",
                uuid_parts=uuid_parts,
                held_images=job.extra["held_images"],
                max_connections=CONNECTIONS,
            )
            for engine in job.extra["engines"]
        ]

        def opener(number: int, hears: Hears) -> LoadSession:
            return LayoutSession(job, number, hears, chats[number % len(chats)])

        try:
            yield opener
        finally:
            await asyncio.gather(*(chat.aclose() for chat in chats))

    return shape


SHAPES = {"resend": _shape(uuid_parts=False), "uuid": _shape(uuid_parts=True)}

if __name__ == "__main__":
    main(SHAPES)
