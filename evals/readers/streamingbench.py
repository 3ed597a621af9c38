"""StreamingBench, proactive output: "when that happens, say this".

A file holds videos with ``questions``, or the questions one by one. An output is right within two seconds of
its labelled time. Questions of one video whose times overlap are spread over several streams, since a stream
has one standing query; each is withdrawn when the benchmark would have stopped to poll.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from evals.readers.clip import Clip, Judging, Kind, Official, Query, Slot
from evals.readers.records import Record, clip_id, lanes, to_seconds

NAME = "streamingbench"

TIME_TOLERANCE_S = 2.0
"""How far from its labelled time an output may come."""

LAST_POLL_S = 4.0
"""The benchmark polls from a second after the question to this long after the labelled time."""


@dataclass(frozen=True, slots=True)
class _Question:
    record: Record
    number: int
    video: str
    text: str
    asked_s: float
    due_s: float
    output: str
    ability: str

    @property
    def over_s(self) -> float:
        return self.due_s + LAST_POLL_S + 1


def fits(record: Mapping[str, Any]) -> bool:
    questions = record.get("questions")
    if isinstance(questions, list) and questions:
        record = questions[0]
    return "ground_truth_time_stamp" in record and "ground_truth_output" in record


def clips_of(records: Sequence[Record]) -> Iterator[Clip]:
    by_video: dict[str, list[_Question]] = {}
    for record in records:
        for question in _questions(record):
            of_video = by_video.setdefault(question.video, [])
            of_video.append(question)
    for video, questions in by_video.items():
        for lane, row in enumerate(lanes(questions, lambda q: (q.asked_s, q.over_s)), 1):
            with row[0].record.checked():
                clip = _clip(video, row, lane)
            yield clip


def _clip(video: str, row: Sequence[_Question], lane: int) -> Clip:
    names = [f"{question.record.number}.{question.number}" for question in row]
    return Clip(
        id=clip_id(PurePath(video).stem, lane),
        dataset=NAME,
        tags=("proactive",),
        video=video,
        queries=tuple(
            Query(id=f"q{name}", at_s=q.asked_s, until_s=q.over_s, text=q.text, skill=q.ability)
            for name, q in zip(names, row, strict=True)
        ),
        slots=tuple(
            Slot(
                id=f"s{name}",
                query=f"q{name}",
                kind=Kind.ALERT,
                start_s=max(q.asked_s, q.due_s - TIME_TOLERANCE_S),
                onset_s=q.due_s,
                end_s=q.due_s + TIME_TOLERANCE_S,
                accepted=(q.output,),
                judging=Judging.CONTAINS,
                official=Official.STREAMINGBENCH_PROACTIVE,
            )
            for name, q in zip(names, row, strict=True)
        ),
    )


def _questions(record: Record) -> Iterator[_Question]:
    listed = record.value.get("questions")
    nested = listed if isinstance(listed, list) else [record.value]
    for number, raw in enumerate(nested, 1):
        if not isinstance(raw, Mapping):
            raise record.wrong(f"questions.{number - 1}", "expected an object")
        field = f"questions.{number - 1}." if isinstance(listed, list) else ""
        inner = Record(record.file, record.number, raw)
        asked, due = to_seconds(raw.get("time_stamp")), to_seconds(raw.get("ground_truth_time_stamp"))
        for name, value in (("time_stamp", asked), ("ground_truth_time_stamp", due)):
            if value is None:
                raise record.wrong(f"{field}{name}", "expected hh:mm:ss")
        assert asked is not None and due is not None
        if due < asked:
            raise record.wrong(f"{field}ground_truth_time_stamp", "lies before the question's time_stamp")
        yield _Question(
            record,
            number,
            str(raw.get("video_path") or record.text("video_path", "video")),
            inner.text("question"),
            asked,
            due,
            inner.text("ground_truth_output"),
            inner.text("required_ability", "task_type", default="proactive"),
        )
