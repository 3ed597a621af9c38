"""JoyAI's records: questions and responses with the second at which each belongs.

Two shapes are read. As published: ``video_name, task_type, source, question: [{content, time}], response:
[{content, time}]``, where a time may be a list ("5,6,7": the response is given at each) and lists may nest.
As converted for training: ``messages``, a user and an assistant for each second, the user's text being an
optional question, then ``<4.0 seconds>``, then pictures.

Times are floored to the second, and of two in one second the later counts, as the published converter has it.
A label of second 5 may mean anything from 5.0 to 6.0, so a reply is right from ``EARLY_S`` before it on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from evals.readers.clip import Clip, Judging, Kind, Query, Slot
from evals.readers.records import Record, clip_id, to_seconds

NAME = "joyai"
EARLY_S, LATE_S = 1.0, 5.0
"""How far from its label a response is right; the source defines no tolerance."""

SOON_S = 1.0
"""A response so soon after its question answers it; a later one is an alert."""

_TIME = re.compile(r"<\s*(\d+(?:\.\d+)?)\s*seconds\s*>")
_SAID = re.compile(r"^\s*</?response>\s*(.*)$", re.DOTALL)
_MARKS = re.compile(r"<image>|</?(?:silence|response|delegation|delegate)>")

_Timed = dict[int, str]


def fits(record: Mapping[str, Any]) -> bool:
    return "video_name" in record and (
        {"question", "response"} <= record.keys() or isinstance(record.get("messages"), list)
    )


def clips_of(records: Sequence[Record]) -> Iterator[Clip]:
    for number, record in enumerate(records):
        with record.checked():
            asked, said = _converted(record) if "messages" in record.value else _published(record)
            clip = _clip(record, number, asked, said)
        yield clip


def _clip(record: Record, number: int, asked: _Timed, said: _Timed) -> Clip:
    if not asked:
        raise record.wrong("question", "nothing is asked; a clip needs a question")
    video = record.text("video_name")
    queries = tuple(
        Query(id=f"q{n}", at_s=float(at), text=text, skill=record.text("task_type", default="chat"))
        for n, (at, text) in enumerate(sorted(asked.items()), 1)
    )
    owned: dict[str, list[int]] = {}
    unasked = 0
    for at in sorted(said):
        before = [query for query in queries if query.at_s <= at]
        if before:
            owned.setdefault(before[-1].id, []).append(at)
        else:
            unasked += 1
    slots = [
        _slot(query, at, times, said)
        for query in queries
        for times in [owned.get(query.id, [])]
        for at in times
    ]
    return Clip(
        id=clip_id(PurePath(video).stem, number + 1),
        dataset=NAME,
        tags=(record.text("task_type", default="unknown"), record.text("source", default="unknown")),
        video=video,
        queries=queries,
        slots=tuple(slots),
        meta={"responses_before_any_question": unasked} if unasked else {},
    )


def _slot(query: Query, at: int, times: Sequence[int], said: _Timed) -> Slot:
    alone = Kind.ANSWER if at - query.at_s <= SOON_S else Kind.ALERT
    return Slot(
        id=f"{query.id}-{at}",
        query=query.id,
        kind=Kind.REPEAT if len(times) > 1 else alone,
        start_s=max(query.at_s, at - EARLY_S),
        onset_s=float(at),
        end_s=at + LATE_S,
        accepted=(said[at],),
        judging=Judging.JUDGE,
    )


def _published(record: Record) -> tuple[_Timed, _Timed]:
    return _timed(record, "question"), _timed(record, "response")


def _timed(record: Record, field: str) -> _Timed:
    found: _Timed = {}
    for place, entry in enumerate(_flat(record.list_of(field))):
        where = f"{field}.{place}"
        if not isinstance(entry, Mapping):
            raise record.wrong(where, "expected an object with content and time")
        content = str(entry.get("content") or "").strip()
        if not content:
            raise record.wrong(f"{where}.content", "is missing or empty")
        for part in str(entry.get("time", "")).split(","):
            at = to_seconds(part)
            if at is None or at < 0:
                raise record.wrong(f"{where}.time", f"{part.strip()!r} is no number of seconds")
            found[int(at)] = content
    return found


def _flat(values: Sequence[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from _flat(value)
        else:
            yield value


def _converted(record: Record) -> tuple[_Timed, _Timed]:
    asked: _Timed = {}
    said: _Timed = {}
    at: int | None = None
    for place, message in enumerate(record.list_of("messages")):
        where = f"messages.{place}"
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise record.wrong(where, "expected an object with role and content")
        role, content = message.get("role"), message["content"]
        if role == "user":
            tag = _TIME.search(content)
            if tag is None:
                raise record.wrong(f"{where}.content", "holds no <S.0 seconds>")
            at = int(float(tag[1]))
            if text := _MARKS.sub("", content[: tag.start()]).strip():
                asked[at] = text
        elif role == "assistant" and at is not None:
            match = _SAID.match(content)
            if match and (text := _MARKS.sub(" ", match[1]).strip()):
                said[at] = text
    return asked, said
