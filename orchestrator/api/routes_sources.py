"""Sources: files and streams that the service reads into a session by itself."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

from orchestrator.api.access import Caller
from orchestrator.api.body import HeldBody, parse_object
from orchestrator.api.chat_request import checked_alias
from orchestrator.api.context import brought_home, caller_of, context_of, tenant_of
from orchestrator.api.personas import choose_persona
from orchestrator.api.routes_chat import chat_of
from orchestrator.api.schemas import ERRORS, SOURCE
from orchestrator.wire.errors import InvalidRequest

router = APIRouter(responses=ERRORS)

Tenant = Annotated[str, Depends(tenant_of)]


@router.post(
    "/v1/sessions/{session_id}/sources",
    openapi_extra=SOURCE,
    status_code=201,
    dependencies=[Depends(brought_home)],
)
async def add_source(
    request: Request, session_id: str, caller: Annotated[Caller, Depends(caller_of)]
) -> dict[str, Any]:
    """Have a file or a stream shown to the session, which begins with it if there is none of that name.

    A session that begins with a source does so once that has brought a picture; where it can't be had there
    is the error, and no session.
    """
    context, chat = context_of(request), chat_of(request)
    alias = checked_alias(session_id, "session_id")
    held = HeldBody(context.bodies, caller.sends)
    try:
        raw = await held.read(request, context.limits.body_bytes, context.limits.body_s)
    finally:
        held.release()
    wanted = parse_object(raw).get("source")
    if not isinstance(wanted, str) or not wanted.strip():
        raise InvalidRequest('name the source as {"source": "rtsp://..."}', param="source")
    wanted = wanted.strip()
    context.sources.allow(wanted)  # before a session begins with it
    caller.decides()
    session = context.registry.owned(caller.tenant, alias)
    if session is not None:
        return await context.sources.add(session, caller.tenant, wanted, caller.shows)
    choice = choose_persona(None, context.personas, context.languages)
    async with chat.begun(caller.tenant, alias, choice) as session:
        added = await context.sources.add(session, caller.tenant, wanted, caller.shows)
        await context.sources.begun(session, added["id"])
        return added


@router.get("/v1/sessions/{session_id}/sources", dependencies=[Depends(brought_home)])
async def sources(request: Request, session_id: str, tenant: Tenant) -> dict[str, Any]:
    """The session's sources, oldest first, and how far they are."""
    session = chat_of(request).existing(tenant, checked_alias(session_id, "session_id"))
    return {"object": "list", "data": context_of(request).sources.of(session)}


@router.get("/v1/sessions/{session_id}/sources/{source_id}", dependencies=[Depends(brought_home)])
async def source(request: Request, session_id: str, source_id: str, tenant: Tenant) -> dict[str, Any]:
    """One source: its state, what it has shown, left out and lost, and how far behind it is."""
    session = chat_of(request).existing(tenant, checked_alias(session_id, "session_id"))
    return context_of(request).sources.one(session, source_id)


@router.delete("/v1/sessions/{session_id}/sources/{source_id}", dependencies=[Depends(brought_home)])
async def remove_source(request: Request, session_id: str, source_id: str, tenant: Tenant) -> dict[str, Any]:
    """Stop a source. What it has shown stays in the session's memory."""
    session = chat_of(request).existing(tenant, checked_alias(session_id, "session_id"))
    await context_of(request).sources.remove(session, source_id)
    return {"id": source_id, "object": "session.source.deleted", "deleted": True}
