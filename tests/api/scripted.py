"""The API over a real registry and real sessions, with a backend that answers every input by a script."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson

from bridges.tls import trusted
from orchestrator.api.body import BodyBudget
from orchestrator.api.context import ApiContext, ApiLimits, EngineState, MemoryView, RealtimeLimits
from orchestrator.api.idempotency import Idempotency
from orchestrator.api.metrics import Metrics
from orchestrator.api.peer import OpenSockets
from orchestrator.api.quota import Quota, Quotas
from orchestrator.api.server import make_api
from orchestrator.api.ticks import TickStarts
from orchestrator.runtime.clock import system_ids
from orchestrator.runtime.parts import SessionParts
from orchestrator.runtime.registry import Registry, RegistryLimits, SessionSpec
from orchestrator.session.backend import (
    Action,
    BackendOutput,
    Capabilities,
    Decision,
    SessionConfig,
    TextDelta,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact, QueryAsked, QueryCleared
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import NotFound
from tests.api.doors import make_access
from tests.fakes.backend import ListLog, ScriptedBackend, tick_done
from tests.fakes.duplex_engine import ScaledClock

CAPABILITIES = Capabilities(chunk_period_ms=1000, optional_input_modalities=("video",))
LIMITS = ApiLimits(
    body_bytes=200_000,
    frame_bytes=50_000,
    frames_per_request=4,
    query_chars=200,
    requests_per_session=4,
    body_s=60.0,
    request_s=60.0,
    event_streams=2,
)

Said = str | tuple[str, str]
Say = Callable[[str | None, list[int]], Said]
"""From the standing query and the media times of the new frames to the words, or ``("error", code)``."""


class AnsweringBackend(ScriptedBackend):
    """Answers each append and each asked query with one tick. Words go out in two deltas."""

    def __init__(self, say: Say) -> None:
        super().__init__(CAPABILITIES)
        self.say = say
        self.query: str | None = None
        self.times: list[int] = []
        self.frames: list[bytes] = []
        self.asked: list[str] = []
        self.configs: list[SessionConfig] = []
        self._tick = 0

    async def open(self, config: SessionConfig) -> None:
        self.configs.append(config)
        await super().open(config)

    async def update(self, config: SessionConfig) -> int | None:
        self.configs.append(config)
        return await super().update(config)

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        await super().append(unit, fence, operation_id)
        times = [frame.media_time_ms for frame in unit.frames]
        self.times += times
        self.frames += [frame.data for frame in unit.frames]
        self._answer(fence, operation_id, times)

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        await super().tell(fact, fence)
        if isinstance(fact, QueryAsked):
            self.query = fact.text
            self.asked.append(fact.text)
            self._answer(fence, fact.item_id, [])
        elif isinstance(fact, QueryCleared):
            self.query = None

    def _answer(self, fence: Fence, operation_id: str, times: list[int]) -> None:
        said = self.say(self.query, times)
        tick, self._tick = self._tick, self._tick + 1
        operations = (operation_id,)
        record: dict[str, Any] = {
            "media_time_s": times[-1] / 1000 if times else None,
            "frames": len(times),
            "chunk": 0,
            "prompt_tokens": 100,
            "cached_tokens": 64,
            "completion_tokens": 3,
            "latency_ms": 12.5,
            "status": "completed",
        }
        self.emit(TickStarted(fence, tick, operations))
        if isinstance(said, tuple):
            self.emit(tick_done(fence, tick, operations, said[1]))
        elif said:
            half = len(said) // 2
            self.emit(
                Decision(fence, tick, Action.RESPONSE, 0.9),
                TextDelta(fence, said[:half]),
                TextDelta(fence, said[half:]),
                TurnEnd(fence),
                tick_done(fence, tick, operations, action="response", text=said, score=0.9, **record),
            )
        else:
            self.emit(
                Decision(fence, tick, Action.SILENCE, 0.1, "model"),
                tick_done(fence, tick, operations, action="silence", reason="model", **record),
            )


class Texts:
    """Stands in for the engine's plain chat: records bodies, answers as told."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.error: Exception | None = None

    async def complete(self, body: Mapping[str, Any], tenant: str) -> Mapping[str, Any]:
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        return {"object": "chat.completion", "choices": [{"message": {"content": "plain"}}], "tenant": tenant}

    async def stream(self, body: Mapping[str, Any], tenant: str) -> AsyncGenerator[bytes, None]:
        self.bodies.append(body)
        if self.error is not None:
            raise self.error
        yield b'data: {"n":1}\n\n'
        yield b"data: [DONE]\n\n"


class NoRecords:
    """Stands in for the directory where no session is kept."""

    def __getattr__(self, name: str) -> Any:
        async def unknown(*_: Any, **__: Any) -> Any:
            raise NotFound("there is no session", code="unknown_session")

        return unknown


class Server:
    """One application. ``client`` speaks to it in process."""

    def __init__(
        self,
        say: Say = lambda query, times: "",
        *,
        limits: ApiLimits = LIMITS,
        max_sessions: int = 8,
        tenants: Mapping[str, str] | None = None,
        quota: Quota | None = None,
        origins: Sequence[str] = (),
        fetch: Any = None,
    ) -> None:
        self.backends: dict[str, AnsweringBackend] = {}
        self.say = say
        self.texts = Texts()
        self.engine = EngineState(True, "ready", "answered lately")
        self.ticks = TickStarts()
        self.metrics = Metrics()
        clock = ScaledClock()
        quotas = Quotas(quota or Quota())
        self.registry = Registry(
            self._build,
            clock,
            system_ids,
            limits=RegistryLimits(max_sessions=max_sessions, sessions_of=quotas.sessions_of),
        )
        self.context = ApiContext(
            version="0",
            model="scripted",
            created=0,
            context_tokens=4096,
            period_ms=1000,
            frames_per_append=2,
            defaults=SessionConfig("scripted", persona="default", language="en"),
            capabilities=CAPABILITIES,
            personas=frozenset({"default", "silent"}),
            languages=frozenset({"en", "zh"}),
            over_http=True,
            voice="",
            limits=limits,
            realtime=RealtimeLimits(),
            registry=self.registry,
            clock=clock,
            ids=system_ids,
            ticks=self.ticks,
            bodies=BodyBudget(4 * limits.body_bytes),
            idempotency=Idempotency(4, 60.0, clock),
            metrics=self.metrics,
            text_engine=self.texts,
            fetch_image=fetch,
            access=make_access(tenants, quotas, origins, clock=clock),
            operates=lambda tenant: True,
            engines=NoRecords(),
            engine_state=lambda: self.engine,
            memory_of=self._memory,
            sessions=NoRecords(),
            sources=NoRecords(),
            sockets=OpenSockets(),
        )
        self.app = make_api(self.context)
        self.client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, raise_app_exceptions=False),
            base_url="http://127.0.0.1",
            verify=trusted(),
        )

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        for backend in self.backends.values():
            backend.free_all()
        await self.client.aclose()
        await self.registry.drain(1.0)

    @property
    def backend(self) -> AnsweringBackend:
        """Of the only session."""
        (backend,) = self.backends.values()
        return backend

    async def chat(self, *parts: Any, **more: Any) -> httpx.Response:
        headers = more.pop("headers", {})
        content = [{"type": "text", "text": p} if isinstance(p, str) else p for p in parts]
        body = {"messages": [{"role": "user", "content": content}], **more}
        return await self.client.post("/v1/chat/completions", json=body, headers=headers)

    async def _build(self, spec: SessionSpec) -> SessionParts:
        backend = AnsweringBackend(lambda query, times: self.say(query, times))
        self.backends[spec.session_id] = backend
        return SessionParts(_Observed(backend, self), ListLog())

    def _memory(self, session_id: str) -> MemoryView:
        backend = self.backends[session_id]
        return MemoryView(("long",), ("mid",), backend.query, len(backend.times))


class _Observed:
    """What the composition root does: the board of starts and the metrics see each output first."""

    def __init__(self, backend: AnsweringBackend, server: Server) -> None:
        self._backend = backend
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        async for output in self._backend.outputs():
            if isinstance(output, TickStarted):
                self._server.ticks.started(output)
            self._server.metrics.observe(output, "local")
            yield output


def image(data: bytes = b"\xff\xd8jpeg") -> dict[str, Any]:
    url = "data:image/jpeg;base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def events(response: httpx.Response) -> list[Any]:
    """Payloads of a stream, ``[DONE]`` as a string."""
    payloads = [block.removeprefix("data: ") for block in response.text.strip().split("\n\n")]
    return [p if p == "[DONE]" else orjson.loads(p) for p in payloads if not p.startswith(":")]


def error(response: httpx.Response) -> dict[str, Any]:
    body = response.json()
    assert set(body["error"]) >= {"type", "code", "message", "param"}, body
    return dict(body["error"])
