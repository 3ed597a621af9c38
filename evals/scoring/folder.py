"""A run's folder as a scorer reads it: ``run.json``, and of each clip its truth and its decisions.

The folder of a single ``vigil replay`` is a run of one clip, once its truth lies in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from evals.files import BadFile, read_object, write_json
from evals.metrics.cost import Sums, spent
from evals.readers.clip import Clip, Speech
from evals.readers.jsonl import DatasetError, dump_clip, parse_clip, read_clips
from evals.replay.folder import DECISIONS, SUMMARY, BadRow, read_rows, read_summary
from evals.runs.clips import RECORD, TAPE, read_record
from evals.runs.manifest import RunError, read_manifest
from evals.runs.tape_reader import TapeError, read_tape
from evals.stats import Row
from orchestrator.files import write_whole

RUN, CLIP, CLIPS, SCORES, VERDICTS = "run.json", "clip.json", "clips", "scores.json", "judge.jsonl"
SCORES_FORMAT = "vigil-scores-3"
"""Raised when what ``scores.json`` holds changes its meaning."""


class UnusableRun(Exception):
    """:param message: which folder or file, and what is wrong with it"""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class RunClip:
    """:param outcome: ``complete``, ``failed``, ``interrupted``; ``missing`` where nothing was written
    :param spent: on requests, by what they were for; empty where the run kept no tape
    :param asked: questions that are no part of the clip's sound, as the run has had them spoken
    """

    clip: Clip
    outcome: str
    rows: Sequence[Row]
    spent: Mapping[str, Sums]
    asked: Sequence[Speech] = ()

    @property
    def heard(self) -> Clip:
        """The clip with all the speech that the model heard."""
        return self.clip.model_copy(update={"speech": (*self.clip.speech, *self.asked)})

    @property
    def watched_s(self) -> float:
        """Media time up to the end of the newest decision's period."""
        ends = [float(row["end_ms"]) / 1000 for row in self.rows if row.get("kind") == "unit"]
        if ends:
            return max(ends)
        times = [float(row["media_time_s"]) for row in self.rows if row.get("media_time_s") is not None]
        if not times:
            return 0.0
        return times[-1] + (median(b - a for a, b in pairwise(times)) if len(times) > 1 else 1.0)

    @property
    def truth_digest(self) -> str:
        """Of everything that judges it; equal in two runs over the same annotation."""
        return hashlib.sha256(dump_clip(self.clip)).hexdigest()


@dataclass(frozen=True, slots=True)
class Run:
    path: Path
    facts: Mapping[str, Any]
    clips: Sequence[RunClip]

    @property
    def digest(self) -> str:
        """Of all that is judged and of what it is judged by."""
        whole = hashlib.sha256()
        for one in self.clips:
            asked = [(speech.id, speech.start_s, speech.end_s) for speech in one.asked]
            told = [one.clip.id, one.outcome, one.truth_digest, one.rows, asked]
            whole.update(orjson.dumps(told, option=orjson.OPT_NON_STR_KEYS))
        return whole.hexdigest()

    @property
    def not_begun(self) -> int:
        """Clips of the data set that nobody has watched yet."""
        known = (self.facts.get("dataset") or {}).get("clips")
        return max(0, int(known) - len(self.clips)) if known is not None else 0

    @property
    def complete(self) -> list[RunClip]:
        return [one for one in self.clips if one.outcome == "complete"]


def read_run(path: Path) -> Run:
    """Raises ``UnusableRun``."""
    try:
        if _single(path):
            if not (path / CLIP).is_file():
                raise UnusableRun(f"{path} is a replay without its truth: name the clip with --truth")
            return Run(path, {}, [_clip(path)])
        facts = read_manifest(path)
        # Stopped before its first clip it has no folder of them.
        begun = (path / CLIPS).iterdir() if (path / CLIPS).is_dir() else ()
        folders = sorted(p for p in begun if (p / CLIP).is_file())
        clips = [_clip(folder) for folder in folders]
        for folder, one in zip(folders, clips, strict=True):
            if one.clip.id != folder.name:
                raise BadFile(f"{folder / CLIP}: id: {one.clip.id!r} lies in the folder of another clip")
        return Run(path, facts, clips)
    except OSError as error:
        raise UnusableRun(f"{path} is no run: {error.strerror} ({error.filename})") from error
    except (BadFile, BadRow, DatasetError, RunError, TapeError) as error:
        raise UnusableRun(str(error)) from error


def keep_truth(path: Path, truth: Path) -> None:
    """Put the one clip of a file into the folder of a ``vigil replay``. Raises ``UnusableRun``."""
    try:
        clips = list(read_clips(truth))
    except DatasetError as error:
        raise UnusableRun(str(error)) from error
    if len(clips) != 1:
        raise UnusableRun(f"{truth} holds {len(clips)} clips; a replay has the truth of one")
    if not _single(path):
        raise UnusableRun(f"{path} is no folder of a vigil replay; a run of clips has its truth in it")
    write_whole(path / CLIP, dump_clip(clips[0]) + b"\n")


def read_scores(path: Path) -> dict[str, Any]:
    """What ``vigil eval score`` wrote of a run, if it is of the run as it is now. Raises ``UnusableRun``."""
    again = f"vigil eval score {path}"
    try:
        scores = read_object(path / SCORES)
    except FileNotFoundError:
        raise UnusableRun(f"{path} is not scored yet: {again}") from None
    except OSError as error:
        raise UnusableRun(f"{path / SCORES} can't be read: {error.strerror}") from error
    except BadFile as error:
        raise UnusableRun(f"{error}; score it again: {again}") from error
    if scores.get("format") != SCORES_FORMAT:
        raise UnusableRun(f"{path} was scored by another version: {again}")
    if scores.pop("digest", None) != _digest(scores):
        raise UnusableRun(f"{path / SCORES} was changed since it was written: {again}")
    # Scores alone, without their run, are all there is to go by.
    if (path / RUN).is_file() and scores["record"] != read_run(path).digest:
        raise UnusableRun(f"{path} has gone on since it was scored: {again}")
    return scores


def write_scores(path: Path, scores: Mapping[str, Any]) -> None:
    """Leave ``scores.json`` in a run's folder, with a digest of what it says. Raises ``OSError``."""
    write_json(path / SCORES, {**scores, "digest": _digest(scores)})


def _digest(scores: Mapping[str, Any]) -> str:
    """The same of what is written and of what is read of it."""
    plain = orjson.loads(orjson.dumps(scores, option=orjson.OPT_NON_STR_KEYS))
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _single(path: Path) -> bool:
    return (path / DECISIONS).is_file() and not (path / RUN).exists()


def _clip(folder: Path) -> RunClip:
    clip = parse_clip((folder / CLIP).read_bytes(), str(folder / CLIP))
    rows = read_rows(folder / DECISIONS) if (folder / DECISIONS).is_file() else []
    outcome = "missing"
    if (folder / SUMMARY).is_file():
        outcome = read_summary(folder)["outcome"]
    elif session := [row for row in rows if row.get("kind") == "session"]:
        outcome = "complete" if session[-1].get("ok") else "failed"
    elif rows:
        outcome = "interrupted"
    if (folder / TAPE).is_file():
        return RunClip(clip, outcome, rows, spent(read_tape(folder / TAPE)))
    asked = read_record(folder).get("asked", ()) if (folder / RECORD).is_file() else ()
    return RunClip(clip, outcome, rows, {}, [_speech(clip, one) for one in asked])


def _speech(clip: Clip, asked: Mapping[str, Any]) -> Speech:
    """A question as it was spoken."""
    text = next((query.text for query in clip.queries if query.id == asked["query"]), "")
    return Speech(id=f"asked-{asked['query']}", start_s=asked["start_s"], end_s=asked["end_s"], text=text)
