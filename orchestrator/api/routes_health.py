"""Health, readiness, metrics and the model list."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from orchestrator.api.context import context_of, tenant_of
from orchestrator.api.errors import error_response
from orchestrator.api.metrics import CONTENT_TYPE
from orchestrator.api.schemas import ERRORS
from orchestrator.runtime.vocabulary import Capabilities
from orchestrator.wire.errors import EngineUnavailable, Forbidden

router = APIRouter()


@router.get("/health")
async def health(request: Request) -> dict[str, Any]:
    """This process runs; who speaks and hears for its model. Says nothing about the engine: see `/ready`."""
    context = context_of(request)
    sessions = context.registry.statistics()["open"]
    return {
        "status": "ok",
        "ok": True,
        "version": context.version,
        "model": context.model,
        "sessions": sessions,
        "voice": context.voice or None,
        "ears": context.capabilities.transcribes,
    }


@router.get("/ready", responses={503: ERRORS[503]})
async def ready(request: Request) -> Response:
    """The engine answered a real request lately, and new sessions are taken."""
    context = context_of(request)
    engine = context.engine_state()
    if context.registry.statistics()["draining"]:
        return error_response(EngineUnavailable("the server is shutting down", code="shutting_down"))
    if not engine.ready:
        return error_response(
            EngineUnavailable(engine.reason, code=f"engine_{engine.state}", retry_after_s=5.0)
        )
    return JSONResponse({"status": "ready", "engine": {"state": engine.state, "reason": engine.reason}})


@router.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request) -> Response:
    """Prometheus text format. No session ids, no texts; names of tenants for operators alone."""
    tenants = _operated(request)
    return Response(await context_of(request).metrics.scraped(tenants=tenants), media_type=CONTENT_TYPE)


def _operated(request: Request) -> bool:
    """An operator asks. Whoever shows no key is nobody; a wrong one is refused as anywhere."""
    context = context_of(request)
    if context.access.keys and "authorization" not in request.headers:
        return False
    try:
        return context.operates(context.access.admit(request).tenant)
    except Forbidden:
        return False


@router.get("/v1/models", responses={401: ERRORS[401]}, dependencies=[Depends(tenant_of)])
async def models(request: Request) -> dict[str, Any]:
    context = context_of(request)
    entry = {
        "id": context.model,
        "object": "model",
        "created": context.created,
        "owned_by": "vigil",
        "max_model_len": context.context_tokens,
        "chunk_period_ms": context.period_ms,
        "personas": sorted(context.personas),
        "languages": sorted(context.languages),
        "audio_input": _audio_input(context.capabilities),
        "audio_output": _audio_output(context.capabilities, context.defaults.modalities),
    }
    return {"object": "list", "data": [entry]}


def _audio_input(capabilities: Capabilities) -> dict[str, Any] | None:
    """What the model hears; `exact`: it must be sent so, otherwise any format and rate is converted."""
    if "audio" not in {*capabilities.required_input_modalities, *capabilities.optional_input_modalities}:
        return None
    exact = capabilities.exact_input
    return {
        "format": exact.codec.value if exact else "pcm16",
        "rate_hz": capabilities.input_rate_hz,
        "exact": exact is not None,
    }


def _audio_output(capabilities: Capabilities, modalities: tuple[str, ...]) -> dict[str, Any] | None:
    """Whether sessions can speak; `default`: those do that say nothing of `modalities`."""
    if "audio" not in capabilities.output_modalities:
        return None
    return {"default": "audio" in modalities}


Tenant = Annotated[str, Depends(tenant_of)]


@router.get("/v1/models/{model_id:path}", responses={401: ERRORS[401], 404: ERRORS[404]})
async def model(request: Request, model_id: str, tenant: Tenant) -> dict[str, Any]:
    request.app.state.chat.check_model(model_id)
    entry: dict[str, Any] = (await models(request))["data"][0]
    return entry
