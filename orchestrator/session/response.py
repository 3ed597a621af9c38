"""The life cycle of one response and the events it becomes, in the order the contract fixes.

::

    CREATED --content--> STREAMING --content--> STREAMING
       |                     |
       +------- finish ------+---> DONE       exactly once
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from orchestrator.session.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    ItemAdded,
    ItemCreated,
    ItemDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    RateLimitsUpdated,
    ResponseCreated,
    ResponseDone,
    ResponseSpeak,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item, assistant_item_id
from orchestrator.wire.errors import ServerFault


class Phase(StrEnum):
    CREATED = "created"
    STREAMING = "streaming"
    DONE = "done"


class Step(StrEnum):
    CONTENT = "content"
    FINISH = "finish"


STEPS: Mapping[tuple[Phase, Step], Phase] = {
    (Phase.CREATED, Step.CONTENT): Phase.STREAMING,
    (Phase.STREAMING, Step.CONTENT): Phase.STREAMING,
    (Phase.CREATED, Step.FINISH): Phase.DONE,
    (Phase.STREAMING, Step.FINISH): Phase.DONE,
}


def response_id_of(session_id: str, epoch: int, serial: int) -> str:
    """``resp-<session>-<epoch>-<8 hex>``. ``serial`` grows by one per response, so ids never repeat."""
    return f"resp-{session_id}-{epoch}-{serial:08x}"


def serial_of(session_id: str, response_id: str) -> int | None:
    """The serial inside an id of this session, or ``None`` if it is no such id."""
    prefix, _, serial = response_id.rpartition("-")
    if not prefix.startswith(f"resp-{session_id}-") or len(serial) != 8:
        return None
    try:
        return int(serial, 16)
    except ValueError:
        return None


class Response:
    """One visible answer. Methods return the events that the step becomes.

    :param requested: it was asked for by ``response.create`` and so exists before any output
    """

    def __init__(
        self, response_id: str, fence: Fence, previous_item_id: str | None, *, requested: bool = False
    ) -> None:
        self.response_id = response_id
        self.item_id = assistant_item_id(response_id)
        self.fence = fence
        self.requested = requested
        self.phase = Phase.CREATED
        self._previous_item_id = previous_item_id
        self._deltas: list[str] = []
        self._spoke = False

    @property
    def text(self) -> str:
        """What has been emitted so far."""
        return "".join(self._deltas)

    def begin(self) -> tuple[Event, ...]:
        item = Item(self.item_id, "assistant", "in_progress")
        return (
            ResponseCreated(self.fence, self.response_id, ("text",)),
            ItemAdded(self._previous_item_id, item),
            ItemCreated(self._previous_item_id, item),
            OutputItemAdded(self.fence, self.response_id, item),
        )

    def speak(self, score: float | None) -> tuple[Event, ...]:
        """The model chose to speak: at most one event, never after content."""
        if self._spoke or self.phase is not Phase.CREATED:
            return ()
        self._spoke = True
        return (ResponseSpeak(self.fence, self.response_id, self.item_id, score),)

    def add_text(self, delta: str) -> tuple[Event, ...]:
        opening: tuple[Event, ...] = ()
        if self._step(Step.CONTENT) is Phase.CREATED:
            part = ContentPart("output_text")
            opening = (ContentPartAdded(self.fence, self.response_id, self.item_id, 0, part),)
        self._deltas.append(delta)
        return (*opening, OutputTextDelta(self.fence, self.response_id, self.item_id, 0, delta))

    def finish(self, status: str, reason: str | None) -> tuple[Event, ...]:
        before = self._step(Step.FINISH)
        content: tuple[ContentPart, ...] = ()
        closing: tuple[Event, ...] = ()
        if before is Phase.STREAMING:
            part = ContentPart("output_text", self.text)
            content = (part,)
            closing = (
                OutputTextDone(self.fence, self.response_id, self.item_id, 0, part.text),
                ContentPartDone(self.fence, self.response_id, self.item_id, 0, part),
            )
        item = Item(self.item_id, "assistant", status, content)
        return (
            *closing,
            OutputItemDone(self.fence, self.response_id, item),
            ItemDone(self._previous_item_id, item),
            ResponseDone(self.fence, self.response_id, status, reason, item),
            RateLimitsUpdated(),
        )

    def _step(self, step: Step) -> Phase:
        """Take the step; return the phase before it."""
        before = self.phase
        if (after := STEPS.get((before, step))) is None:
            raise ServerFault(f"response {self.response_id} is {before}; it cannot take {step}")
        self.phase = after
        return before
