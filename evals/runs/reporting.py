"""``vigil eval report``: the page of a run, from its folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from evals.files import write_json, write_whole
from evals.replay.folder import REPORT
from evals.report.suite import GALLERY_CAP, ReportClip, render_suite
from evals.report.thumbs import thumbnail
from evals.runs.audit import AUDIT
from evals.runs.clips import TAPE
from evals.runs.keeper import Pictures
from evals.runs.manifest import CLIPS, FRAMES, read_manifest
from evals.runs.tape import read_tape
from evals.scoring.folder import SCORES, Run, read_run, read_scores
from evals.scoring.scores import scores_of


def report(run: Path) -> Path:
    """Write ``report.html`` into a run's folder; a run that is not scored yet is scored, without a judge.

    :raises RunError: it is no run; ``UnusableRun``, ``TapeError``: not all of it can be read
    """
    manifest, found = read_manifest(run), read_run(run)
    if not (run / SCORES).exists():
        write_json(run / SCORES, scores_of(found, {}))
    scores = read_scores(run)
    clips = [ReportClip(c.clip, c.outcome, c.rows, _page(run, c.clip.id)) for c in found.clips]
    page = run / REPORT
    thumbs = _thumbs(run, found, scores)
    write_whole(page, render_suite(manifest, scores, clips, thumbs, _audit(run)).encode())
    return page


def _audit(run: Path) -> Mapping[str, Any] | None:
    """What ``vigil eval audit`` found, if it was asked."""
    try:
        found: dict[str, Any] = orjson.loads((run / AUDIT).read_bytes())
    except (OSError, ValueError):
        return None
    return found


def _page(run: Path, clip: str) -> str | None:
    return f"{CLIPS}/{clip}/{REPORT}" if (run / CLIPS / clip / REPORT).is_file() else None


def _thumbs(run: Path, found: Run, scores: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """The newest frame of each wrong decision that is shown, as far as it is still there."""
    wanted: defaultdict[str, set[int]] = defaultdict(set)
    for entry in scores["wrong"][:GALLERY_CAP]:
        if entry["tick"] is not None:
            wanted[entry["clip"]].add(int(entry["tick"]))
    pictures, thumbs = Pictures(run / FRAMES), dict[tuple[str, int], str]()
    for one in found.clips:
        if one.clip.id not in wanted or not (run / CLIPS / one.clip.id / TAPE).is_file():
            continue
        shown = _frames(run / CLIPS / one.clip.id / TAPE)
        for row in one.rows:
            tick, at_ms = int(row["tick"]), round(1000 * float(row.get("media_time_s") or 0.0))
            if tick in wanted[one.clip.id] and at_ms in shown:
                small = _thumbnail(pictures, shown[at_ms])
                if small is not None:
                    thumbs[one.clip.id, tick] = small
    return thumbs


def _frames(tape: Path) -> dict[int, str]:
    """Digests of a clip's frames by their media times in ms."""
    moments = read_tape(tape)
    return {m.data["media_time_ms"]: m.data["sha256"] for m in moments if m.what == "frame"}


def _thumbnail(pictures: Pictures, sha256: str) -> str | None:
    try:
        return thumbnail(pictures.read(sha256))
    except KeyError:
        return None
