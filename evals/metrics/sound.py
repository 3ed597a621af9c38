"""Runs with sound: barge-ins, ledgers, and the client's own timings. Pure.

Times of a response are the client's: announced at ``created_s`` of the stream, first heard
``response_created_to_first_audio_ms`` later. Engine and client clocks are never mixed, and events that belong
to no response are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from evals.metrics.curve import ALERTING
from evals.readers.clip import Clip, Expected, Speech
from evals.stats import Row, spread

CURSORS = ("generated_ms", "sent_ms", "played_ms", "committed_ms")
"""Of a ledger, each at most the one before it."""

SOON_S = 1.0
"""An answer that is due so soon after its question is one to the question itself."""

_GROUPS = ("inter_chunk_gap_ms", "chunk_duration_ms")
_SINGLE = ("response_created_to_first_audio_ms", "commit_to_first_audio_ms", "max_chunk_gap_ms")


@dataclass(frozen=True, slots=True)
class Heard:
    """When a response was heard, in seconds of the stream. ``cut``: it was cancelled."""

    response_id: str
    start_s: float
    end_s: float
    generated_ms: float
    played_ms: float
    cut: bool


@dataclass(frozen=True, slots=True)
class Interruption:
    """What a stretch of speech did to a model that was talking.

    :param stopped_ms: from its start to the last that was heard; ``None``: the model went on
    :param wasted_ms: made for that response and never heard
    """

    speech: str
    expects: str
    right: bool
    stopped_ms: float | None
    wasted_ms: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A spoken question. ``waited_ms``: from its end to the first sound of an answer; ``None``: none came."""

    speech: str
    waited_ms: float | None
    in_time: bool


def heard_of(rows: Sequence[Row]) -> list[Heard]:
    """The responses that were heard, in time order; played in one piece, as the player of the client does."""
    found = []
    for row in rows:
        first = (row.get("timing") or {}).get("response_created_to_first_audio_ms")
        if row.get("kind") != "response" or first is None:
            continue
        ledger = row.get("playback") or {}
        length = float(row.get("audio_ms") or 0)
        made, played = (float(ledger.get(name, length)) for name in ("generated_ms", "played_ms"))
        start = float(row["created_s"]) + float(first) / 1000
        cut = row.get("status") in ("cancelled", "incomplete")
        found.append(Heard(str(row["response_id"]), start, start + played / 1000, made, played, cut))
    return sorted(found, key=lambda one: one.start_s)


def interruptions(clip: Clip, heard: Sequence[Heard]) -> list[Interruption]:
    """Every stretch of speech that began while the model was heard."""
    found = []
    for speech in clip.speech:
        # Cut or not is told of the response that was heard when the speech began.
        over = next((one for one in heard if one.start_s <= speech.start_s < one.end_s), None)
        if over is None or speech.expects is Expected.ANSWER:
            continue
        stopped = round(1000 * (over.end_s - speech.start_s), 3) if over.cut else None
        right = _stopped_in_time(speech, stopped)
        wasted = max(0.0, over.generated_ms - over.played_ms) if over.cut else 0.0
        found.append(Interruption(speech.id, speech.expects.value, right, stopped, wasted))
    return found


def turns(clip: Clip, heard: Sequence[Heard]) -> list[Turn]:
    """Every spoken question that asks for an answer at once; its answer is the first response heard between
    its end and the next speech."""
    spoken = sorted(clip.speech, key=lambda s: s.start_s)
    found = []
    for number, speech in enumerate(spoken):
        if speech.expects is not Expected.ANSWER or _waits(clip, speech):
            continue
        until = spoken[number + 1].start_s if number + 1 < len(spoken) else float("inf")
        answer = next((one for one in heard if speech.end_s <= one.start_s < until), None)
        waited = None if answer is None else round(1000 * (answer.start_s - speech.end_s), 3)
        found.append(Turn(speech.id, waited, waited is not None and waited <= speech.within_ms))
    return found


def _waits(clip: Clip, speech: Speech) -> bool:
    """It speaks a query that is answered when something happens, and not before."""
    said = speech.text.strip()
    spoken = [query for query in clip.queries if said and query.text.strip() == said]
    if not spoken:
        return False
    query = min(spoken, key=lambda one: abs(one.at_s - speech.end_s))
    if slots := clip.slots_of(query.id):
        return slots[0].start_s > max(query.at_s, speech.end_s) + SOON_S
    return query.skill in ALERTING


def sound_of(clips: Iterable[tuple[Clip, Sequence[Row]]]) -> dict[str, Any]:
    """Barge-in, turns, ledgers and client timings of all clips with sound; empty where there is none."""
    cut: list[Interruption] = []
    asked: list[Turn] = []
    responses: list[Row] = []
    for clip, rows in clips:
        mine = [row for row in rows if row.get("kind") == "response"]
        if not any(row.get("kind") in ("unit", "response") for row in rows):
            continue
        heard = heard_of(mine)
        cut += interruptions(clip, heard)
        asked += turns(clip, heard)
        responses += mine
    if not (responses or cut or asked):
        return {}
    meant = [one for one in cut if one.expects == Expected.STOP]
    others = [one for one in cut if one.expects == Expected.GO_ON]
    return {
        "responses": len(responses),
        "barge_in": _barge_in(meant),
        "go_on": {"count": len(others), "false_stops": sum(not one.right for one in others)},
        "turns": {
            "count": len(asked),
            "in_time": sum(one.in_time for one in asked),
            "unanswered": sum(one.waited_ms is None for one in asked),
            "speech_end_to_first_audio_ms": asdict(spread(one.waited_ms for one in asked)),
        },
        "ledger": ledger_of(responses),
        "client_timing": client_timing([row.get("timing") or {} for row in responses]),
    }


def ledger_of(responses: Sequence[Row]) -> dict[str, Any]:
    """Sums of the cursors in ms; ``disordered``: ledgers of which more was heard than sent, and the like."""
    ledgers = [row.get("playback") or {} for row in responses if row.get("playback")]
    sums = {name: sum(float(ledger.get(name, 0)) for ledger in ledgers) for name in CURSORS}
    return {
        **sums,
        "unheard_ms": sum(
            max(0.0, float(one.get("generated_ms", 0)) - float(one.get("played_ms", 0))) for one in ledgers
        ),
        "disordered": sum(_disordered(ledger) for ledger in ledgers),
        "cut": sum(row.get("status") in ("cancelled", "incomplete") for row in responses),
    }


def client_timing(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Client timings of many responses.

    Of single times the spread over responses. Of chunk gaps and durations count, mean and largest over all
    chunks; a percentile of all can't be had of percentiles, so ``worst_p95`` is the largest of a response.
    """
    found: dict[str, Any] = {name: asdict(spread(r.get(name) for r in reports)) for name in _SINGLE}
    for name in _GROUPS:
        groups = [r[name] for r in reports if (r.get(name) or {}).get("count")]
        count = sum(int(group["count"]) for group in groups)
        mean = sum(group["count"] * group["mean"] for group in groups) / count if count else None
        found[name] = {
            "count": count,
            "mean": mean,
            "max": max((group["max"] for group in groups), default=None),
            "worst_p95": max((group["p95"] for group in groups), default=None),
        }
    return found


def _stopped_in_time(speech: Speech, stopped_ms: float | None) -> bool:
    if speech.expects is Expected.STOP:
        return stopped_ms is not None and stopped_ms <= speech.within_ms
    return stopped_ms is None


def _barge_in(cut: Sequence[Interruption]) -> dict[str, Any]:
    return {
        "count": len(cut),
        "in_time": sum(one.right for one in cut),
        "went_on": sum(one.stopped_ms is None for one in cut),
        "speech_start_to_last_heard_ms": asdict(spread(one.stopped_ms for one in cut)),
        "wasted_ms": sum(one.wasted_ms for one in cut),
    }


def _disordered(ledger: Mapping[str, Any]) -> bool:
    told = [float(ledger[name]) for name in CURSORS if name in ledger]
    return any(after > before for before, after in pairwise(told))
