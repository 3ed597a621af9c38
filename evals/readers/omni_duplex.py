"""Omni-DuplexEval: reminders, corrections and descriptions in real time.

Rows: ``id, split, question_text, question_audio, answer1, answer2, reminder1, reminder2, video_duration,
video_type, video``, by these names or the other ones that its tools take. A reminder is right within ten
seconds from its time on, never before. A correction may come at any time. Descriptions are judged against the
pictures by the benchmark's own scorer alone; here they have queries and no slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evals.readers.clip import Clip, Judging, Kind, Official, Query, Slot
from evals.readers.records import Record, clip_id, to_seconds

NAME = "omni_duplex"
WINDOW_S = 10.0
REMINDERS = 3
LONGEST_S = 24 * 3600.0
"""End of a correction's window where the length of the video is not told."""

HAPPENED = "It says that what the instruction waits for has happened."
"""What is right for a reminder whose row holds no answer."""

_SPLIT = ("split", "subset", "config")
_ANSWERS = ("answer1", "answer2", "answer", "ground_answer")
_QUESTION = ("question_text", "question", "instruction")


def fits(record: Mapping[str, Any]) -> bool:
    return any(name in record for name in ("question_text", "instruction")) and (
        any(str(record.get(name, "")).upper().startswith(("RTD", "PR")) for name in _SPLIT)
        or any(name.startswith("reminder") for name in record)
    )


def clips_of(records: Sequence[Record]) -> Iterator[Clip]:
    for record in records:
        with record.checked():
            clip = _clip(record)
        yield clip


def _clip(record: Record) -> Clip:
    split = record.text(*_SPLIT, "task_type", "task")
    duration = record.seconds("video_duration", "duration")
    query = Query(
        id="q1",
        text=record.text(*_QUESTION),
        skill=split,
        audio=_file(_first(record.value, "question_audio", "audio", "question_wav")),
        judged=not _described(split),
    )
    video = _file(_first(record.value, "video", "video_path", "video_file"))
    if video is None:
        raise record.wrong("video", "names no file; videos inside a table must be written out first")
    answers = [a for name in _ANSWERS if (a := record.text(name, default=""))]
    name = record.text("id", "sample_id", "uid", "name")
    return Clip(
        id=clip_id(split, name),
        dataset=NAME,
        tags=(split, record.text("video_type", default="unknown")),
        video=video,
        duration_s=duration,
        queries=(query,),
        slots=tuple(_slots(record, split, answers, duration)),
        meta={"split": split, "id": name, "answers": answers},
    )


def _described(split: str) -> bool:
    return split.upper().startswith("RTD")


def _slots(record: Record, split: str, answers: Sequence[str], duration: float | None) -> Iterator[Slot]:
    if _described(split):
        return
    if "correction" in split.lower():
        if not answers:
            raise record.wrong("answer1", "a correction needs the right statement")
        end = LONGEST_S if duration is None else duration
        yield _slot("s1", Kind.ANSWER, 0.0, end, answers[:1])
        return
    times = [at for n in range(1, REMINDERS + 1) if (at := _reminder(record, n)) is not None]
    if not times:
        raise record.wrong("reminder1", "a reminder needs its time in seconds")
    kind = Kind.REPEAT if len(times) > 1 else Kind.ALERT
    for number, at in enumerate(times, 1):
        yield _slot(f"s{number}", kind, at, at + WINDOW_S, answers[:1] or [HAPPENED])


def _slot(name: str, kind: Kind, start: float, end: float, accepted: Sequence[str]) -> Slot:
    return Slot(
        id=name,
        query="q1",
        kind=kind,
        start_s=start,
        end_s=end,
        accepted=tuple(accepted),
        judging=Judging.JUDGE,
        official=Official.OMNI_DUPLEX,
    )


def _reminder(record: Record, number: int) -> float | None:
    value = _first(record.value, f"reminder{number}", f"reminder_{number}")
    return to_seconds(value.get("start") if isinstance(value, Mapping) else value)


def _first(values: Mapping[str, Any], *names: str) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)


def _file(value: Any) -> str | None:
    """A file's name, as text or as the ``path`` of a table's media cell."""
    if isinstance(value, Mapping):
        value = value.get("path")
    return value if isinstance(value, str) and value else None
