"""The real route on a real port, in front of scripted backends: what native audio engines would do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

from fastapi import FastAPI

from evals.runs.service import InnerServer, listening
from orchestrator.api.body import BodyBudget
from orchestrator.api.context import ApiContext, EngineState, MemoryView, RealtimeLimits
from orchestrator.api.idempotency import Idempotency
from orchestrator.api.metrics import Metrics
from orchestrator.api.peer import OpenSockets
from orchestrator.api.quota import Quotas
from orchestrator.api.server import make_api
from orchestrator.api.ticks import TickStarts
from orchestrator.runtime.clock import system_ids
from orchestrator.runtime.parts import SessionParts
from orchestrator.runtime.registry import Registry, RegistryLimits, SessionSpec
from orchestrator.session.backend import Capabilities, SessionConfig
from orchestrator.session.fence import Fence
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import VigilError
from tests.api.doors import make_access
from tests.api.scripted import LIMITS, NoRecords, Texts
from tests.fakes.backend import ListLog, ScriptedBackend
from tests.fakes.duplex_engine import ScaledClock

MODEL = "scripted"
VOICE = Capabilities(
    chunk_period_ms=1000,
    optional_input_modalities=("audio", "video"),
    output_modalities=("text", "audio"),
    auto_response=False,
    holds_turn_input=True,
)
"""A model that hears and speaks; in turn mode its input waits for a commit."""


class Scripted:
    """``async with Scripted(VOICE) as server``; ``server.backend()`` is that of the newest session.

    :param prepare: told of each backend before its session opens
    """

    def __init__(
        self,
        capabilities: Capabilities = VOICE,
        *,
        limits: RegistryLimits | None = None,
        realtime: RealtimeLimits | None = None,
        prepare: Callable[[ScriptedBackend], None] = lambda _: None,
        check: Callable[[SessionConfig], VigilError | None] = lambda _: None,
        tenants: dict[str, str] | None = None,
        make: Callable[[Capabilities], ScriptedBackend] = ScriptedBackend,
        quotas: Quotas | None = None,
        origins: tuple[str, ...] = (),
        failed_logins: int | None = None,
    ) -> None:
        self.backends: list[ScriptedBackend] = []
        self.logs: list[ListLog] = []
        self.capabilities = capabilities
        self._prepare = prepare
        self._check = check
        self._make = make
        clock = ScaledClock()
        self.registry = Registry(self._build, clock, system_ids, limits=limits or RegistryLimits())
        self.context = ApiContext(
            version="0",
            model=MODEL,
            created=0,
            context_tokens=4096,
            period_ms=1000,
            frames_per_append=2,
            defaults=SessionConfig(MODEL),
            capabilities=capabilities,
            personas=frozenset({"default"}),
            languages=frozenset({"en"}),
            over_http=True,
            voice="",
            limits=LIMITS,
            realtime=realtime or RealtimeLimits(),
            registry=self.registry,
            clock=clock,
            ids=system_ids,
            ticks=TickStarts(),
            bodies=BodyBudget(4 * LIMITS.body_bytes),
            idempotency=Idempotency(4, 60.0, clock),
            metrics=Metrics(),
            text_engine=Texts(),
            fetch_image=None,
            access=make_access(tenants, quotas, origins, failed_logins, clock=clock),
            operates=lambda tenant: True,
            engines=NoRecords(),
            engine_state=lambda: EngineState(True, "ready", "answered lately"),
            memory_of=lambda _: MemoryView(),
            sessions=NoRecords(),
            sources=NoRecords(),
            sockets=OpenSockets(),
        )
        self.url: str
        self.server: InnerServer
        self._listening = AsyncExitStack()

    async def __aenter__(self) -> Scripted:
        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            yield

        service = listening(make_api(self.context, lifespan), self._drain, drain_s=5)
        self.server = await self._listening.enter_async_context(service)
        self.url = self.server.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for backend in self.backends:
            backend.free_all()
        await self._listening.aclose()

    def backend(self, index: int = -1) -> ScriptedBackend:
        return self.backends[index]

    def appended(self) -> list[InputUnit]:
        """The units that the newest session's backend was given."""
        return [call.arguments[0] for call in self.backend().calls if call.method == "append"]

    def heard(self) -> int:
        """Samples of those units."""
        return sum(len(unit.pcm or b"") // 4 for unit in self.appended())

    def asked(self) -> list[Fence]:
        """Fences of the replies that were asked of it."""
        return [c.arguments[0] for c in self.backend().calls if c.method == "commit" and c.arguments[1]]

    def statistics(self) -> dict[str, Any]:
        """Of the only session."""
        (session,) = self.registry.sessions()
        return session.statistics()

    def pending_bytes(self) -> int:
        """Input of the only session that its backend has not taken."""
        return int(str(self.statistics()["pending_input_bytes"]))

    async def _drain(self) -> None:
        await self.registry.drain(0.1)

    async def _build(self, spec: SessionSpec) -> SessionParts:
        if (refused := self._check(spec.config)) is not None:
            raise refused
        backend, log = self._make(self.capabilities), ListLog()
        self._prepare(backend)
        self.backends.append(backend)
        self.logs.append(log)
        return SessionParts(backend, log)


async def eventually(condition: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """Wait until the condition holds; what it gives."""
    async with asyncio.timeout(timeout_s):
        while not (value := condition()):  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.002)
    return value
