"""A replay session around a scripted engine object, on a clock that only tests move."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridges.engine import (
    ChatEvent,
    ChatRequest,
    Delta,
    EngineBroken,
    EngineError,
    EngineTimeout,
    Finished,
    ImageBytes,
)
from bridges.frames import CheckedFrame, FrameError
from memory.facts import AnyFact, parse_fact
from memory.plan import Limits
from memory.store.transient import TransientFrames
from orchestrator.backends.live_tick import LiveTick
from orchestrator.backends.replay.backend import ReplayBackend
from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.backends.replay.delegation import Solver
from orchestrator.backends.replay.intake import FrameCheck, Stored
from orchestrator.backends.replay.loop import GRACE_S
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.backends.replay.place import Settled
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.backends.summaries import Summarizer
from orchestrator.runtime.permits import Permits
from orchestrator.session.backend import (
    BackendOutput,
    Decision,
    SessionConfig,
    TextDelta,
    TickDone,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import Heard, QueryAsked, QueryCleared
from orchestrator.session.units import FrameInput, InputUnit
from prompts.pack import Pack
from tests.backends.replay.packs import JOYVL
from tests.fakes.clock import CountingIds, VirtualClock, settle

SILENCE = "</silence>"
FIRST = Fence(0, 0)
UNKNOWN = EngineLimits()
UNGATED = DecideOptions(gate=False)
CONFIG = SessionConfig(model="m")


@dataclass(frozen=True)
class Answer:
    """What the engine does with one request.

    ``error`` is raised before the first token, or after ``text`` when ``after`` is set; ``hang``: it never
    answers and the deadline passes; ``gate``: it waits for the event after its first delta.
    """

    text: str = SILENCE
    error: EngineError | None = None
    after: bool = False
    hang: bool = False
    delay_s: float = 0.0
    gate: asyncio.Event | None = None
    stop_token_id: int | None = None
    finish: str = "stop"
    prompt_tokens: int | None = None
    suspect: bool = False
    top_logprobs: tuple[Mapping[int, float], ...] = ()


@dataclass
class Asked:
    request: ChatRequest
    kind: str
    at: float
    ended: str | None = None

    @property
    def uuids(self) -> list[str]:
        return [
            part["uuid"]
            for message in self.request.messages
            if not isinstance(message["content"], str)
            for part in message["content"]
            if part["type"] == "image_url"
        ]

    @property
    def text(self) -> str:
        """All text of the last message."""
        content = self.request.messages[-1]["content"]
        if isinstance(content, str):
            return content
        return "".join(part.get("text", "") for part in content)


Script = Sequence[Answer | str] | Callable[[Asked], Answer | str]


class ScriptedChat:
    """``ChatEngine``: decisions follow ``script`` (its last answer for ever), summaries ``summaries``."""

    def __init__(self, clock: VirtualClock, script: Script = (SILENCE,), summaries: Script = ("All quiet.",)):
        self.script = script
        self.summaries = summaries
        self.prewarms: Script = (".",)
        self.alive = True
        self.pings = 0
        self.asked: list[Asked] = []
        self.live = 0
        self.most_live = 0
        self._clock = clock
        self._cached = 0

    def of(self, kind: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.kind == kind]

    @property
    def decisions(self) -> list[Asked]:
        return self.of("decide")

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]:
        most = request.params["max_tokens"]
        kind = "prewarm" if most == 1 else "decide" if most == JOYVL.decide.max_tokens else "summary"
        asked = Asked(request, kind, self._clock.now())
        self.asked.append(asked)
        for uuid in asked.uuids:
            images(uuid)
        script: Script = {"decide": self.script, "prewarm": self.prewarms}.get(kind, self.summaries)
        answer = self._answer(script, asked)
        if kind == "decide":
            self.live += 1
            self.most_live = max(self.most_live, self.live)
        try:
            async for event in self._events(asked, answer):
                yield event
            asked.ended = "finished"
        except GeneratorExit:
            asked.ended = "aborted"
            raise
        except asyncio.CancelledError:
            asked.ended = "aborted"
            raise
        finally:
            asked.ended = asked.ended or "failed"
            if kind == "decide":
                self.live -= 1

    def _answer(self, script: Script, asked: Asked) -> Answer:
        if callable(script):
            given = script(asked)
        else:
            index = len(self.of(asked.kind)) - 1
            given = script[min(index, len(script) - 1)]
        return Answer(given) if isinstance(given, str) else given

    async def _events(self, asked: Asked, answer: Answer) -> AsyncIterator[ChatEvent]:
        started = self._clock.now()
        if answer.hang:
            await self._clock.sleep(asked.request.deadlines.first_token_s)
            raise EngineTimeout("no token in time", "first_token")
        if answer.delay_s:
            await self._clock.sleep(answer.delay_s)
        if answer.error and not answer.after:
            raise answer.error
        first = self._clock.now()
        pieces = [answer.text[i : i + 3] for i in range(0, len(answer.text), 3)]
        for index, piece in enumerate(pieces):
            top = answer.top_logprobs[index : index + 1]
            yield Delta(piece, top_logprobs=top)
            if index == 4 and answer.gate is not None:
                await answer.gate.wait()
        if answer.error:
            raise answer.error
        prompt = answer.prompt_tokens or 100 + 256 * len(asked.uuids)
        yield Finished(
            finish_reason=answer.finish,
            prompt_tokens=prompt,
            completion_tokens=max(1, len(answer.text) // 4),
            cached_tokens=0,
            body_bytes=100,
            retries=0,
            ttft_ms=(first - started) * 1000,
            total_ms=(self._clock.now() - started) * 1000,
            stop_token_id=answer.stop_token_id,
            suspect=answer.suspect,
        )

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return 0

    async def ping(self, timeout_s: float) -> bool:
        self.pings += 1
        return self.alive

    async def aclose(self) -> None:
        pass


class Log:
    """``FactLog`` that keeps typed facts and how many of them were durable at each flush."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, Mapping[str, Any]]] = []
        self.durable = 0

    def append(self, kind: str, data: Mapping[str, Any]) -> int:
        assert parse_fact(kind, dict(data)) is not None
        self.entries.append((kind, data))
        return len(self.entries)

    async def flush(self, seq: int | None = None) -> None:
        self.durable = max(self.durable, len(self.entries) if seq is None else seq)

    @property
    def facts(self) -> list[AnyFact]:
        facts = [parse_fact(kind, dict(data)) for kind, data in self.entries]
        return [fact for fact in facts if fact is not None]

    def of(self, kind: str) -> list[Any]:
        return [fact for fact in self.facts if fact.kind == kind]


async def check(
    frames: Sequence[bytes], max_pixels: int, then: Callable[[Sequence[CheckedFrame]], Stored]
) -> Stored:
    """Frames are squares, as large as they may be."""
    for place, data in enumerate(frames):
        if data.startswith(b"bad"):
            error = FrameError("invalid_image", "the image is broken; send another")
            error.place = place
            raise error
    side = math.isqrt(max_pixels)
    return then([CheckedFrame(data, side, side, passed_through=True) for data in frames])


class Noting(Settled):
    """``lateness_s``: of each live tick, as the place is told."""

    def __init__(self, suspect_lane: asyncio.Lock) -> None:
        super().__init__(suspect_lane)
        self.lateness_s: list[float] = []

    def answered(self, tick: LiveTick) -> None:
        self.lateness_s.append(tick.lateness_s)


@dataclass
class Session:
    """A backend with everything around it. Frames are one second apart unless told otherwise."""

    script: Script = (SILENCE,)
    summaries: Script = ("All quiet.",)
    pack: Pack = JOYVL
    engine_limits: EngineLimits = UNKNOWN
    decide: DecideOptions = UNGATED
    window: Limits = field(default_factory=Limits)
    config: SessionConfig = CONFIG
    solver: Solver | None = None
    summarizer: Summarizer | None = None
    history: Sequence[AnyFact] = ()
    packs: Sequence[Pack] = ()
    frames: TransientFrames = field(default_factory=TransientFrames)
    stopped_by_us: Callable[[], bool] = lambda: False
    outputs_size: int = 256
    max_pixels: int | None = None
    read: bool = True
    check: FrameCheck = check
    neighbour: Session | None = None
    """Another session on the same engine."""

    def __post_init__(self) -> None:
        self.clock: VirtualClock = self.neighbour.clock if self.neighbour else VirtualClock()
        scripted = ScriptedChat(self.clock, self.script, self.summaries)
        self.engine: ScriptedChat = self.neighbour.engine if self.neighbour else scripted
        self.permits: Permits = self.neighbour.permits if self.neighbour else Permits(live=2)
        self.lane: asyncio.Lock = self.neighbour.lane if self.neighbour else asyncio.Lock()
        self.place = Noting(self.lane)
        self.log = Log()
        self.outputs: list[BackendOutput] = []
        self.fence = FIRST
        self.ms = -1000
        self.count = 0
        self.backend = ReplayBackend(
            "s1", self.pack, self.engine, self.frames, self.log, self.permits, self.clock, CountingIds(),
            self.check, ReplayOptions(
                tenant_key=b"key", engine=self.engine_limits, window=self.window, decide=self.decide,
                outputs=self.outputs_size, max_pixels=self.max_pixels,
            ),
            solver=self.solver, summarizer=self.summarizer, history=self.history, packs=self.packs,
            place=self.place, stopped_by_us=lambda: self.stopped_by_us(),
        )  # fmt: skip

    async def __aenter__(self) -> Session:
        await self.backend.open(self.config)
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.backend.close("test_over")
        if not self.read:
            self.read_on()
        await asyncio.wait_for(self._reader, 60)

    def read_on(self) -> None:
        self.read = True
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        if self.read:
            async for output in self.backend.outputs():
                self.outputs.append(output)

    # --- input ---

    async def frame(
        self,
        ms: int | None = None,
        *,
        data: bytes | None = None,
        frame_id: str | None = None,
        lossless: bool = False,
        run: bool = True,
    ) -> str:
        """Append one frame; returns its operation id."""
        self.ms = self.ms + 1000 if ms is None else ms
        self.count += 1
        operation_id = f"op{self.count}"
        data = b"jpeg %d" % self.ms if data is None else data
        unit = InputUnit((FrameInput(data, self.ms, frame_id or f"f{self.ms}"),), lossless=lossless)
        await self.backend.append(unit, self.fence, operation_id)
        if run:
            await settle()
        return operation_id

    async def run_frames(self, count: int, **arguments: Any) -> None:
        for _ in range(count):
            await self.frame(**arguments)

    async def ask(self, text: str, item_id: str = "q1", *, repeat_ok: bool = True, run: bool = True) -> None:
        await self.backend.tell(QueryAsked(text, item_id, repeat_ok), self.fence)
        if run:
            await self.clock.advance(GRACE_S)

    async def clear(self, item_id: str | None = None) -> None:
        await self.backend.tell(QueryCleared(item_id), self.fence)
        await self.clock.advance(GRACE_S)

    async def heard(self, text: str, *, complete: bool) -> None:
        await self.backend.tell(Heard("resp-1", text, complete), self.fence)
        await settle()

    async def create(self) -> None:
        self.fence = Fence(self.fence.epoch, self.fence.turn + 1)
        await self.backend.commit(self.fence, True)
        await settle()

    async def cancel(self) -> None:
        old, self.fence = self.fence, Fence(self.fence.epoch + 1, self.fence.turn)
        await self.backend.cancel(old, self.fence)
        await settle()

    # --- what came of it ---

    def of(self, kind: type[Any]) -> list[Any]:
        return [output for output in self.outputs if isinstance(output, kind)]

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        return [done.record for done in self.of(TickDone)]

    @property
    def reasons(self) -> list[str | None]:
        return [decision.reason for decision in self.of(Decision)]

    @property
    def spoken(self) -> str:
        return "".join(delta.text for delta in self.of(TextDelta))

    def answered_by(self, operation_id: str) -> TickDone | None:
        return next((done for done in self.of(TickDone) if operation_id in done.operations), None)


def broken(text: str = "") -> Answer:
    """The connection breaks after ``text``."""
    return Answer(text, error=EngineBroken("connection reset", text), after=True)
