"""Everything that the routes are given by the composition root: plain values, callables, the registry."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from fastapi import Depends
from starlette.requests import HTTPConnection

from orchestrator.api.access import Access, Caller
from orchestrator.api.body import BodyBudget
from orchestrator.api.chat_request import checked_alias
from orchestrator.api.forward import Forwarder
from orchestrator.api.idempotency import Idempotency
from orchestrator.api.images import FetchImage
from orchestrator.api.metrics import Metrics
from orchestrator.api.peer import OpenSockets
from orchestrator.api.ticks import TickStarts
from orchestrator.runtime.actor import Session
from orchestrator.runtime.registry import Registry
from orchestrator.runtime.vocabulary import Capabilities, Clock, Ids, SessionConfig


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Bounds of one request; sizes in bytes, times in seconds.

    :param event_streams: readers of one session's events at a time
    """

    body_bytes: int
    frame_bytes: int
    frames_per_request: int
    query_chars: int
    requests_per_session: int
    body_s: float
    request_s: float
    event_streams: int


@dataclass(frozen=True, slots=True)
class RealtimeLimits:
    """Bounds of one socket, in seconds.

    :param first_message_s: until a client that opened nothing by its address says what it wants
    :param write_s: that one event waits for its reader
    :param last_events_s: that a reader has for the rest once its session is over
    """

    first_message_s: float = 10.0
    write_s: float = 30.0
    last_events_s: float = 5.0


@dataclass(frozen=True, slots=True)
class EngineState:
    """:param ready: a real request was answered lately
    :param state: ``starting``, ``ready``, ``slow``, ``wedged``, ``dead`` or ``draining``
    :param reason: one sentence, for people
    """

    ready: bool
    state: str
    reason: str


class TextEngine(Protocol):
    """Plain chat without a session. Both raise ``VigilError``."""

    async def complete(self, body: Mapping[str, Any], tenant: str) -> Mapping[str, Any]: ...

    def stream(self, body: Mapping[str, Any], tenant: str) -> AsyncGenerator[bytes, None]:
        """Server-sent events as the engine writes them."""


@dataclass(frozen=True, slots=True)
class MemoryView:
    """A session's memory as text, oldest first.

    :param query: the standing query
    :param frames: frames the session has taken
    :param media_time_ms: capture time of the newest one
    :param planned_tick: the tick at which a change of settings shows, if one is still to come
    """

    long_term: tuple[str, ...] = ()
    summaries: tuple[str, ...] = ()
    query: str | None = None
    frames: int = 0
    media_time_ms: int | None = None
    planned_tick: int | None = None


class Fact(Protocol):
    """One entry of a session's log. ``at_ms``: Unix time."""

    @property
    def seq(self) -> int: ...
    @property
    def at_ms(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


class FactTail(Protocol):
    """One reader of a session's facts.

    ``behind``: facts it has fallen behind a live session; ``reason``: why the pages ended.
    """

    @property
    def session_id(self) -> str: ...
    @property
    def behind(self) -> int: ...
    @property
    def reason(self) -> str | None: ...

    def pages(self, idle_s: float) -> AsyncGenerator[Sequence[Fact], None]:
        """Facts as they come; an empty page when none came for ``idle_s`` seconds."""


class SessionRecords(Protocol):
    """Sessions of a tenant, live or kept, by id or by the tenant's own name. All raise ``VigilError``."""

    async def page(self, tenant: str, limit: int, after: str | None) -> Mapping[str, Any]: ...
    async def about(self, tenant: str, name: str) -> Mapping[str, Any]: ...
    async def memory(self, tenant: str, name: str) -> Mapping[str, Any]: ...
    async def plan(self, tenant: str, name: str) -> Mapping[str, Any]: ...
    async def export(self, tenant: str, name: str) -> tuple[str, AsyncIterator[bytes]]: ...
    async def delete(self, tenant: str, name: str) -> str: ...
    async def tail(self, tenant: str, name: str, after: int, *, follow: bool) -> FactTail: ...


class SessionSources(Protocol):
    """Files and streams that the service shows to a session. All raise ``VigilError``."""

    def allow(self, wanted: str) -> None:
        """Raises where ``add`` would not even open it."""

    async def add(
        self, session: Session, tenant: str, wanted: str, charge: Callable[[int], None]
    ) -> dict[str, Any]:
        """``charge``: told of each unit's bytes; by raising it keeps the unit out."""

    async def begun(self, session: Session, source_id: str) -> None:
        """Return when the source has brought something; raises what it failed of instead."""

    def of(self, session: Session) -> list[dict[str, Any]]: ...
    def one(self, session: Session, source_id: str) -> dict[str, Any]: ...
    async def remove(self, session: Session, source_id: str) -> None: ...


class Homes(Protocol):
    """Which process has a session, where several share the store."""

    @property
    def here(self) -> str:
        """The address of this process."""

    async def find(self, tenant: str, name: str) -> None:
        """Raises ``Elsewhere`` for a session of another process that lives."""

    async def bring(self, tenant: str, name: str) -> None:
        """The same; and a session that lost its process is taken up here."""

    async def settled(self, session_id: str, address: str) -> None:
        """Return when that process, which does not answer, has the session no longer."""


class Engines(Protocol):
    """Engines that are placed among, by name."""

    def statistics(self) -> Mapping[str, Mapping[str, Any]]: ...

    def drain(self, name: str, draining: bool = True) -> None:
        """Raises ``KeyError`` for an unknown engine."""

    async def add(self, url: str) -> str:
        """One engine more; its name. Raises ``VigilError``."""

    async def remove(self, name: str) -> None:
        """Raises ``KeyError`` for an unknown engine, ``VigilError`` where it can't be spared."""


@dataclass(frozen=True, slots=True)
class ApiContext:
    """:param model: the served model's name
    :param period_ms: the model's tick period
    :param defaults: configuration of a session that asks for nothing else
    :param capabilities: what sessions offer
    :param over_http: sessions can be driven by single requests; otherwise over sockets alone
    :param voice: who speaks for a model that only writes, for people; empty: nobody
    :param personas: known persona names; ``languages``: known languages
    :param access: who is let in
    :param operates: a tenant may see and drain the engines
    :param memory_of: the memory of a session by its id
    :param homes: of sessions, and ``forwarder``, where several processes share the store
    """

    version: str
    model: str
    created: int
    context_tokens: int
    period_ms: int
    frames_per_append: int
    defaults: SessionConfig
    capabilities: Capabilities
    personas: frozenset[str]
    languages: frozenset[str]
    over_http: bool
    voice: str
    limits: ApiLimits
    realtime: RealtimeLimits
    registry: Registry
    clock: Clock
    ids: Ids
    ticks: TickStarts
    bodies: BodyBudget
    idempotency: Idempotency
    metrics: Metrics
    text_engine: TextEngine | None
    fetch_image: FetchImage | None
    access: Access
    operates: Callable[[str], bool]
    engines: Engines
    engine_state: Callable[[], EngineState]
    memory_of: Callable[[str], MemoryView]
    sessions: SessionRecords
    sources: SessionSources
    sockets: OpenSockets
    homes: Homes | None = None
    forwarder: Forwarder | None = None


def context_of(connection: HTTPConnection) -> ApiContext:
    context: ApiContext = connection.app.state.vigil
    return context


async def caller_of(connection: HTTPConnection) -> Caller:
    """Who makes this request; refused if nobody that may."""
    return context_of(connection).access.admit(connection)


async def at_home(connection: HTTPConnection, caller: Annotated[Caller, Depends(caller_of)]) -> None:
    """The session that the path names is not another process's; see ``Homes.find``."""
    if (homes := context_of(connection).homes) is not None:
        await homes.find(caller.tenant, _named(connection))


async def brought_home(connection: HTTPConnection, caller: Annotated[Caller, Depends(caller_of)]) -> None:
    """The session that the path names is live here, if it is not over; see ``Homes.bring``."""
    context = context_of(connection)
    if context.homes is not None:
        await context.homes.bring(caller.tenant, _named(connection))
    else:
        await context.registry.bring(caller.tenant, _named(connection), context.defaults)


def _named(connection: HTTPConnection) -> str:
    return checked_alias(connection.path_params["session_id"], "session_id")


async def tenant_of(caller: Annotated[Caller, Depends(caller_of)]) -> str:
    return caller.tenant
