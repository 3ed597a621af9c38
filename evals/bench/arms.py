"""The ways to ask an engine about a growing window that the replay bench compares.

All send the very prompt that the session core planned for the tick, greedily, to the same engine:

- ``ours``: the whole tick through the session core: frame in, decision out; each frame travels once.
- ``ids``: the request alone, as ours: its prompt as token ids where the engine takes them.
- ``uuids``: the request alone, as messages with pictures by name, each of which travels once.
- ``resend``: every picture of the window again with every tick; the engine's prefix cache does its work.
- ``no_cache``: the same, with a ``cache_salt`` of its own for every request. Cached blocks are found by salt
  and content, so a salt never used before finds none: just what an engine started without prefix caching
  would do, but in the same process, on the same frames, moments apart.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridges.chat_engine import VllmChat
from bridges.engine import ChatEvent, ChatRequest, Deadlines, Finished, ImageBytes
from engine_launch import supervisor
from evals.bench.between import Between
from evals.load.pictures import commented
from orchestrator.engines.fleet import Judged

ARMS = ("ours", "ids", "uuids", "resend", "no_cache")
PATHS = ARMS[:3]
# Greedy, with no penalties: all give the same answer of the same length.
GREEDY: Mapping[str, Any] = {"temperature": 0.0}
SAMPLING = ("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "seed")
PATIENT = Deadlines(first_token_s=60.0, total_s=120.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it went to the engine, and where its pictures are."""

    request: ChatRequest
    images: ImageBytes


class Tap(Between):
    """Passes requests on, made greedy, and keeps the decisions among them for the rivals.

    A decision is what asks for at most ``max_tokens`` and more than one: prewarms ask for one, summaries
    for more.
    """

    def __init__(self, engine: Judged, max_tokens: int) -> None:
        super().__init__(engine)
        self._max_tokens = max_tokens
        self._asked: list[Asked] = []

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        kept = {name: value for name, value in request.params.items() if name not in SAMPLING}
        request = replace(request, params={**kept, **GREEDY})
        if 1 < int(request.params.get("max_tokens", 0)) <= self._max_tokens:
            self._asked.append(Asked(request, images))
        async with aclosing(super().chat(request, images)) as events:
            async for event in events:
                yield event

    def take(self) -> Asked:
        """The decision asked since the last call; there must be exactly one."""
        (asked,) = self._asked
        self._asked.clear()
        return asked


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured tick of one arm.

    :param ms: wall time, from the frame at hand to the decision complete
    :param front_ms: processor time of the engine's front end, which is what many sessions run short of first;
        ``None`` where it runs elsewhere
    """

    ms: float
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    body_bytes: int
    front_ms: float | None = None


class FrontEnd:
    """The processor time of an engine's front end, if its process is on this machine (Linux tells it)."""

    def __init__(self, url: str) -> None:
        running = supervisor.find_by_url(url)
        self._tasks = Path(f"/proc/{running.pid}/task") if running is not None else None

    def spent_ms(self) -> float | None:
        """By all of its threads so far."""
        if self._tasks is None:
            return None
        spent = 0
        for task in self._tasks.glob("*/schedstat"):
            with suppress(OSError):  # a thread that has just ended
                spent += int(task.read_text().split()[0])
        return spent / 1e6 or None

    def since(self, before: float | None) -> float | None:
        now = self.spent_ms()
        return None if now is None or before is None else now - before


class Rival:
    """A client that asks the engine by itself.

    The same pixels under another name for each: the engine knows pictures by their names or their bytes, and
    whoever asks second must not find the newest one prepared already.

    :param name: of the arm, written into its pictures as a comment
    :param salt: fixed, or ``None`` for a fresh one each time
    :param chat: how it asks; ``named``: pictures have names, which are its own then
    """

    def __init__(
        self, name: str, salt: str | None, chat: VllmChat, front: FrontEnd, *, named: bool = False
    ) -> None:
        self._chat = chat
        self._name = name
        self._salt = salt
        self._front = front
        self._named = named
        self._requests = 0
        self._pictures: dict[str, bytes] = {}

    async def ask(self, asked: Asked) -> Sample:
        self._requests += 1
        salt = self._salt or f"once-{time.time_ns()}-{self._requests}"
        request = replace(
            asked.request, params={**asked.request.params, "cache_salt": salt}, deadlines=PATIENT
        )
        mark = f"{self._name}." if self._named else ""
        if mark:
            request = replace(request, messages=[_renamed(message, mark) for message in request.messages])

        def own(uuid: str) -> bytes:
            if uuid not in self._pictures:
                self._pictures[uuid] = commented(asked.images(uuid.removeprefix(mark)), self._name)
            return self._pictures[uuid]

        spent, began = self._front.spent_ms(), time.perf_counter()
        finished: Finished | None = None
        async with aclosing(self._chat.chat(request, own)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    finished = event
        assert finished is not None
        return Sample(
            (time.perf_counter() - began) * 1000,
            finished.prompt_tokens,
            finished.cached_tokens or 0,
            finished.completion_tokens,
            finished.body_bytes,
            self._front.since(spent),
        )

    async def aclose(self) -> None:
        await self._chat.aclose()


def _renamed(message: Mapping[str, Any], mark: str) -> Mapping[str, Any]:
    if isinstance(message["content"], str):
        return message
    parts = [
        {**part, "uuid": mark + part["uuid"]} if part["type"] == "image_url" else part
        for part in message["content"]
    ]
    return {**message, "content": parts}
