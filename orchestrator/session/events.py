"""Outward events of a session, one class per event of the wire contract (``type`` is its name).

Events are immutable snapshots. ``fence`` is projected as the sibling ``duplex{epoch, turn_id}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from orchestrator.session.backend import SessionConfig
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.wire.errors import VigilError


class Delivery(StrEnum):
    """What may happen to an event when its reader is slow.

    ``media``: may be dropped and counted; ``content``: kept while its reader lives; ``terminal``: always
    delivered once accepted.
    """

    MEDIA = "media"
    CONTENT = "content"
    TERMINAL = "terminal"


@dataclass(frozen=True, slots=True)
class Event:
    type: ClassVar[str]
    delivery: ClassVar[Delivery] = Delivery.CONTENT


# --- session ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionUpdated(Event):
    type: ClassVar[str] = "session.updated"
    config: SessionConfig


@dataclass(frozen=True, slots=True)
class SessionClosed(Event):
    """The last event of a session."""

    type: ClassVar[str] = "session.closed"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class SessionExpired(Event):
    """The last event of a session that ran out of time instead of being closed."""

    type: ClassVar[str] = "session.expired"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    session_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class ErrorEvent(Event):
    type: ClassVar[str] = "error"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    error: VigilError


# --- conversation items ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemAdded(Event):
    type: ClassVar[str] = "conversation.item.added"
    previous_item_id: str | None
    item: Item


@dataclass(frozen=True, slots=True)
class ItemCreated(Event):
    type: ClassVar[str] = "conversation.item.created"
    previous_item_id: str | None
    item: Item


@dataclass(frozen=True, slots=True)
class ItemDone(Event):
    type: ClassVar[str] = "conversation.item.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    previous_item_id: str | None
    item: Item


# --- responses -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ResponseEvent(Event):
    """Base of everything that belongs to one response."""

    fence: Fence
    response_id: str


@dataclass(frozen=True, slots=True)
class ResponseCreated(ResponseEvent):
    type: ClassVar[str] = "response.created"
    modalities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutputItemAdded(ResponseEvent):
    type: ClassVar[str] = "response.output_item.added"
    item: Item


@dataclass(frozen=True, slots=True)
class ContentPartAdded(ResponseEvent):
    type: ClassVar[str] = "response.content_part.added"
    item_id: str
    content_index: int
    part: ContentPart


@dataclass(frozen=True, slots=True)
class ResponseSpeak(ResponseEvent):
    """The model chose to speak. ``score``: P(speak), if known."""

    type: ClassVar[str] = "response.speak"
    item_id: str
    score: float | None


@dataclass(frozen=True, slots=True)
class ResponseListen(Event):
    """The model chose to listen. ``response_id`` is set only when this ends that response."""

    type: ClassVar[str] = "response.listen"
    fence: Fence
    reason: str
    model_listen: bool
    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class OutputTextDelta(ResponseEvent):
    type: ClassVar[str] = "response.output_text.delta"
    item_id: str
    content_index: int
    delta: str


@dataclass(frozen=True, slots=True)
class OutputTextDone(ResponseEvent):
    type: ClassVar[str] = "response.output_text.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item_id: str
    content_index: int
    text: str


@dataclass(frozen=True, slots=True)
class ContentPartDone(ResponseEvent):
    type: ClassVar[str] = "response.content_part.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item_id: str
    content_index: int
    part: ContentPart


@dataclass(frozen=True, slots=True)
class OutputItemDone(ResponseEvent):
    type: ClassVar[str] = "response.output_item.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    item: Item


@dataclass(frozen=True, slots=True)
class ResponseDone(ResponseEvent):
    """Exactly one per created response.

    :param status: completed, incomplete, cancelled or failed
    :param reason: why it did not complete
    :param item: the output item as it ended: its text is what was emitted
    """

    type: ClassVar[str] = "response.done"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL
    status: str
    reason: str | None
    item: Item

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.item.content)


@dataclass(frozen=True, slots=True)
class RateLimitsUpdated(Event):
    type: ClassVar[str] = "rate_limits.updated"
    delivery: ClassVar[Delivery] = Delivery.TERMINAL


# --- Vigil's own -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TickEvent(Event):
    """One decision as recorded; ``record`` has the columns of ``decisions.jsonl``."""

    type: ClassVar[str] = "vigil.tick"
    delivery: ClassVar[Delivery] = Delivery.MEDIA
    fence: Fence
    record: Mapping[str, Any]
    error_code: str | None = None


@dataclass(frozen=True, slots=True)
class DelegationEvent(Event):
    type: ClassVar[str] = "vigil.delegation"
    fence: Fence
    delegation_id: str
    status: str
    question: str
    text: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NoticeEvent(Event):
    type: ClassVar[str] = "vigil.notice"
    code: str
    message: str
