"""Acts, clips and heard responses for tests of the metrics: a decision a second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evals.metrics.acts import Act, Did, query_at
from evals.metrics.outcome import ClipOutcome, Verdicts, outcome_of
from evals.readers.clip import Clip, Kind, Query, Slot


def clip_of(*slots: Slot, queries: tuple[Query, ...] = (), **fields: Any) -> Clip:
    asked = queries or (Query(id="q1", text="Say when it comes.", skill="alert"),)
    return Clip(id="c", video="c.mp4", queries=asked, slots=slots, **fields)


def slot(start: float, end: float, name: str = "s1", *, kind: Kind = Kind.ALERT, **fields: Any) -> Slot:
    return Slot(**{"id": name, "query": "q1", "kind": kind, "start_s": start, "end_s": end, **fields})


def acts(clip: Clip, said: Mapping[float, str], seconds: int = 60, **fields: Any) -> list[Act]:
    """Silence each second but where something is said; ``?`` in front hands it over."""
    times = sorted({float(n) for n in range(seconds)} | set(said))
    return [_act(clip, tick, at, said.get(at), **fields) for tick, at in enumerate(times)]


def judged(clip: Clip, said: Mapping[float, str], verdicts: Verdicts | None = None) -> ClipOutcome:
    return outcome_of(clip, acts(clip, said), 60.0, verdicts or {})


def _act(clip: Clip, tick: int, at: float, words: str | None, **fields: Any) -> Act:
    query = query_at(clip, at)
    if words is None:
        return Act(tick, at, Did.SILENCE, query=query, chunk=tick // 20)
    if words.startswith("?"):
        return Act(tick, at, Did.DELEGATE, question=words[1:], query=query, chunk=tick // 20)
    return Act(tick, at, Did.RESPONSE, text=words, query=query, chunk=tick // 20, **fields)


def response(name: str, created_s: float, played_ms: int, *, made_ms: int = 0, **more: Any) -> dict[str, Any]:
    made = made_ms or played_ms
    cursors = {"generated_ms": made, "sent_ms": made, "played_ms": played_ms, "committed_ms": played_ms}
    row = {
        "kind": "response",
        "response_id": name,
        "created_s": created_s,
        "status": "completed",
        "transcript": "words",
        "audio_ms": made,
        "playback": cursors,
        "timing": timing(100.0),
    }
    return row | more


def timing(first: float, gaps: int = 0, largest: float = 0.0) -> dict[str, Any]:
    gap = {"count": gaps, "mean": largest / 2, "p50": 1.0, "p95": largest, "max": largest}
    return {
        "response_created_to_first_audio_ms": first,
        "commit_to_first_audio_ms": None,
        "inter_chunk_gap_ms": gap if gaps else {"count": 0},
        "chunk_duration_ms": {"count": 0},
        "max_chunk_gap_ms": largest if gaps else None,
    }
