"""``GET /v1/sessions/{id}/events``: a session's facts as server-sent events, from any one on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from orchestrator.api.chat_request import checked_alias
from orchestrator.api.context import FactTail, at_home, context_of, tenant_of
from orchestrator.api.public_facts import checked_kinds, public_fact, selects
from orchestrator.api.schemas import ERRORS, EVENTS, SessionId
from orchestrator.api.sse import KEEP_ALIVE_S, SSE_HEADERS
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, VigilError

router = APIRouter(responses=ERRORS)

BEHIND_MAX = 2000
"""Facts that a reader of a live session may fall behind; it is then sent away and may come back."""

STALL_S = 30.0
"""How long a reader may take nothing at all."""

_ALIVE = b": alive\n\n"
_log = logging.getLogger(__name__)


class EventStream(StreamingResponse):
    """Counts the readers of each session, and gives up on one that takes nothing for ``STALL_S``."""

    def __init__(self, content: AsyncGenerator[bytes, None], readers: Counter[str], session_id: str) -> None:
        super().__init__(content, media_type="text/event-stream", headers=SSE_HEADERS)
        self._content = content
        self._readers = readers
        self._session_id = session_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            async with asyncio.timeout(STALL_S):
                await send(message)

        self._readers[self._session_id] += 1
        try:
            await super().__call__(scope, receive, patient)
        except TimeoutError:
            _log.info("a reader of events took nothing for %g s and was left", STALL_S)
        finally:
            await self._content.aclose()  # its tail waits no longer
            self._readers[self._session_id] -= 1
            if not self._readers[self._session_id]:
                del self._readers[self._session_id]


@router.get(
    "/v1/sessions/{session_id}/events",
    response_class=StreamingResponse,
    responses=EVENTS,
    dependencies=[Depends(at_home)],
)
async def events(
    request: Request,
    session_id: SessionId,
    tenant: Annotated[str, Depends(tenant_of)],
    after: Annotated[int | None, Query(ge=0)] = None,
    kinds: str = "",
    follow: bool = True,
) -> StreamingResponse:
    """Every fact after number `after` (or `Last-Event-ID`; default: all), then those that come.

    Each event is `{seq, at_ms, kind, session_id, data}` with its number as id. `kinds` selects by a
    comma-separated list; `response` stands for the ticks that said something. The last event is `end` with a
    `reason`: `session_closed`, `deleted`, `caught_up` (without `follow`), `shutdown` or `slow_reader`; after
    the last two, come back with `Last-Event-ID`.
    """
    context = context_of(request)
    name = checked_alias(session_id, "session_id")
    chosen = checked_kinds(kinds, "kinds")
    tail = await context.sessions.tail(tenant, name, _start(request, after), follow=follow)
    readers: Counter[str] = request.app.state.event_readers
    if readers[tail.session_id] >= context.limits.event_streams:
        raise ResourceExhausted(
            f"{context.limits.event_streams} readers of this session are connected; close one",
            code="too_many_readers",
            retry_after_s=5.0,
        )
    return EventStream(stream(tail, chosen), readers, tail.session_id)


def _start(request: Request, after: int | None) -> int:
    """A browser that reconnects names its last event in a header, its URL being the old one."""
    last = request.headers.get("last-event-id", "").strip()
    if not last:
        return after or 0
    if not (last.isascii() and last.isdigit() and len(last) < 19):
        raise InvalidRequest("Last-Event-ID is the number of a fact", param="last-event-id")
    return int(last)


async def stream(tail: FactTail, kinds: Collection[str]) -> AsyncGenerator[bytes, None]:
    # The first bytes tell the reader, and every proxy on the way, that the stream is open.
    yield _ALIVE
    reason = None
    try:
        async with aclosing(tail.pages(KEEP_ALIVE_S)) as pages:
            async for page in pages:
                chosen = [fact for fact in page if selects(kinds, fact.kind, fact.data)]
                yield b"".join(_event(tail.session_id, fact) for fact in chosen) or _ALIVE
                if tail.behind > BEHIND_MAX:
                    reason = "slow_reader"
                    break
    except VigilError as error:
        reason = error.code
    yield b"event: end\ndata: " + orjson.dumps({"reason": reason or tail.reason}) + b"\n\n"


def _event(session_id: str, fact: Any) -> bytes:
    data = {
        "seq": fact.seq,
        "at_ms": fact.at_ms,
        "kind": fact.kind,
        "session_id": session_id,
        "data": public_fact(fact.kind, fact.data),
    }
    return f"id: {fact.seq}\nevent: {fact.kind}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"
