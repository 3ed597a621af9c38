"""Timings of responses on the client's own clock."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from orchestrator.client.timing import ResponseTimings, spread
from orchestrator.wire.server import ServerEvent, UnknownEvent, parse_event


def event(kind: str, **fields: Any) -> ServerEvent | UnknownEvent:
    return parse_event({"type": kind, "event_id": "e", **fields})[0]


def created(name: str) -> ServerEvent | UnknownEvent:
    return event("response.created", response_id=name, response={"id": name, "status": "in_progress"})


def chunk(name: str, ms: int) -> ServerEvent | UnknownEvent:
    data = base64.b64encode(bytes(48 * ms)).decode()
    more = {"item_id": f"item_{name}", "delta": data, "format": "pcm16", "sample_rate_hz": 24000}
    return event("response.output_audio.delta", response_id=name, **more)


def test_first_audio_is_counted_from_the_announcement_and_from_an_explicit_commit() -> None:
    timings = ResponseTimings()
    timings.take(created("r1"), 1.0)
    for at in (1.5, 1.6, 2.0):
        timings.take(chunk("r1", 200), at)
    timings.committed(3.0)
    timings.take(created("r2"), 3.1)
    timings.take(chunk("r2", 100), 3.4)
    one, two = timings.report("r1"), timings.report("r2")
    assert one["response_created_to_first_audio_ms"] == pytest.approx(500)
    assert one["commit_to_first_audio_ms"] is None, "it was not asked for by a commit"
    assert one["inter_chunk_gap_ms"] == {
        "count": 2, "mean": 250.0, "p50": 250.0, "p95": pytest.approx(385.0), "max": 400.0,
    }  # fmt: skip
    assert one["chunk_duration_ms"]["count"] == 3 and one["chunk_duration_ms"]["mean"] == 200.0
    assert one["max_chunk_gap_ms"] == pytest.approx(400)
    assert two["commit_to_first_audio_ms"] == pytest.approx(400)
    assert two["inter_chunk_gap_ms"] == {"count": 0} and two["max_chunk_gap_ms"] is None


def test_sound_of_what_was_never_announced_counts_for_nobody() -> None:
    timings = ResponseTimings()
    timings.take(chunk("r1", 100), 1.0)
    assert timings.report("r1") == {}
    timings.take(created("r1"), 2.0)
    assert timings.report("r1")["response_created_to_first_audio_ms"] is None


def test_a_spread_of_nothing_is_a_count() -> None:
    assert spread([]) == {"count": 0}
    assert spread([5.0]) == {"count": 1, "mean": 5.0, "p50": 5.0, "p95": 5.0, "max": 5.0}
