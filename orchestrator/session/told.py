"""Conversation facts that the session hands to the backend: it owns them, the model is to learn of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QueryAsked:
    """The user set or replaced the standing query. ``repeat_ok``: ask again even if the text is the same."""

    text: str
    item_id: str
    repeat_ok: bool = True


@dataclass(frozen=True, slots=True)
class QueryCleared:
    item_id: str | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """What of a response reached the user. ``complete``: the whole of it was heard or read.

    ``settled``: no more of it will be heard, but for a truncation; otherwise it is still being played.
    """

    response_id: str
    text: str
    complete: bool
    settled: bool = True


@dataclass(frozen=True, slots=True)
class ResponseOptions:
    """Settings of the one response that the next ``commit`` of the same fence asks for; then forgotten.

    Told only to backends with ``Capabilities.response_options``.

    :param modalities: what it is answered with, where that is not as the session is set
    """

    instructions: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None
    modalities: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool of the client's gave back for a call. ``item_id``: of the item that says so."""

    call_id: str
    output: str
    item_id: str


ConversationFact = QueryAsked | QueryCleared | Heard | ResponseOptions | ToolResult
