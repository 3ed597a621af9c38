"""Made-up runs in a folder, as ``vigil eval run`` writes them: a tick a second, and what was said when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from engine_launch.facts import EngineFacts
from evals.readers.clip import Clip, Judging, Kind, Query, Silence, Slot
from evals.readers.jsonl import dump_clip

Said = Mapping[int, tuple[str, str]]
"""By second: the action, and what was said or handed over."""


def rows(
    seconds: int, said: Said, chunk: int = 20, score: Mapping[int, float] | None = None
) -> list[dict[str, Any]]:
    """Ticks of a replay; ``chunk``: seconds of one chunk; ``score``: of ticks where it is not 0.1."""
    found = []
    for tick in range(seconds):
        action, text = said.get(tick, ("silence", ""))
        found.append(
            {
                "tick": tick,
                "media_time_s": float(tick),
                "action": action,
                "text": text if action == "response" else "",
                "question": text if action == "delegate" else None,
                "chunk": tick // chunk,
                "window": tick // chunk,
                "prompt_tokens": 1000 + tick,
                "cached_tokens": 900 + tick,
                "completion_tokens": 4,
                "latency_ms": 100.0,
                "body_bytes": 5000,
                "retries": 0,
                "score": (score or {}).get(tick, 0.1),
                "status": "completed",
            }
        )
    return found


def manifest(clips: int) -> dict[str, Any]:
    """``run.json`` of a run over so many clips."""
    return {
        "format": "vigil-eval-1",
        "kind": "ticks",
        "outcome": "complete",
        "dataset": {"name": "made-up", "format": "vigil", "digest": "0" * 32, "clips": clips},
        "settings": {"solvers": [], "summarizer": {"model": None, "images": True}},
        "engine": EngineFacts("standin").to_dict(),
        "profile": None,
        "pack": {"family": "generic", "digest": "1" * 32},
        "versions": {"vigil": "0.1", "renderer": 1, "engine": None, "python": "3.11.1"},
        "period_ms": 1000,
        "seed": 0,
        "pace": "fast",
        "streams": 2,
        "key": "ab" * 32,
        "started_at": "2026-01-02T03:04:05+00:00",
        "wall_s": 1.5,
    }


def write_run(
    path: Path,
    clips: Sequence[tuple[Clip, Sequence[Mapping[str, Any]]]],
    settings: Mapping[str, Any] | None = None,
    outcomes: Mapping[str, str] | None = None,
) -> Path:
    """A run's folder; ``outcomes``: of clips that did not end well."""
    path.mkdir(parents=True, exist_ok=True)
    facts = manifest(len(clips))
    facts["settings"] |= settings or {}
    (path / "run.json").write_bytes(orjson.dumps(facts))
    for clip, decided in clips:
        folder = path / "clips" / clip.id
        folder.mkdir(parents=True)
        (folder / "clip.json").write_bytes(dump_clip(clip))
        (folder / "decisions.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in decided))
        outcome = (outcomes or {}).get(clip.id, "complete")
        (folder / "summary.json").write_bytes(orjson.dumps({"outcome": outcome}))
    return path


def clip(name: str = "c1", *, event_s: float = 12.0) -> Clip:
    """A minute: an alert at ``event_s``, a question of memory at 45, a hard one at 55."""
    return Clip(
        id=name,
        video=f"{name}.mp4",
        duration_s=60,
        queries=(
            Query(id="q1", at_s=2, text="Say when the red square comes.", skill="alert"),
            Query(id="q2", at_s=45, text="What came first?", skill="first"),
            Query(id="q3", at_s=55, text="Who made this?", skill="hard"),
        ),
        slots=(
            Slot(id="s1", query="q1", kind=Kind.ALERT, start_s=event_s, end_s=event_s + 5),
            Slot(
                id="s2",
                query="q2",
                kind=Kind.ANSWER,
                start_s=45,
                end_s=50,
                evidence_s=event_s,
                evidence_end_s=event_s + 3,
                chunks_later=2,
                accepted=("red square",),
                judging=Judging.CONTAINS,
            ),
            Slot(id="s3", query="q3", kind=Kind.DELEGATE, start_s=55, end_s=59),
        ),
        silences=(Silence(start_s=25, end_s=40),),
    )


GOOD: Said = {
    12: ("response", "The red square is here."),
    46: ("response", "A red square."),
    56: ("delegate", "Who made this?"),
}
BAD: Said = {
    5: ("response", "The red square is here."),
    30: ("response", "Something moved."),
    31: ("response", "Something moved."),
    46: ("response", "A blue circle."),
    56: ("response", "I don't know."),
}
