"""OVO-Bench: backward, real-time and forward questions.

Backward and real-time tasks are multiple choice, asked at ``realtime``. Forward tasks are probed at the times
of ``test_info``: is there enough to answer (CRR), is this step going on (SSR), how often so far (REC). The
stream is watched once, and each probe is a query of its own; probes that come too close to each other are
spread over several streams. A question comes with the last whole second before its time: the benchmark shows
nothing after it, and its cut videos end there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.readers.clip import Clip, Judging, Kind, Official, Query, Slot
from evals.readers.records import Record, clip_id, lanes, to_seconds

NAME = "ovo"
MODES = {
    **dict.fromkeys(("EPM", "ASI", "HLD"), "backward"),
    **dict.fromkeys(("STU", "OJR", "ATR", "ACR", "OCR", "FPD"), "realtime"),
    **dict.fromkeys(("REC", "SSR", "CRR"), "forward"),
}
ANSWER_S = 5.0
"""How long after its question an answer counts; the benchmark itself knows no time."""

PROBE_S = 3.0
"""Probes of one stream are at least so far apart."""


@dataclass(frozen=True, slots=True)
class _Probe:
    """A question at a time, and what is right."""

    number: int
    at_s: float
    text: str
    kind: Kind
    accepted: str
    judging: Judging
    official: Official
    choices: tuple[str, ...] = ()


def fits(record: Mapping[str, Any]) -> bool:
    return record.get("task") in MODES and "video" in record


def clips_of(records: Sequence[Record]) -> Iterator[Clip]:
    for record in records:
        with record.checked():
            clips = _clips(record)
        yield from clips


def _clips(record: Record) -> list[Clip]:
    task = record.text("task")
    if task not in MODES:
        raise record.wrong("task", f"{task!r} is none of {', '.join(MODES)}")
    probes = list(_forward(record, task)) if MODES[task] == "forward" else [_choice(record)]
    rows = lanes(probes, lambda probe: (probe.at_s, probe.at_s + PROBE_S))
    return [_clip(record, task, row, number if len(rows) > 1 else None) for number, row in enumerate(rows, 1)]


def _clip(record: Record, task: str, row: Sequence[_Probe], lane: int | None) -> Clip:
    ends = [*(probe.at_s for probe in row[1:]), float("inf")]
    parts = [task, record.text("id"), *([lane] if lane is not None else [])]
    return Clip(
        id=clip_id(*parts),
        dataset=NAME,
        tags=(MODES[task], task),
        video=record.text("video"),
        queries=tuple(
            Query(id=f"q{probe.number}", at_s=probe.at_s, text=probe.text, skill=task) for probe in row
        ),
        slots=tuple(
            Slot(
                id=f"s{probe.number}",
                query=f"q{probe.number}",
                kind=probe.kind,
                start_s=probe.at_s,
                end_s=min(probe.at_s + ANSWER_S, end),
                accepted=(probe.accepted,),
                judging=probe.judging,
                official=probe.official,
                choices=probe.choices,
            )
            for probe, end in zip(row, ends, strict=True)
        ),
    )


def _asked_at(record: Record, field: str, value: Any) -> float:
    at = to_seconds(value)
    if at is None:
        raise record.wrong(field, "is no number of seconds")
    return float(max(0, math.ceil(at) - 1))


def _choice(record: Record) -> _Probe:
    options = tuple(str(option) for option in record.list_of("options"))
    right = record.value.get("gt")
    if not isinstance(right, int) or not 0 <= right < len(options):
        raise record.wrong("gt", f"expected the number of an option, 0 to {len(options) - 1}")
    at = _asked_at(record, "realtime", record.value.get("realtime"))
    listed = " ".join(f"{chr(65 + n)}. {option}" for n, option in enumerate(options))
    text = f"{record.text('question')} Options: {listed} Reply with the letter of one option alone."
    return _Probe(1, at, text, Kind.ANSWER, chr(65 + right), Judging.CHOICE, Official.OVO_CHOICE, options)


def _forward(record: Record, task: str) -> Iterator[_Probe]:
    for number, info in enumerate(record.list_of("test_info"), 1):
        where = f"test_info.{number - 1}"
        if not isinstance(info, Mapping):
            raise record.wrong(where, "expected an object")
        at = _asked_at(record, f"{where}.realtime", info.get("realtime"))
        if task == "REC":
            count = info.get("count")
            if not isinstance(count, int):
                raise record.wrong(f"{where}.count", "expected a whole number")
            text = (
                f"How many times did they {record.text('activity')}, counting everyone up to now? "
                "Reply with one number alone."
            )
            yield _Probe(number, at, text, Kind.COUNT, str(count), Judging.NUMBER, Official.OVO_COUNT)
            continue
        if info.get("type") not in (0, 1):
            raise record.wrong(f"{where}.type", "expected 0 (No) or 1 (Yes)")
        right = "Yes" if info["type"] else "No"
        yield _Probe(
            number, at, _yes_no(record, task, info), Kind.ANSWER, right, Judging.YES_NO, Official.OVO_YES_NO
        )


def _yes_no(record: Record, task: str, info: Mapping[str, Any]) -> str:
    if task == "SSR":
        step = info.get("step") or record.text("step")
        return f'Is this step of the tutorial being done right now: "{step}"? Reply with Yes or No alone.'
    return (
        f"Has what was shown up to now made it possible to answer this question: "
        f'"{record.text("question")}"? Reply with Yes or No alone.'
    )
