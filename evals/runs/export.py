"""A run as Omni-DuplexEval's own scorer reads it (``benchmarks/duplex`` of vllm-omni 0.30).

``ROOT/responses/SPLIT/ID.json`` is a list of ``{sentence, start, end}`` on the media clock, beside it
``ID.meta.json``; ``ROOT/dataset.jsonl`` are the samples that the scorer is to be given with them. Clips of
that benchmark keep their names. Of other clips each query that waits for one or two events becomes a sample
of ``PR_event_reminder``; the scorer has no task for the other ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path, PurePath
from typing import Any

import orjson

from evals.files import write_json
from evals.readers import omni_duplex
from evals.readers.clip import Clip, Kind, Query
from evals.readers.records import clip_id
from evals.runs.manifest import Kind as EngineKind
from evals.runs.manifest import read_manifest
from evals.scoring.folder import RunClip, UnusableRun, read_run
from evals.stats import Row
from orchestrator.files import write_whole

RESPONSES, DATASET = "responses", "dataset.jsonl"
REMINDER_SPLIT = "PR_event_reminder"
REMINDERS = 2
"""Events of one sample that the scorer looks at."""

_SENTENCE = re.compile(r"\S.*?(?:[.!?。！？]+(?=\s|$)|(?<=[。！？])|$)", re.DOTALL)


Reply = Sequence[tuple[float, str]]


@dataclass(frozen=True, slots=True)
class Sample:
    """
    :param row: as the scorer's data set has it
    :param said: what was said while it stood, reply by reply, each in pieces with the media time in s at
        which they came
    """

    id: str
    split: str
    row: Mapping[str, Any]
    said: Sequence[Reply]
    complete: bool


@dataclass(frozen=True, slots=True)
class Exported:
    """``left_out``: queries for which the scorer has no task."""

    samples: int
    left_out: int


def export(run: Path, root: Path) -> Exported:
    """Write the artifact of a run. Raises ``RunError`` or ``UnusableRun``."""
    manifest, found = read_manifest(run), read_run(run)
    samples = [sample for one in found.clips for sample in samples_of(one)]
    asked = sum(len(one.clip.queries) for one in found.clips)
    for sample in samples:
        folder = root / RESPONSES / sample.split
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{sample.id}.json", list(timed_sentences(sample.said)))
        write_json(folder / f"{sample.id}.meta.json", _meta(sample, manifest))
    root.mkdir(parents=True, exist_ok=True)
    write_whole(root / DATASET, b"".join(orjson.dumps(sample.row) + b"\n" for sample in samples))
    return Exported(len(samples), asked - len(samples))


def samples_of(one: RunClip) -> Iterator[Sample]:
    clip = one.clip
    if clip.dataset == omni_duplex.NAME:
        yield _benchmark_sample(one)
        return
    ordered = sorted(clip.queries, key=lambda query: query.at_s)
    for index, query in enumerate(ordered):
        times = [s.due_s for s in clip.slots_of(query.id) if s.kind in (Kind.ALERT, Kind.REPEAT)]
        if times and len(times) == len(clip.slots_of(query.id)) and len(times) <= REMINDERS:
            later = ordered[index + 1].at_s if index + 1 < len(ordered) else None
            yield _own_sample(one, query, times, later)


def _benchmark_sample(one: RunClip) -> Sample:
    clip = one.clip
    if not clip.queries or not isinstance(clip.meta.get("split"), str):
        raise UnusableRun(f"{clip.id}/clip.json: meta.split: a clip of {clip.dataset} has one, and a query")
    split, told = _plain(clip.meta["split"]), clip.meta.get("answers")
    answers = [str(answer) for answer in told] if isinstance(told, list | tuple) else []
    name = _plain(str(clip.meta.get("id") or clip.id.removeprefix(f"{split}-")))
    times = [slot.start_s for slot in clip.slots if slot.kind is not Kind.ANSWER]
    return Sample(
        name,
        split,
        _row(clip, name, split, clip.queries[0].text, answers, times),
        _said(one.rows, 0.0, None),
        one.outcome == "complete",
    )


def _plain(name: str) -> str:
    """A name of a file in its folder, whatever a data set says."""
    return name if PurePath(name).name == name else clip_id(name)


def _own_sample(one: RunClip, query: Query, times: Sequence[float], later: float | None) -> Sample:
    clip = one.clip
    slots = clip.slots_of(query.id)
    name = f"{clip.id}.{query.id}"
    end = later if query.until_s is None else min(query.until_s, later or query.until_s)
    row = _row(clip, name, REMINDER_SPLIT, query.text, [a for s in slots for a in s.accepted[:1]], times)
    return Sample(name, REMINDER_SPLIT, row, _said(one.rows, query.at_s, end), one.outcome == "complete")


def _row(
    clip: Clip, name: str, split: str, question: str, answers: Sequence[str], times: Sequence[float]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": name,
        "split": split,
        "video": clip.video,
        "question_text": question,
        "video_duration": clip.duration_s,
    }
    row |= {f"answer{number}": answer for number, answer in enumerate(answers[:2], 1)}
    return row | {f"reminder{number}": at for number, at in enumerate(times, 1)}


def _said(rows: Sequence[Row], start: float, end: float | None) -> list[Reply]:
    """Of a tick all is said at the time of its frame; what is heard comes piece by piece."""
    said: list[Reply] = []
    for row in rows:
        if row.get("kind") == "response":
            pieces = [(float(piece["at_s"]), str(piece["text"])) for piece in row.get("pieces") or ()]
        else:
            pieces = [(float(row.get("media_time_s") or 0.0), str(row.get("text") or ""))]
        if kept := [(at, text) for at, text in pieces if text and at >= start and (end is None or at < end)]:
            said.append(kept)
    return said


def timed_sentences(said: Sequence[Reply]) -> Iterator[dict[str, Any]]:
    """Each sentence with the media times at which its first and its last piece came."""
    for reply in said:
        ends = list(accumulate(len(text) for _, text in reply))
        for match in _SENTENCE.finditer("".join(text for _, text in reply)):
            if sentence := match.group().strip():
                first, last = (
                    reply[bisect_right(ends, at)][0]
                    for at in (match.start(), match.start() + len(sentence) - 1)
                )
                yield {"sentence": sentence, "start": round(first, 3), "end": round(last, 3)}


def _meta(sample: Sample, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """``clock`` is ``media`` where frames came at their time; the scorer wants to be told to take others.

    Full-duplex engines are shown a picture a second, whatever their unit.
    """
    period_ms = int(manifest["period_ms"])
    native = manifest["kind"] == EngineKind.NATIVE
    realtime = manifest["pace"] == "realtime"
    return {
        "id": sample.id,
        "split": sample.split,
        "clock": "media" if realtime else "invalid",
        "pace": "realtime" if realtime else "as-fast-as-possible",
        "mix": "soundtrack+question" if native else "question",
        "fps": 1.0 if native else 1000 / period_ms,
        "unit_ms": period_ms,
        "model": manifest["engine"]["model"],
        "response_done": sample.complete,
        "drain_timeout": None,
        "close_timeout": None,
        "ref_audio_sha256": manifest["session"]["ref_audio_sha256"] if native else None,
    }
