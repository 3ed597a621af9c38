"""Recorded answers in place of the engine, the solvers and the summarizer; given out when a tape says so."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridges.engine import ChatEvent, ChatRequest, EngineServerError, ImageBytes
from bridges.solver import SolverAsk, SolverError
from bridges.summarizer import Written
from evals.runs.tape_reader import Moment, delta_of, error_of, finished_of
from orchestrator.replay_track import Outside


@dataclass(slots=True)
class Exchange:
    """One recorded request. ``came``: what was said to it so far, in the rerun."""

    purpose: str
    claimed: bool = False
    came: deque[Moment] = field(default_factory=deque)
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self) -> Moment:
        while not self.came:
            self.news.clear()
            await self.news.wait()
        return self.came.popleft()


class Desk:
    """Who answers in a rerun.

    A request gets the answer of the first recorded one with the same purpose that has none yet, whatever its
    words are: so a changed prompt is told, and what follows from it can still be seen. One that was never
    recorded is refused.

    :param beat: called at every sign of life
    """

    def __init__(self, moments: Sequence[Moment], beat: Callable[[], None]) -> None:
        self._beat = beat
        self._exchanges = {m.data["id"]: Exchange(m.data["purpose"]) for m in moments if m.what == "ask"}
        self._unclaimed: defaultdict[str, deque[Exchange]] = defaultdict(deque)
        for exchange in self._exchanges.values():
            self._unclaimed[exchange.purpose].append(exchange)
        self._wishes: defaultdict[str, deque[int]] = defaultdict(deque)
        self._grants: dict[int, asyncio.Event] = {}
        self._wished: set[int] = set()
        for moment in moments:
            if moment.what == "want":
                self._wishes[moment.data["kind"]].append(moment.data["id"])
                self._grants[moment.data["id"]] = asyncio.Event()

    def wants(self, kind: str) -> asyncio.Event | None:
        """A permit is asked for: what to wait for; ``None``: there was no such wish, and it is granted."""
        self._beat()
        if not self._wishes[kind]:
            return None
        wished = self._wishes[kind].popleft()
        self._wished.add(wished)
        return self._grants[wished]

    def wished(self, wanted: int) -> bool:
        """The recorded wish for a permit has come up in the rerun too."""
        return wanted in self._wished

    def grant(self, wanted: int) -> None:
        self._grants[wanted].set()

    def claimed(self, asked: int) -> bool:
        """The recorded request has been made in the rerun too."""
        return self._exchanges[asked].claimed

    def say(self, moment: Moment) -> None:
        """Give out a delta or an end."""
        exchange = self._exchanges[moment.data["id"]]
        exchange.came.append(moment)
        exchange.news.set()

    def waits_for(self, purpose: str) -> bool:
        """There is an answer left."""
        return bool(self._unclaimed[purpose])

    def claim(self, purpose: str) -> Exchange:
        """Raises ``EngineServerError`` where there is no answer."""
        self._beat()
        if not self._unclaimed[purpose]:
            raise EngineServerError(f"nothing was recorded for {purpose}")
        exchange = self._unclaimed[purpose].popleft()
        exchange.claimed = True
        return exchange

    def outside(self, *, solver: bool, summarizer: bool, images: bool) -> Outside:
        """Whom a session asks. ``images``: the summarizer took pictures."""
        return Outside(
            AnsweringEngine(self),
            GivenPermits(self),
            AnsweringSolver(self) if solver else None,
            AnsweringSummarizer(self, images) if summarizer else None,
        )


class AnsweringEngine:
    """A ``ChatEngine``."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncGenerator[ChatEvent, None]:
        exchange = self._desk.claim(request.purpose)
        while True:
            moment = await exchange.next()
            if moment.what == "delta":
                yield delta_of(moment.data)
            elif (finished := moment.data.get("finished")) is not None:
                yield finished_of(finished)
                return
            elif (error := moment.data.get("error")) is not None:
                raise error_of(error)
            # Else it was given up: whoever asked will give it up here too.

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        raise EngineServerError("counting tokens is not recorded")

    async def ping(self, timeout_s: float) -> bool:
        if not self._desk.waits_for("ping"):
            return False
        moment = await self._desk.claim("ping").next()
        return bool(moment.data["alive"])

    async def aclose(self) -> None:
        """Nothing is open."""


class GivenPermits:
    """``TickPermits``, given when they were given."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def live(self, session_id: str) -> None:
        await self.background(session_id, "live")

    async def background(self, session_id: str, kind: str, *, beside: bool = False) -> None:
        granted = self._desk.wants(kind)
        if granted is not None:
            await granted.wait()

    def read(self, session_id: str, kind: str) -> None:
        """Nobody waits for it."""

    def done(self, session_id: str, kind: str = "live") -> None:
        """Nobody waits for it."""


class AnsweringSolver:
    """A ``Solver``."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def solve(self, ask: SolverAsk) -> str:
        exchange = self._desk.claim("solve")
        while True:
            told = (await exchange.next()).data
            if "text" in told:
                return str(told["text"])
            if "error" in told:
                raise SolverError(told["error"]["code"], told["error"]["message"])


class AnsweringSummarizer:
    """A ``Summarizer``."""

    def __init__(self, desk: Desk, images: bool) -> None:
        self._desk = desk
        self.images = images

    @property
    def ready(self) -> bool:
        return self._desk.waits_for("write")

    async def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        max_tokens: int,
        images: ImageBytes,
    ) -> Written:
        exchange = self._desk.claim("write")
        while True:
            told = (await exchange.next()).data
            if "text" in told:
                return Written(told["text"], told["finish_reason"])
            if "error" in told:
                raise error_of(told["error"])
