"""Every refusal and fault in OpenAI's shape: ``{"error": {type, code, message, param?}}``."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from orchestrator.wire.errors import (
    Conflict,
    Elsewhere,
    EngineFault,
    EngineUnavailable,
    InvalidRequest,
    NotFound,
    ServerFault,
    StoreUnavailable,
    VigilError,
)

_log = logging.getLogger(__name__)


class MethodNotAllowed(InvalidRequest):
    default_code = "method_not_allowed"
    http_status = 405


class RequestTimeout(InvalidRequest):
    """The client took too long to send its request."""

    default_code = "request_timeout"
    http_status = 408
    retryable = True


def error_response(error: VigilError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    out = dict(headers or {})
    if error.retry_after_s is not None:
        out["retry-after"] = str(max(1, math.ceil(error.retry_after_s)))
    elif error.http_status in (429, 503):
        out["retry-after"] = "1"
    if error.http_status == 401:
        out["www-authenticate"] = "Bearer"
    return JSONResponse({"error": openai_error(error)}, status_code=error.http_status, headers=out)


def openai_error(error: VigilError) -> dict[str, Any]:
    """The ``error`` object; OpenAI's clients expect ``param`` to be there even when it is null."""
    return {"param": None, **error.body()}


_UNAVAILABLE = frozenset(
    {
        "engine_unavailable",
        "engine_unreachable",
        "engine_denied",
        "engine_timeout",
        "engine_broken",
        "restarted",
    }
)
_OVERLOADED = "engine_overloaded"
_REFUSED = frozenset(
    {
        "bad_image",
        "context_overflow",
        "engine_refused",
        "frame_quarantined",
        "frame_too_large",
        "image_missing",
        "invalid_image",
        "too_many_images",
        "unsupported_image",
    }
)
_ENDED = frozenset({"cancelled", "superseded", "session_closed"})


def tick_error(code: str) -> VigilError:
    """What an HTTP client is told when the tick that carried its input failed with ``code``."""
    if code in _UNAVAILABLE:
        text = "the engine does not answer; the input is kept and rides the next tick"
        return EngineUnavailable(text, code=code, retry_after_s=1.0)
    if code == _OVERLOADED:
        text = "the engine has no turn for this session now; the input is kept and rides the next tick"
        return EngineUnavailable(text, code=code, retry_after_s=1.0)
    if code == StoreUnavailable.default_code:
        text = "the store does not answer; the input is kept and rides the next tick"
        return StoreUnavailable(text, code=code, retry_after_s=1.0)
    if code in _REFUSED:
        return InvalidRequest(
            f"this input can't be shown to the model ({code}); send another frame", code=code
        )
    if code in _ENDED:
        return Conflict("the decision was cancelled; send a new frame", code=code)
    return EngineFault(f"the decision failed ({code}); the input is kept and rides the next tick", code=code)


def as_vigil(error: Exception) -> VigilError:
    """The error itself, or for a bug a typed fault that tells nothing of our insides."""
    if isinstance(error, VigilError):
        return error
    _log.error("unexpected error", exc_info=error)
    return ServerFault("an internal error; it was logged, a retry may succeed")


def install_error_handlers(
    app: FastAPI, forwarded: Callable[[Request, Elsewhere], Awaitable[Response]]
) -> None:
    """:param forwarded: has a request answered by the process that it belongs to"""

    async def on_vigil(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, VigilError)
        return error_response(error)

    async def on_elsewhere(request: Request, error: Exception) -> Response:
        assert isinstance(error, Elsewhere)
        try:
            return await forwarded(request, error)
        except VigilError as refused:
            return error_response(refused)

    async def on_http(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        if error.status_code == 404:
            return error_response(NotFound(f"there is no {request.method} {request.url.path} here"))
        if error.status_code == 405:
            refused = MethodNotAllowed(f"{request.url.path} does not take {request.method}")
            return error_response(refused, error.headers)
        other = (
            InvalidRequest(str(error.detail)) if error.status_code < 500 else ServerFault(str(error.detail))
        )
        response = error_response(other, error.headers)
        response.status_code = error.status_code
        return response

    async def on_validation(_: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return error_response(InvalidRequest(f"{where or 'request'}: {first['msg']}", param=where or None))

    async def on_bug(_: Request, error: Exception) -> JSONResponse:
        return error_response(as_vigil(error))

    app.add_exception_handler(VigilError, on_vigil)
    app.add_exception_handler(Elsewhere, on_elsewhere)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(RequestValidationError, on_validation)
    app.add_exception_handler(Exception, on_bug)
