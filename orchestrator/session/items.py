"""Conversation items as they stand at one moment: snapshots that never grow once handed out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentPart:
    """One part of an item.

    :param kind: ``output_text``, ``output_audio``, ``input_text``, ``input_audio``, ``input_image``
    :param text: the text, or the transcript of an audio part
    :param audio_ms: length of an audio part so far
    :param is_speech: False of an audio part in which nobody spoke
    :param text_marks: (characters spoken so far, audio end in ms), cumulative
    """

    kind: str
    text: str = ""
    audio_ms: int = 0
    text_marks: tuple[tuple[int, int], ...] = ()
    is_speech: bool | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a client's tool; with ``output`` what the client gave back."""

    call_id: str
    name: str = ""
    arguments: str = ""
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """
    :param status: in_progress, completed, incomplete, cancelled or failed
    :param call: it is no message but a call of a tool, or a call's output
    """

    item_id: str
    role: str
    status: str = "completed"
    content: tuple[ContentPart, ...] = ()
    call: Call | None = None


def assistant_item_id(response_id: str) -> str:
    """Clients build this id themselves when they acknowledge playback; it is part of the contract."""
    return f"item_{response_id}"
