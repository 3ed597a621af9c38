"""The session's own fold over its log of facts: what a session that goes on after a restart goes on from.

Kinds of other rooms are ignored, but two: what the user asked (``query_set``) is part of the conversation,
and what was shown (``frame_seen``) says how far the session's media clock is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter

from orchestrator.session.attachment import Seat
from orchestrator.session.backend import SessionConfig
from orchestrator.session.facts import (
    EpochBegun,
    EventsReserved,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionEnded,
    SessionOpened,
    SocketSeated,
)
from orchestrator.session.fence import Fence
from orchestrator.session.history import Line

_CONFIG: TypeAdapter[SessionConfig] = TypeAdapter(SessionConfig)


@dataclass(slots=True)
class SessionRecord:
    """Deterministic in the entries it was given, in order."""

    config: SessionConfig | None = None
    fence: Fence = field(default_factory=Fence)
    lines: list[Line] = field(default_factory=list)
    unfinished: str | None = None
    """A response that was begun and never ended: the process went away under it."""
    ended: str | None = None
    newest_ms: int | None = None
    """Capture time of its newest frame."""
    seat: Seat = field(default_factory=Seat)
    """What a socket of the process before could resume with."""

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        """Fold one entry of the log."""
        if kind == SessionOpened.kind:
            # A process that takes a session up again opens it again.
            self.config, self.unfinished, self.ended = _CONFIG.validate_python(data["config"]), None, None
        elif kind == SessionConfigured.kind:
            self.config = _CONFIG.validate_python(data["config"])
        elif kind == EpochBegun.kind:
            self.fence = Fence(data["epoch"], self.fence.turn)
        elif kind == ResponseStarted.kind:
            self.unfinished = data["response_id"]
            self.fence = max(self.fence, Fence(data["epoch"], data["turn"]))
        elif kind == ResponseEnded.kind:
            self.unfinished = None
            if data["heard"]:
                self.lines.append(Line("assistant", f"item_{data['response_id']}", data["heard"]))
        elif kind == SocketSeated.kind:
            self.seat = Seat(data["generation"], data["token_hash"], self.seat.ceiling)
        elif kind == EventsReserved.kind:
            self.seat = replace(self.seat, ceiling=data["ceiling"])
        elif kind == SessionEnded.kind:
            self.ended = data["reason"]
        elif kind == "frame_seen":
            self.newest_ms = max(self.newest_ms or 0, data["media_time_ms"])
        elif kind == "query_set":
            self.lines.append(Line("user", data["query_id"], data["text"]))

    @property
    def next_fence(self) -> Fence:
        """Where a session that is taken up again starts: newer than all output of the process before."""
        return Fence(self.fence.epoch + 1, self.fence.turn + 1) if self.config is not None else Fence()
