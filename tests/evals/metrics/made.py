"""Acts and clips for tests of the metrics: a decision a second."""

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
