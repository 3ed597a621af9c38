"""What a model did and when, from the rows that ``vigil replay`` writes, with or without ``--audio``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from evals.readers.clip import Clip
from evals.stats import Row


class Did(StrEnum):
    SILENCE = "silence"
    RESPONSE = "response"
    DELEGATE = "delegate"


@dataclass(frozen=True, slots=True)
class Act:
    """One decision.

    :param tick: its number in the run
    :param at_s: media time of the newest frame it was decided on; of a response that is heard, the time of
        the stream at which it was announced
    :param text: what was said; ``question``: what was handed over
    :param score: probability of speaking, where the engine told it
    :param latency_ms: from the frame to the end of the answer
    :param chunk: number of the chunk of memory it fell into
    :param query: id of the query in force, of ``Clip.queries``; ``None``: none is
    """

    tick: int
    at_s: float
    did: Did
    text: str = ""
    question: str = ""
    score: float | None = None
    latency_ms: float | None = None
    chunk: int | None = None
    query: str | None = None

    @property
    def spoke(self) -> bool:
        return self.did is not Did.SILENCE


def acts_of(clip: Clip, rows: Sequence[Row]) -> list[Act]:
    """The decisions of a run over ``clip``, in time order. A failed tick decided nothing and is left out.

    Rows of a run with sound are units, then responses; a unit counts as silence where nothing began in it.
    """
    heard = any(row.get("kind") in ("unit", "response") for row in rows)
    acts = _heard(rows) if heard else _ticked(rows)
    acts.sort(key=lambda act: (act.at_s, act.tick))
    return [_asked(clip, act) for act in acts]


def query_at(clip: Clip, at_s: float) -> str | None:
    """The query in force: the one asked last, at or before that time, unless it was withdrawn.

    Of two asked at once the later one of the clip stands.
    """
    asked = [q for q in clip.queries if q.at_s <= at_s + _SAME_S]
    if not asked:
        return None
    last = max(reversed(asked), key=lambda q: q.at_s)
    return None if last.until_s is not None and last.until_s <= at_s + _SAME_S else last.id


_SAME_S = 1e-6
"""Times in ms and times in seconds differ by rounding."""


def _asked(clip: Clip, act: Act) -> Act:
    query = query_at(clip, act.at_s)
    return Act(
        act.tick, act.at_s, act.did, act.text, act.question, act.score, act.latency_ms, act.chunk, query
    )


def _ticked(rows: Sequence[Row]) -> list[Act]:
    acts = []
    for row in rows:
        if row.get("status") == "failed" or row.get("media_time_s") is None:
            continue
        acts.append(
            Act(
                tick=int(row["tick"]),
                at_s=float(row["media_time_s"]),
                did=_did(row.get("action")),
                text=str(row.get("text") or ""),
                question=str(row.get("question") or ""),
                score=_number(row, "score"),
                latency_ms=_number(row, "latency_ms"),
                chunk=None if row.get("chunk") is None else int(row["chunk"]),
            )
        )
    return acts


def _heard(rows: Sequence[Row]) -> list[Act]:
    responses = [row for row in rows if row.get("kind") == "response" and _said(row)]
    began = [float(row["created_s"]) for row in responses]
    acts = [
        Act(number, at, Did.RESPONSE, text=_said(row))
        for number, (row, at) in enumerate(zip(responses, began, strict=True))
    ]
    for row in rows:
        if row.get("kind") != "unit":
            continue
        start, end = float(row["start_ms"]) / 1000, float(row["end_ms"]) / 1000
        if not any(start <= at < end for at in began):
            acts.append(Act(int(row["unit"]), start, Did.SILENCE))
    return acts


def _said(row: Row) -> str:
    """Text of a response; one of sound alone has said something too."""
    said = str(row.get("transcript") or row.get("text") or "")
    return said or ("[sound]" if row.get("audio_ms") else "")


def _did(action: Any) -> Did:
    try:
        return Did(action)
    except ValueError:
        return Did.SILENCE


def _number(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return None if value is None else float(value)
