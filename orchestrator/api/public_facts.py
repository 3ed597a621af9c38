"""Facts of a session's log as clients see them: named fields of known kinds, nothing else.

What is not listed here is not shown: what a model said before it was checked, prompt texts (the plan route
shows them), keys that are passed on to a model.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from orchestrator.wire.errors import InvalidRequest

RESPONSE = "response"
"""Selects the ``tick_answered`` facts that said something."""

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "session_opened": ("config",),
    "session_configured": ("config",),
    "socket_seated": ("generation",),
    "events_reserved": (),
    "session_ended": ("reason", "error_code"),
    "response_started": ("response_id", "epoch", "turn"),
    "response_ended": ("response_id", "status", "reason", "text", "heard"),
    "epoch_begun": ("epoch", "reason"),
    "memory_opened": ("pack", "persona", "language", "instructions"),
    "frame_seen": ("frame_id", "uuid", "media_time_ms", "width", "height", "size", "operation_id"),
    "frame_dropped": ("frame_id", "media_time_ms", "reason"),
    "query_set": ("query_id", "text", "media_time_ms"),
    "query_cleared": ("media_time_ms",),
    "persona_set": ("persona", "instructions", "language"),
    "pixels_set": ("max_pixels",),
    "move_wanted": (),
    "pack_set": ("pack", "persona", "language"),
    "tick_begun": ("tick", "media_time_ms", "frame_ids"),
    "tick_answered": (
        "tick", "media_time_ms", "action", "reason", "text", "question", "status", "response_id",
    ),
    "tick_failed": ("tick", "media_time_ms", "code"),
    "summary_landed": ("chunk", "text", "start_ms", "end_ms", "attempt"),
    "summary_failed": ("chunk", "attempt", "reason"),
    "rollup_landed": ("chunks", "text", "start_ms", "end_ms"),
    "rollup_failed": ("chunks", "attempt", "reason"),
    "head_frozen": ("head", "first_frame_ms"),
    "prewarmed": ("head", "turns", "ok", "prompt_tokens"),
    "window_switched": ("window", "head", "carried", "reason"),
    "delegation_begun": ("delegation_id", "question", "media_time_ms", "tick"),
    "delegation_done": ("delegation_id", "question", "text", "ok", "media_time_ms"),
    "heard": ("response_id", "text", "complete", "media_time_ms"),
    "engine_lost": ("reason",),
    "engine_recovered": (),
    "limits_learned": ("max_images",),
    "item_deleted": ("frame_id", "query_id"),
    "spoken_opened": ("family", "language"),
    "user_said": ("item_id", "text", "media_time_ms"),
    "frames_shown": ("count", "media_time_ms"),
    "frames_described": ("text", "count", "start_ms", "end_ms"),
    "engine_session_opened": ("generation", "reason", "media_time_ms", "gap_ms"),
    "engine_session_ended": ("generation", "reason", "confirmed"),
    "units_written": ("rows",),
    "media_gap": ("units", "start_ms", "end_ms", "reason"),
}  # fmt: skip

KINDS = frozenset(_FIELDS)

_CONFIG = (
    "model", "persona", "language", "instructions", "max_pixels", "auto_response", "seed", "modalities",
    "voice", "temperature", "max_output_tokens", "speed", "overlap_policy", "speech_policy",
    "playback_policy", "include",
)  # fmt: skip


def public_fact(kind: str, data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fields of a fact that are shown; ``None`` for a kind that is not."""
    fields = _FIELDS.get(kind)
    if fields is None:
        return None
    shown = {name: data[name] for name in fields if data.get(name) is not None}
    if "config" in shown:
        shown["config"] = public_config(shown["config"])
    if kind == "tick_answered":
        shown["record"] = (data.get("metrics") or {}).get("row")
    return shown


def public_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """What of a session's configuration is shown."""
    return {name: config[name] for name in _CONFIG if config.get(name) is not None}


def selects(kinds: Collection[str], kind: str, data: Mapping[str, Any]) -> bool:
    """Whether a fact is among those asked for. No kinds: all that are shown."""
    if kind not in KINDS:
        return False
    return (
        not kinds
        or kind in kinds
        or (RESPONSE in kinds and kind == "tick_answered" and bool(data.get("text")))
    )


def checked_kinds(given: str, param: str) -> frozenset[str]:
    """Kinds as a comma-separated list. Raises ``InvalidRequest``."""
    kinds = frozenset(part.strip() for part in given.split(",") if part.strip())
    unknown = kinds - KINDS - {RESPONSE}
    if unknown:
        raise InvalidRequest(
            f"no kind {min(unknown)!r}; known are {RESPONSE}, {', '.join(sorted(KINDS))}", param=param
        )
    return kinds
