"""What we write, as JSON values. Ids in here are the engine's."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from bridges.duplex_client.link import EngineUnit

Json = dict[str, Any]


def opening(session: Mapping[str, Any], model: str) -> Json:
    return {"type": "session.update", "session": {"model": model, **session}}


def resume(session_id: str, token: str, seen: int) -> Json:
    return {
        "type": "session.resume",
        "session_id": session_id,
        "resume_token": token,
        "last_received_server_event_seq": seen,
    }


def append(unit: EngineUnit) -> Json:
    event: Json = {"type": "input_audio_buffer.append", **unit.hints}
    if unit.pcm is not None:
        event["audio"] = base64.b64encode(unit.pcm).decode()
        event["format"] = unit.format
        event["sample_rate_hz"] = unit.rate_hz
        event["duration_ms"] = unit.duration_ms
    event["audio_end_ms"] = unit.end_ms
    if unit.is_speech is not None:
        event["is_speech"] = unit.is_speech
    if unit.frames:
        event["video_frames"] = [base64.b64encode(frame).decode() for frame in unit.frames]
    return event


def commit(create_response: bool) -> Json:
    event: Json = {"type": "input_audio_buffer.commit", "final": True}
    return {**event, "response_create": True} if create_response else event


def create_response(options: Mapping[str, Any]) -> Json:
    return {"type": "response.create", **({"response": dict(options)} if options else {})}


def cancel(response_id: str | None) -> Json:
    return {"type": "response.cancel", **({"response_id": response_id} if response_id else {})}


def playback(response_id: str, played_ms: int, committed_ms: int) -> Json:
    return {
        "type": "playback.ack",
        "response_id": response_id,
        "item_id": f"item_{response_id}",
        "played_ms": played_ms,
        "committed_ms": committed_ms,
    }
