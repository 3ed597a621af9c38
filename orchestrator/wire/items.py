"""What server events hold: messages and their parts, responses, and which generation of output they are of.

``None`` fields are left out when an event is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Json = dict[str, Any]


class Data(BaseModel):
    """Values, as they are written."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class InputText(Data):
    type: Literal["input_text"] = "input_text"
    text: str


class InputAudio(Data):
    type: Literal["input_audio"] = "input_audio"
    transcript: str | None = None
    is_speech: bool | None = None


class InputImage(Data):
    """``image_url`` is not echoed with its payload: clients know what they sent."""

    type: Literal["input_image"] = "input_image"
    image_url: str | None = None


class OutputText(Data):
    type: Literal["output_text"] = "output_text"
    text: str


class OutputAudio(Data):
    """``audio_text_marks``: ``{"text_chars", "audio_end_ms"}`` pairs, cumulative."""

    type: Literal["output_audio"] = "output_audio"
    transcript: str
    audio_duration_ms: int | None = None
    audio_text_marks: list[Json] | None = None


class TextPart(Data):
    type: Literal["text"] = "text"
    text: str = ""


class AudioPart(Data):
    type: Literal["audio"] = "audio"
    transcript: str = ""


class MessageItem(Data):
    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["message"] = "message"
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    role: Literal["system", "user", "assistant"]
    content: list[InputText | InputAudio | InputImage | OutputText | OutputAudio] = []


class FunctionCallOutputItem(Data):
    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["function_call_output"] = "function_call_output"
    status: Literal["completed"] = "completed"
    call_id: str
    output: str


class FunctionCallItem(Data):
    id: str
    object: Literal["realtime.item"] = "realtime.item"
    type: Literal["function_call"] = "function_call"
    status: Literal["in_progress", "completed", "incomplete"] = "completed"
    call_id: str
    name: str
    arguments: str


Item = MessageItem | FunctionCallItem | FunctionCallOutputItem


class Response(Data):
    """``status_details.reason`` holds only the reasons the SDK knows; ours goes to ``duplex.reason``."""

    id: str
    object: Literal["realtime.response"] = "realtime.response"
    status: Literal["in_progress", "completed", "cancelled", "failed", "incomplete"]
    status_details: Json | None = None
    output: list[Item] = []
    output_modalities: list[Literal["text", "audio"]] | None = None
    modalities: list[Literal["text", "audio"]] | None = None
    metadata: dict[str, str] | None = None
    usage: Json | None = None


class Mark(Data):
    """Which generation of output an event belongs to, and why a response ended where that is ours to say."""

    epoch: int
    turn_id: int
    reason: str | None = None


GA_REASONS: frozenset[str] = frozenset(
    {"turn_detected", "client_cancelled", "max_output_tokens", "content_filter"}
)


def status_details(status: str, reason: str | None) -> Mapping[str, Any] | None:
    """``response.status_details`` for a status, holding only reasons that the SDK's types know."""
    if status in {"in_progress", "completed"}:
        return None
    details: Json = {"type": status}
    if reason in GA_REASONS:
        details["reason"] = reason
    if status == "failed":
        details["error"] = {"type": "server_error", "code": reason or "internal_error"}
    return details
