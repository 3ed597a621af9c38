"""The seams of the durable store: facts as they lie in a log, frames by identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One fact of a log. ``seq`` starts at 1 and has no gaps; ``at_ms`` is Unix time."""

    seq: int
    at_ms: int
    kind: str
    data: Mapping[str, Any]


class FrameStore(Protocol):
    """Encoded frames, content-addressed. A frame is durable before it is sent to an engine."""

    def write(self, uuid: str, data: bytes) -> None:
        """Make the bytes durable. It blocks, so it is called in a thread; ``put`` follows, or nobody will
        know of them."""

    async def put(self, uuid: str, data: bytes) -> None:
        """Take a frame that was written. Facts that are appended to the session's log from now on are
        durable no sooner than it."""

    def get(self, uuid: str) -> bytes:
        """The bytes; raises ``KeyError`` when they were deleted or have expired."""
