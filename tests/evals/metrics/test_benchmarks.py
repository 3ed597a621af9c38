"""The tables of public benchmarks, from clips as their readers make them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from evals.metrics.benchmarks import tables_of
from evals.metrics.outcome import Asked, ClipOutcome, outcome_of
from evals.readers import open_dataset
from evals.scoring.tables import Table, score_tables
from tests.evals.metrics.made import acts
from tests.evals.readers.made import CHOICE, CORRECTION, DESCRIPTION, PROACTIVE, REC, REMINDER


def watched(
    tmp_path: Path,
    records: list[Any],
    said: Mapping[str, Mapping[float, str]],
    verdicts: Mapping[Asked, bool] = {},
) -> list[ClipOutcome]:
    """Every clip of the records, with what was said in it by id of the clip."""
    file = tmp_path / "set.json"
    file.write_bytes(orjson.dumps(records))
    return [
        outcome_of(clip, acts(clip, said.get(clip.id, {}), 120), 120.0, verdicts)
        for clip in open_dataset(file).clips
    ]


def shown(name: str, outcomes: list[ClipOutcome]) -> Table:
    scores: dict[str, Any] = {
        "groups": {},
        "clips": {},
        "sound": {},
        "cost": {"sums": {}, "per_hour": {}, "by_purpose": {}},
        "curve": {"points": []},
        "benchmarks": tables_of(outcomes),
    }
    return next(table for table in score_tables(scores) if table.title.startswith(name))


def test_ovo_is_a_mean_of_tasks_then_of_modes(tmp_path: Path) -> None:
    second = CHOICE | {"id": 4, "task": "STU"}
    said = {"OCR-3": {43.0: "C"}, "STU-4": {43.0: "ABC"}, "REC-11": {6.0: "1", 31.0: "1 of 3"}}
    outcomes = watched(tmp_path, [CHOICE, second, REC], said)
    table = tables_of(outcomes)["ovo"]
    assert table["tasks"]["realtime"] == {
        "OCR": {"official": 1, "strict": 1, "count": 1},
        "STU": {"official": 1, "strict": 0, "count": 1},
    }
    assert table["tasks"]["forward"]["REC"] == {"official": 0.5, "strict": 0.5, "count": 2}
    assert table["modes"]["realtime"] == {"official": 1, "strict": 0.5}
    assert table["total"] == {"official": 0.75, "strict": 0.5}
    assert ["mean of modes", "0.750", "0.500", ""] in list(map(list, shown("ovo", outcomes).rows))


def test_streamingbench_tells_times_and_outputs(tmp_path: Path) -> None:
    said = {"sample_17-1": {89.0: "13"}, "sample_17-2": {61.0: "foul", 70.0: "foul"}}
    outcomes = watched(tmp_path, [PROACTIVE], said)
    table = tables_of(outcomes)["streamingbench"]
    # The early "foul" ended its polling; ours takes what came in time, and "3" is not in "13".
    assert table == {"time": 0.5, "official": 0.5, "strict": 0.5, "count": 2}
    assert ["right time", "0.500", "-", "2"] in list(map(list, shown("streamingbench", outcomes).rows))


def test_omni_duplex_wants_every_reminder_of_a_clip(tmp_path: Path) -> None:
    said = {
        "PR_event_reminder-7": {16.0: "She sits.", 42.0: "Again."},
        "PR_correction-c": {5.0: "It is white."},
    }
    records = [REMINDER, CORRECTION, DESCRIPTION]
    unjudged = tables_of(watched(tmp_path, records, said))["omni_duplex"]["splits"]
    assert unjudged["PR_event_reminder"] == {"official": None, "strict": None, "count": 1, "unjudged": 1}
    assert "RTD_counting" not in unjudged
    cases = {
        case: True
        for outcome in watched(tmp_path, records, said)
        for found in outcome.slots
        if found.act
        for case in [Asked(outcome.clip.queries[0].text, found.slot.accepted, found.act.text)]
    }
    judged = tables_of(watched(tmp_path, records, said, cases))["omni_duplex"]["splits"]
    assert judged["PR_event_reminder"]["official"] == judged["PR_correction"]["strict"] == 1
    # One reminder missed is the clip missed, whoever judged the other.
    said["PR_event_reminder-7"] = {16.0: "She sits."}
    missed = watched(tmp_path, records, said)
    assert tables_of(missed)["omni_duplex"]["splits"]["PR_event_reminder"]["official"] == 0
    assert shown("omni_duplex", missed).rows


def test_other_data_sets_have_no_table() -> None:
    assert tables_of([]) == {}
    with pytest.raises(StopIteration):
        shown("ovo", [])
