"""Vigil's own format: what is written is read back, and what is wrong is named by file, line and field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.readers.clip import Clip, Expected, Judging, Kind, Query, Silence, Slot, Speech
from evals.readers.jsonl import DatasetError, dump_clip, parse_clip, read_clips, write_clips

CLIP = Clip(
    id="c1",
    video="c1.mp4",
    duration_s=60,
    queries=(Query(id="q1", at_s=1, text="Say when the red square appears.", skill="alert"),),
    slots=(Slot(id="s1", query="q1", kind=Kind.ALERT, start_s=12, end_s=17),),
    silences=(Silence(start_s=30, end_s=40, why="nothing happens"),),
    speech=(Speech(id="b1", start_s=13, end_s=14, text="stop", expects=Expected.STOP),),
)


def raw(**changes: Any) -> dict[str, Any]:
    return orjson.loads(dump_clip(CLIP)) | changes


def slot(**changes: Any) -> dict[str, Any]:
    return {"id": "s1", "query": "q1", "kind": "answer", "start_s": 12, "end_s": 17} | changes


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    assert write_clips(file, [CLIP, CLIP.model_copy(update={"id": "c2"})]) == 2
    assert [c.id for c in read_clips(file)] == ["c1", "c2"]
    assert next(read_clips(file)) == CLIP
    assert list(tmp_path.iterdir()) == [file]


def test_comments_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"# two clips\n\n" + dump_clip(CLIP) + b"\n")
    assert list(read_clips(file)) == [CLIP]


@pytest.mark.parametrize(
    ("record", "field", "words"),
    [
        (raw(id="../c1"), "id", "match pattern"),
        (raw(duration_s=-1), "duration_s", "greater than 0"),
        (raw(video=None), "", "a video or a scene"),
        (raw(colour="red"), "colour", "not permitted"),
        (raw(format="vigil-clip-9"), "format", "vigil-clip-1"),
        (raw(slots=[slot(end_s=3)]), "slots.0", "lies before start_s"),
        (raw(slots=[slot(query="q9")]), "", "'q9', which is not asked"),
        (raw(slots=[slot(start_s=61, end_s=62)]), "", "begins after the end"),
        (raw(slots=[slot(judging="exact")]), "slots.0", "needs accepted answers"),
        (raw(slots=[slot(judging="choice", accepted=["AB"])]), "slots.0", "no letter"),
        (raw(slots=[slot(judging="number", accepted=["two"])]), "slots.0", "no number"),
        (raw(slots=[slot(kind="shout")]), "slots.0.kind", "'alert'"),
        (raw(slots=[slot(evidence_s=18)]), "slots.0", "after the reply is due"),
        (raw(slots=[slot(onset_s=11)]), "slots.0", "lies outside of"),
        (raw(slots=[slot(evidence_s=12, evidence_end_s=11)]), "slots.0", "before the evidence"),
        (raw(slots=[slot(), slot()]), "", "given twice"),
        (raw(queries=[{"id": "q1", "text": ""}]), "queries.0.text", "at least 1 character"),
        (
            raw(queries=[{"id": "q1", "text": "?", "at_s": 2, "until_s": 2}]),
            "queries.0",
            "does not lie after",
        ),
        (raw(silences=[{"start_s": 3, "end_s": 3}]), "silences.0", "does not lie after"),
    ],
)
def test_what_is_wrong_is_named(record: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(DatasetError) as caught:
        parse_clip(orjson.dumps(record), "a.jsonl", 7)
    assert (caught.value.file, caught.value.line, caught.value.field) == ("a.jsonl", 7, field)
    assert words in caught.value.problem
    assert str(caught.value).startswith("a.jsonl:7: ")


def test_a_broken_line_and_an_id_given_twice_are_told_by_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(dump_clip(CLIP) + b"\n{")
    with pytest.raises(DatasetError, match=r"a\.jsonl:2: no JSON"):
        list(read_clips(file))
    file.write_bytes(dump_clip(CLIP) + b"\n" + dump_clip(CLIP))
    with pytest.raises(DatasetError, match=r"a\.jsonl:2: id: 'c1' is the id of line 1 too"):
        list(read_clips(file))
    with pytest.raises(DatasetError, match="No such file"):
        list(read_clips(tmp_path / "none.jsonl"))


def test_slots_of_a_query_come_in_time_order() -> None:
    later = Slot(id="s0", query="q1", kind=Kind.ALERT, start_s=50, end_s=52)
    clip = CLIP.model_copy(update={"slots": (later, *CLIP.slots)})
    assert [s.id for s in clip.slots_of("q1")] == ["s1", "s0"]
    assert clip.slots[1].known_s == 12


_times = st.floats(0, 1000, allow_nan=False)


@given(
    st.lists(st.tuples(_times, _times, st.sampled_from(Kind), st.text(min_size=1, max_size=8)), max_size=4),
    st.dictionaries(st.text(max_size=4), st.integers(-9, 9), max_size=3),
)
def test_any_clip_survives_its_line(
    spans: list[tuple[float, float, Kind, str]], scene: dict[str, int]
) -> None:
    slots = tuple(
        Slot(
            id=f"s{n}",
            query="q",
            kind=kind,
            start_s=min(a, b),
            end_s=max(a, b),
            accepted=(text,),
            judging=Judging.JUDGE,
        )
        for n, (a, b, kind, text) in enumerate(spans)
    )
    clip = Clip(id="c", scene=scene, queries=(Query(id="q", text="?"),), slots=slots)
    assert parse_clip(dump_clip(clip), "a.jsonl") == clip
