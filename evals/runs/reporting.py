"""``vigil eval report``: the page of a run, from its folder."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from evals.replay.folder import REPORT
from evals.report.suite import GALLERY_CAP, ReportClip, render_suite
from evals.report.thumbs import thumbnail
from evals.runs.audit import read_audit
from evals.runs.clips import RECORD, TAPE, read_record
from evals.runs.keeper import Pictures
from evals.runs.manifest import CLIPS, FRAMES, read_manifest
from evals.runs.tape_reader import read_tape
from evals.scoring.folder import VERDICTS, Run, UnusableRun, read_run, read_scores, write_scores
from evals.scoring.judge import VerdictFile
from evals.scoring.scores import scores_of
from orchestrator.files import write_whole


def report(run: Path) -> Path:
    """Write ``report.html`` into a run's folder; a run that is not scored as it is now is scored, by the
    verdicts that a judge has left there.

    :raises RunError: it is no run; ``BadFile``, ``UnusableRun``: not all of it can be read
    """
    manifest, found = read_manifest(run), read_run(run)
    scores = _scores(run, found)
    clips = [ReportClip(c.heard, c.outcome, c.rows, _page(run, c.clip.id)) for c in found.clips]
    page = run / REPORT
    thumbs = _thumbs(run, found, scores)
    write_whole(page, render_suite(manifest, scores, clips, thumbs, _audit(run, scores)).encode())
    return page


def _scores(run: Path, found: Run) -> Mapping[str, Any]:
    try:
        return read_scores(run)
    except UnusableRun:
        file = VerdictFile(run / VERDICTS)
        settings = file.settings()
        scores = scores_of(found, file.verdicts(settings) if settings else {}, settings)
        write_scores(run, scores)
        return scores


def _audit(run: Path, scores: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What ``vigil eval audit`` found of these scores, if it was asked."""
    try:
        found = read_audit(run)
    except FileNotFoundError:
        return None
    return found if found["record"] == scores["record"] else None


def _page(run: Path, clip: str) -> str | None:
    return f"{CLIPS}/{clip}/{REPORT}" if (run / CLIPS / clip / REPORT).is_file() else None


def _thumbs(run: Path, found: Run, scores: Mapping[str, Any]) -> dict[int, str]:
    """The newest frame of each wrong decision that is shown, as far as it is still there, by its place among
    them."""
    wanted: defaultdict[str, list[tuple[int, Mapping[str, Any]]]] = defaultdict(list)
    for number, entry in enumerate(scores["wrong"][:GALLERY_CAP]):
        wanted[entry["clip"]].append((number, entry))
    pictures, thumbs = Pictures(run / FRAMES), dict[int, str]()
    for one in found.clips:
        if one.clip.id not in wanted:
            continue
        shown = _shown(run / CLIPS / one.clip.id)
        times = {row["tick"]: row.get("media_time_s") for row in one.rows if row.get("tick") is not None}
        for number, entry in wanted[one.clip.id]:
            # Of a tick the frame that it decided on; of what is heard the one in sight when it was said.
            at_s = times.get(entry["tick"]) if times else entry["media_time_s"]
            place = bisect_right(shown, round(1000 * at_s), key=itemgetter(0)) if at_s is not None else 0
            if place and (small := _thumbnail(pictures, shown[place - 1][1])) is not None:
                thumbs[number] = small
    return thumbs


def _shown(clip: Path) -> list[tuple[int, str]]:
    """Media times in ms and digests of a clip's frames, in order."""
    if (clip / TAPE).is_file():
        frames = [moment.data for moment in read_tape(clip / TAPE) if moment.what == "frame"]
        return [(frame["media_time_ms"], frame["sha256"]) for frame in frames]
    if not (clip / RECORD).is_file():
        return []
    return [(int(at), str(sha256)) for at, sha256 in read_record(clip)["shown"]]


def _thumbnail(pictures: Pictures, sha256: str) -> str | None:
    try:
        return thumbnail(pictures.read(sha256))
    except KeyError:
        return None
