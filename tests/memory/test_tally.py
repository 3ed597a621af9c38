"""Counts over a log."""

from __future__ import annotations

from typing import Any

from memory.tally import Tally, shortfall_kind


def answered(**row: Any) -> dict[str, Any]:
    data = {"action": "silence", "reason": "model", "metrics": {"row": {"tick": 1, **row}}}
    return data | {key: row[key] for key in ("action", "reason") if key in row}


def tally(*entries: tuple[str, dict[str, Any]]) -> Tally:
    made = Tally()
    for kind, data in entries:
        made.apply(kind, data)
    return made


def test_an_empty_log() -> None:
    told = Tally().public()
    assert set(told["counts"].values()) == {0}
    assert told["reuse"]["kept_ratio"] is told["last_tick"] is None


def test_what_ticks_came_to() -> None:
    told = tally(
        ("tick_answered", answered(action="response", reason=None)),
        ("tick_answered", answered(reason="gated")),
        ("tick_answered", answered()),
        ("tick_answered", {"action": "silence", "reason": "not_asked"}),
        ("tick_failed", {"code": "engine_timeout"}),
        ("frame_seen", {}),
        ("frame_dropped", {"reason": "late"}),
        ("something_new", {}),
    ).public()
    assert told["ticks"] == {"response": 1, "silence": 3}
    assert told["silent_because"] == {"gated": 1, "model": 1, "not_asked": 1}
    assert told["failed_because"] == {"engine_timeout": 1}
    assert told["frames_not_shown"] == {"late": 1}
    assert told["counts"]["frames"] == 1
    assert told["last_tick"]["tick"] == 1


def test_promise_against_fact() -> None:
    """Contract: more than was promised counts as kept once; a tick without counts says nothing."""
    told = tally(
        ("tick_answered", answered(prompt_tokens=100, cached_tokens=80, expected_cached_tokens=64)),
        (
            "tick_answered",
            answered(prompt_tokens=100, cached_tokens=32, expected_cached_tokens=96, shortfall="user/3/77"),
        ),
        (
            "tick_answered",
            answered(prompt_tokens=100, cached_tokens=0, expected_cached_tokens=96, shortfall="evicted"),
        ),
        ("tick_answered", answered(prompt_tokens=100, cached_tokens=None, expected_cached_tokens=96)),
        ("tick_answered", answered(prompt_tokens=None, reason="gated")),
    ).reuse
    assert told == {
        "prompt_tokens": 300,
        "cached_tokens": 112,
        "cached_ratio": 0.3733,
        "promised_tokens": 256,
        "kept_tokens": 96,
        "kept_ratio": 0.375,
        "shortfalls": {"user": 1, "evicted": 1},
    }
    assert shortfall_kind("long_term/-1/9") == "long_term"


def test_background_work_handovers_and_ends() -> None:
    told = tally(
        ("session_opened", {"config": {"persona": "a"}}),
        ("session_configured", {"config": {"persona": "b"}}),
        ("window_switched", {"window": 0, "reason": "opened"}),
        ("window_switched", {"window": 1, "reason": "chunk"}),
        ("summary_landed", {}),
        ("summary_failed", {}),
        ("rollup_landed", {}),
        ("delegation_begun", {}),
        ("delegation_done", {"ok": False}),
        ("session_ended", {"reason": "shutdown"}),
    )
    assert told.config == {"persona": "b"}
    assert told.handovers == {"chunk": 1}
    assert told.counts["summaries"] == told.counts["summaries_failed"] == told.counts["long_term_blocks"] == 1
    assert told.counts["delegations_failed"] == 1
    assert told.ended == "shutdown"
    told.apply("session_opened", {"config": {}})
    assert told.ended is None
    assert told.counts["openings"] == 2
