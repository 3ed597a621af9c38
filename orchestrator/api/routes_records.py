"""Sessions as records: listed, looked into, exported, deleted. Live ones and those that are only kept."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from orchestrator.api.chat_request import checked_alias
from orchestrator.api.context import SessionRecords, at_home, context_of, tenant_of
from orchestrator.api.schemas import ERRORS, EXPORT, SessionId

router = APIRouter(responses=ERRORS)

Tenant = Annotated[str, Depends(tenant_of)]
PAGE_MAX = 200


def _records(request: Request) -> SessionRecords:
    return context_of(request).sessions


@router.get("/v1/sessions")
async def sessions(
    request: Request,
    tenant: Tenant,
    limit: Annotated[int, Query(ge=1, le=PAGE_MAX)] = 50,
    after: str | None = None,
) -> dict[str, Any]:
    """The caller's own sessions, newest first. For the next page, `after` is the last id of this one."""
    return dict(await _records(request).page(tenant, limit, after))


@router.get("/v1/sessions/{session_id}", dependencies=[Depends(at_home)])
async def session(request: Request, session_id: SessionId, tenant: Tenant) -> dict[str, Any]:
    """State, configuration, counts, reuse, the last tick, and why it was silent how often.

    `session_id` is the server's id or the caller's own name of a session that is not over.
    """
    return dict(await _records(request).about(tenant, checked_alias(session_id, "session_id")))


@router.get("/v1/sessions/{session_id}/memory", dependencies=[Depends(at_home)])
async def memory(request: Request, session_id: SessionId, tenant: Tenant) -> dict[str, Any]:
    """What is remembered: every tier as text, with times (ms of media time) and token counts."""
    return dict(await _records(request).memory(tenant, checked_alias(session_id, "session_id")))


@router.get("/v1/sessions/{session_id}/plan", dependencies=[Depends(at_home)])
async def plan(request: Request, session_id: SessionId, tenant: Tenant) -> dict[str, Any]:
    """What the model would see now: sections with their bytes, and messages with pictures by uuid."""
    return dict(await _records(request).plan(tenant, checked_alias(session_id, "session_id")))


@router.get(
    "/v1/sessions/{session_id}/export",
    response_class=StreamingResponse,
    responses=EXPORT,
    dependencies=[Depends(at_home)],
)
async def export(request: Request, session_id: SessionId, tenant: Tenant) -> StreamingResponse:
    """The session as one tar: all facts and the frames that are still kept. No keys, no tokens."""
    found, parts = await _records(request).export(tenant, checked_alias(session_id, "session_id"))
    headers = {"content-disposition": f'attachment; filename="{found}.tar"', "cache-control": "no-store"}
    return StreamingResponse(parts, media_type="application/x-tar", headers=headers)


@router.delete("/v1/sessions/{session_id}", dependencies=[Depends(at_home)])
async def delete(request: Request, session_id: SessionId, tenant: Tenant) -> dict[str, Any]:
    """End the session and remove its log and frames; its name is free at once."""
    found = await _records(request).delete(tenant, checked_alias(session_id, "session_id"))
    return {"id": found, "object": "session.deleted", "deleted": True}
