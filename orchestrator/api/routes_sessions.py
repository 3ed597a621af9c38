"""What can be done to a session besides showing it frames: reset, persona, standing query."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from orchestrator.api.access import Caller
from orchestrator.api.body import HeldBody, parse_object
from orchestrator.api.chat_request import asks_anew, checked_alias, persona_key, session_alias
from orchestrator.api.context import brought_home, caller_of, context_of
from orchestrator.api.errors import openai_error
from orchestrator.api.personas import choose_persona
from orchestrator.api.routes_chat import chat_of
from orchestrator.api.schemas import ERRORS, PERSONA, QUERY, RESET, SessionId
from orchestrator.wire.errors import InvalidRequest, TooLarge

router = APIRouter(responses=ERRORS)

By = Annotated[Caller, Depends(caller_of)]


async def _body(request: Request, caller: Caller, *, empty_ok: bool = False) -> dict[str, Any]:
    context = context_of(request)
    held = HeldBody(context.bodies, caller.sends)
    raw = await held.read(request, context.limits.body_bytes, context.limits.body_s)
    held.release()
    return parse_object(raw, empty_ok=empty_ok)


@router.post("/reset", openapi_extra=RESET, include_in_schema=False)
@router.post("/v1/streaming/reset", openapi_extra=RESET)
async def reset(request: Request, caller: By) -> dict[str, Any]:
    """End a session; its id is free at once. `removed` says whether there was one."""
    alias = session_alias(request.headers, await _body(request, caller, empty_ok=True))
    homes = context_of(request).homes
    if homes is not None and alias is not None:
        await homes.find(caller.tenant, alias)
    removed = alias is not None and await context_of(request).registry.reset(caller.tenant, alias)
    return {"status": "reset", "ok": True, "session_id": alias, "removed": removed}


@router.post("/v1/streaming/persona", openapi_extra=PERSONA)
async def persona(request: Request, caller: By) -> JSONResponse:
    """Set the persona of a session. `planned_tick` names the tick at which the model is told, within a few
    ticks; `null`: it is told from now on."""
    context, chat = context_of(request), chat_of(request)
    body = await _body(request, caller)
    alias = session_alias(request.headers, body)
    key = persona_key(request.headers, body)
    if key is None:
        raise InvalidRequest("name the persona", param="persona")
    try:
        choice = choose_persona(key, context.personas, context.languages)
    except InvalidRequest as error:
        refusal = {"status": "unknown_persona", "persona": key, "error": openai_error(error)}
        return JSONResponse(refusal, status_code=error.http_status)
    if alias is None:
        raise InvalidRequest(
            "name the session with x-session-id or session_id", code="session_id_required", param="session_id"
        )
    async with chat.begun(caller.tenant, alias, choice) as session:
        await chat.set_persona(session, choice)
    reply = {"status": "ok", "ok": True, "persona": choice.persona, "session_id": alias}
    return JSONResponse({**reply, "planned_tick": context.memory_of(session.id).planned_tick})


@router.post("/v1/sessions/{session_id}/attach-token", dependencies=[Depends(brought_home)])
async def attach_token(request: Request, session_id: str, caller: By) -> dict[str, Any]:
    """A secret with which one WebSocket joins the session; shown once, good once.

    The socket's first message is `session.resume` with the `session_id`, the `attach_token` as `resume_token`
    and `last_received_server_event_seq`. Whoever is attached is displaced.
    """
    session = chat_of(request).existing(caller.tenant, checked_alias(session_id, "session_id"))
    invitation = session.invite()
    return {
        "object": "session.attach_token",
        "session_id": session.id,
        "attach_token": invitation.token,
        "last_received_server_event_seq": invitation.last_seq,
    }


@router.put("/v1/sessions/{session_id}/query", openapi_extra=QUERY, dependencies=[Depends(brought_home)])
async def set_query(request: Request, session_id: SessionId, caller: By) -> dict[str, Any]:
    """Set or replace the standing query. The same text again changes nothing, unless `x-query-new: 1`."""
    context, chat = context_of(request), chat_of(request)
    alias = checked_alias(session_id, "session_id")
    text = (await _body(request, caller)).get("text")
    if not isinstance(text, str) or not (text := text.replace("\x00", "").strip()):
        raise InvalidRequest('send the query as {"text": "..."}', param="text")
    if len(text) > context.limits.query_chars:
        raise TooLarge(
            f"a query has at most {context.limits.query_chars} characters",
            code="query_too_long",
            param="text",
        )
    caller.decides()
    new = asks_anew(request.headers)
    session = context.registry.owned(caller.tenant, alias)
    if session is not None:
        await chat.ask(session, text, new=new)
    else:
        choice = choose_persona(None, context.personas, context.languages)
        async with chat.begun(caller.tenant, alias, choice) as session:
            await chat.ask(session, text, new=new)
    return {"status": "ok", "session_id": alias, "query": text}


@router.delete("/v1/sessions/{session_id}/query", dependencies=[Depends(brought_home)])
async def clear_query(request: Request, session_id: SessionId, caller: By) -> dict[str, Any]:
    """Clear the standing query."""
    chat = chat_of(request)
    alias = checked_alias(session_id, "session_id")
    await chat.clear(chat.existing(caller.tenant, alias))
    return {"status": "ok", "session_id": alias, "query": None}
