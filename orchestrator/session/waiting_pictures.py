"""Pictures of messages that wait for an answer: how many there may be, and how large all together."""

from __future__ import annotations

from orchestrator.session.commands import AppendInput
from orchestrator.wire.errors import ResourceExhausted

MAX_PICTURES, MAX_PICTURE_BYTES = 8, 4 * 1024 * 1024


class WaitingPictures:
    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def check(self, pictures: tuple[AppendInput, ...]) -> None:
        """Refuse a message whose pictures, with those not answered yet, are too many or too large."""
        count = len(self._sizes) + len(pictures)
        size = sum(self._sizes.values()) + sum(each.unit.size for each in pictures)
        if count > MAX_PICTURES or size > MAX_PICTURE_BYTES:
            raise ResourceExhausted(
                f"at most {MAX_PICTURES} pictures and {MAX_PICTURE_BYTES} bytes of them wait for an answer",
                code="input_backpressure",
            )

    def add(self, picture: AppendInput) -> None:
        self._sizes[picture.operation_id] = picture.unit.size

    def over(self, operation_id: str) -> None:
        """It was answered or dropped; any other operation is none of these."""
        self._sizes.pop(operation_id, None)

    def clear(self) -> None:
        """An answer to all of them was asked for."""
        self._sizes.clear()
