"""Events as the OpenAI SDK's own types see them, strictly."""

from __future__ import annotations

from typing import Any

from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

_GA: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
OWN = (
    "session.resumed", "session.replaced", "session.expired", "session.closed", "session.resync_required",
    "session.heartbeat_ack", "response.listen", "response.speak", "overlap.decision", "playback.acknowledged",
    "turn.event", "vigil.", "conversation.item.truncated.",
)  # fmt: skip
"""Events that OpenAI's protocol does not have."""


def check(event: dict[str, Any]) -> bool:
    """Validate an event; False for one of ours, which no type of theirs is meant to fit."""
    if event["type"].startswith(OWN):
        return False
    parsed = _GA.validate_python(event, strict=True)
    assert parsed.type == event["type"]
    return True
