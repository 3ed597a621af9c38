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

from evals.metrics.cost import Sums, spent
from evals.readers.clip import Clip
from evals.readers.jsonl import DatasetError, dump_clip, parse_clip, read_clips
from evals.replay.folder import DECISIONS, SUMMARY, BadRow, read_rows
from evals.runs.clips import TAPE
from evals.runs.manifest import FORMAT as RUN_FORMAT
from evals.runs.tape import TapeError, read_tape
from evals.stats import Row
from orchestrator.files import write_whole

RUN, CLIP, CLIPS, SCORES, VERDICTS = "run.json", "clip.json", "clips", "scores.json", "judge.jsonl"
SCORES_FORMAT = "vigil-scores-2"
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
    """

    clip: Clip
    outcome: str
    rows: Sequence[Row]
    spent: Mapping[str, Sums]

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
            told = [one.clip.id, one.outcome, one.truth_digest, one.rows]
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
        facts = _json(path / RUN)
        if facts.get("format") != RUN_FORMAT:
            raise UnusableRun(f"{path / RUN} is of another format than {RUN_FORMAT}")
        # Stopped before its first clip it has no folder of them.
        begun = (path / CLIPS).iterdir() if (path / CLIPS).is_dir() else ()
        folders = sorted(p for p in begun if (p / CLIP).is_file())
        return Run(path, facts, [_clip(folder) for folder in folders])
    except OSError as error:
        raise UnusableRun(f"{path} is no run: {error.strerror} ({error.filename})") from error
    except (DatasetError, TapeError, BadRow) as error:
        raise UnusableRun(f"{path}: {error}") from error


def _json(path: Path) -> dict[str, Any]:
    """An object from a file. Raises ``UnusableRun``, or ``OSError``."""
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise UnusableRun(f"{path} holds no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UnusableRun(f"{path} holds no JSON object")
    return found


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
        scores = _json(path / SCORES)
    except FileNotFoundError:
        raise UnusableRun(f"{path} is not scored yet: {again}") from None
    except OSError as error:
        raise UnusableRun(f"{path / SCORES} can't be read: {error.strerror}") from error
    if scores.get("format") != SCORES_FORMAT:
        raise UnusableRun(f"{path} was scored by another version: {again}")
    # Scores alone, without their run, are all there is to go by.
    if (path / RUN).is_file() and scores["record"] != read_run(path).digest:
        raise UnusableRun(f"{path} has gone on since it was scored: {again}")
    return scores


def _single(path: Path) -> bool:
    return (path / DECISIONS).is_file() and not (path / RUN).exists()


def _clip(folder: Path) -> RunClip:
    clip = parse_clip((folder / CLIP).read_bytes(), f"{folder.name}/{CLIP}")
    rows = read_rows(folder / DECISIONS) if (folder / DECISIONS).is_file() else []
    outcome = "missing"
    if (folder / SUMMARY).is_file():
        outcome = str(_json(folder / SUMMARY).get("outcome") or "failed")
    elif session := [row for row in rows if row.get("kind") == "session"]:
        outcome = "complete" if session[-1].get("ok") else "failed"
    elif rows:
        outcome = "interrupted"
    tape = folder / TAPE
    return RunClip(clip, outcome, rows, spent(read_tape(tape)) if tape.is_file() else {})
