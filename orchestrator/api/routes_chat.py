"""``POST /v1/chat/completions``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

from orchestrator.api import sse
from orchestrator.api.access import Caller
from orchestrator.api.body import HeldBody, parse_object
from orchestrator.api.chat import Answer, Chat
from orchestrator.api.chat_request import ChatRequest, RequestBounds, parse_chat
from orchestrator.api.context import ApiContext, caller_of, context_of
from orchestrator.api.idempotency import input_of
from orchestrator.api.schemas import ANSWER, CHAT, ERRORS
from orchestrator.api.text_request import text_request
from orchestrator.wire.errors import EngineFault, Unsupported

router = APIRouter()


@router.post("/v1/chat/completions", openapi_extra=CHAT, responses={**ANSWER, **ERRORS})
async def chat_completions(request: Request, caller: Annotated[Caller, Depends(caller_of)]) -> Response:
    """Frames and a query for a session, answered by one decision; or plain text for the engine.

    The newest user message is the input: its images are frames, its text is a query. Name the session with
    `x-session-id`; without a name one is minted and returned. Text without image and name goes to the engine.
    """
    context = context_of(request)
    held = HeldBody(context.bodies, caller.sends)
    raw = await held.read(request, context.limits.body_bytes, context.limits.body_s)
    try:
        wanted = _parse(context, request, raw)
        if wanted.alias is None and not wanted.frames:
            caller.asks_engine()
            response = await _plain(context, caller.tenant, wanted)
        else:
            caller.decides()
            response = await _decided(request, context, caller.tenant, wanted, raw)
    except BaseException:
        held.release()
        raise
    if isinstance(response, StreamingResponse):
        response.body_iterator = _releasing(response.body_iterator, held)
    else:
        held.release()
    return response


def _parse(context: ApiContext, request: Request, raw: bytes) -> ChatRequest:
    limits = context.limits
    bounds = RequestBounds(limits.frames_per_request, limits.query_chars, context.period_ms / 1000)
    wanted = parse_chat(request.headers, parse_object(raw), bounds)
    chat_of(request).check_model(wanted.model)
    return wanted


async def _decided(
    request: Request, context: ApiContext, tenant: str, wanted: ChatRequest, raw: bytes
) -> Response:
    chat = chat_of(request)
    key = request.headers.get("idempotency-key", "").strip()
    input_id = input_of(tenant, key) if key else context.ids("in")
    # Without a name the session belongs to the request, so that its retry finds it again.
    alias = wanted.alias or f"session-{input_id.rpartition('_')[2]}"
    head = chat.new_head(input_id)
    words = sse.Words()

    async def work(retry: bool) -> Answer:
        on_text = words.put if wanted.stream else None
        return await chat.answer(tenant, alias, wanted, input_id, head, on_text, retry=retry)

    async def keyed() -> Answer:
        return await context.idempotency.run(tenant, key, alias.encode() + b"\n" + raw, work)

    # The work goes on when the client goes away: its input has been taken.
    task = chat.begin(keyed() if key else work(False))
    if not wanted.stream:
        result = await asyncio.shield(task)
        return JSONResponse(result.body, headers={"x-session-id": result.alias})
    await sse.first_sign(words, task)
    if task.done():
        head = task.result().head
    return StreamingResponse(
        sse.stream(head, words, task),
        media_type="text/event-stream",
        headers={"x-session-id": alias, **sse.SSE_HEADERS},
    )


async def _plain(context: ApiContext, tenant: str, wanted: ChatRequest) -> Response:
    texts = context.text_engine
    if texts is None:
        raise Unsupported(
            f"{context.model} takes no plain requests; open a session over /v1/realtime", code="realtime_only"
        )
    body = text_request(wanted.body, context.model, context.limits.frame_bytes)
    if not wanted.stream:
        reply: Mapping[str, Any] = await texts.complete(body, tenant)
        return JSONResponse(reply)
    events = texts.stream(body, tenant)
    # The engine's refusal comes before its first event, so it can still be an error of this request.
    first = await anext(events, None)
    if first is None:
        raise EngineFault("the engine answered with an empty stream")
    return StreamingResponse(_after(first, events), media_type="text/event-stream", headers=sse.SSE_HEADERS)


async def _after(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    try:
        async with aclosing(rest):
            yield first
            async for event in rest:
                yield event
    except Exception as error:
        yield sse.fault(error)


async def _releasing(events: Any, held: HeldBody) -> AsyncIterator[Any]:
    try:
        async for event in events:
            yield event
    finally:
        held.release()


def chat_of(request: Request) -> Chat:
    chat: Chat = request.app.state.chat
    return chat
