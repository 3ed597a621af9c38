"""The error tree. Every error a client can see is one of these and has a stable ``code``.

::

    VigilError                      code, message, error_type, http_status, retryable
    |- InvalidRequest               400  the client must change the request
    |  |- NotFound                  404
    |  |- Conflict                  409
    |  |- TooLarge                  413
    |  `- Unsupported               400  a feature this session or build does not offer
    |- Unauthenticated              401
    |- Forbidden                    403
    |- ResourceExhausted            429  admission, quota or backpressure; carries retry_after_s
    `- ServerFault                  500
       |- StoreUnavailable          503  sessions can't be kept or read now; carries retry_after_s
       |- Elsewhere                 503  another process has the session, and can't be asked now
       |- EngineUnavailable         503  unreachable, lost or wedged; carries retry_after_s
       `- EngineFault               502  the engine answered with an error we could not mend

The ``code`` is the contract; messages say what to change and may be reworded at any time.
"""

from __future__ import annotations

from typing import Any, ClassVar

MAX_SAID_CHARS = 500
"""Of a message or a path: they quote what a client sent, and an error has to stay small."""


class VigilError(Exception):
    """Base of every error told to a client.

    :param message: what went wrong and what to change, in one sentence
    :param code: stable machine-readable code; the class default when omitted
    :param param: dotted path of the offending field, if there is one
    :param event_id: the client's own ``event_id`` of the command at fault (realtime sockets only)
    :param retry_after_s: seconds after which a retry may succeed
    """

    default_code: ClassVar[str] = "internal_error"
    error_type: ClassVar[str] = "server_error"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        event_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.param = param
        self.event_id = event_id
        self.retry_after_s = retry_after_s

    def body(self) -> dict[str, Any]:
        """The OpenAI-shaped ``error`` object: type, code, message, and param/event_id/retryable if set."""
        out: dict[str, Any] = {"type": self.error_type, "code": self.code}
        out["message"] = _short(self.message)
        if self.param is not None:
            out["param"] = _short(self.param)
        if self.event_id is not None:
            out["event_id"] = self.event_id
        if self.retryable:
            out["retryable"] = True
        return out


def _short(text: str) -> str:
    return text if len(text) <= MAX_SAID_CHARS else f"{text[: MAX_SAID_CHARS - 1]}…"


class InvalidRequest(VigilError):
    default_code = "invalid_request"
    error_type = "invalid_request_error"
    http_status = 400


class NotFound(InvalidRequest):
    default_code = "not_found"
    http_status = 404


class Conflict(InvalidRequest):
    default_code = "conflict"
    http_status = 409


class TooLarge(InvalidRequest):
    default_code = "event_too_large"
    http_status = 413


class Unsupported(InvalidRequest):
    default_code = "unsupported"


class Unauthenticated(VigilError):
    default_code = "invalid_api_key"
    error_type = "authentication_error"
    http_status = 401


class Forbidden(VigilError):
    default_code = "forbidden"
    error_type = "permission_error"
    http_status = 403


class ResourceExhausted(VigilError):
    default_code = "resource_exhausted"
    error_type = "rate_limit_error"
    http_status = 429
    retryable = True


class ServerFault(VigilError):
    pass


class StoreUnavailable(ServerFault):
    default_code = "store_unavailable"
    http_status = 503
    retryable = True


class Elsewhere(ServerFault):
    """:param session_id: the session's id; ``address``: root of the process that owns it

    A client hears of it only when that process can't be asked on its behalf.
    """

    default_code = "session_elsewhere"
    http_status = 503
    retryable = True

    def __init__(self, session_id: str, address: str) -> None:
        super().__init__("another process has this session and does not answer; try again", retry_after_s=1.0)
        self.session_id = session_id
        self.address = address


class EngineUnavailable(ServerFault):
    default_code = "engine_unavailable"
    http_status = 503
    retryable = True


class EngineFault(ServerFault):
    default_code = "engine_error"
    http_status = 502


_RATE_LIMITS = frozenset({"resource_exhausted", "input_backpressure", "output_backpressure"})
_SERVER_FAULTS = frozenset(
    {
        *("internal_error", "engine_error", "commit_aborted", "server_vad_unavailable", "timeout"),
        *("realtime_input_failed", "failed_precondition"),
    }
)


def of_code(code: str, message: str) -> VigilError:
    """The error that a code of the contract means, for one that another server said."""
    if code in _RATE_LIMITS:
        return ResourceExhausted(message, code=code)
    if code in _SERVER_FAULTS or code.startswith("runtime_"):
        return ServerFault(message, code=code)
    return InvalidRequest(message, code=code)
