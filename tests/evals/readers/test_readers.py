"""Each public format, on small records of our own: what becomes of them, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from evals.readers import READERS, DatasetError, open_dataset
from evals.readers.clip import Clip, Judging, Kind, Official
from evals.readers.dataset import find_files
from tests.evals.readers.made import (
    CHOICE,
    CONVERTED,
    CORRECTION,
    CRR,
    DESCRIPTION,
    JOYAI,
    NARRATED,
    PROACTIVE,
    REC,
    REMINDER,
    SSR,
)


def read(tmp_path: Path, *records: Any) -> list[Clip]:
    file = tmp_path / "set.json"
    file.write_bytes(orjson.dumps(list(records)))
    return list(open_dataset(file).clips)


def shape(clip: Clip) -> list[tuple[Any, ...]]:
    return [(s.query, s.kind, s.start_s, s.due_s, s.end_s, s.accepted) for s in clip.slots]


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("joyai", JOYAI),
        ("joyai", CONVERTED),
        ("omni_duplex", REMINDER),
        ("omni_duplex", DESCRIPTION),
        ("ovo", CHOICE),
        ("ovo", REC),
        ("streamingbench", PROACTIVE),
        ("streamingbench", PROACTIVE["questions"][0] | {"video_path": "a.mp4"}),
        ("vigil", {"format": "vigil-clip-1", "id": "a", "scene": {}}),
    ],
)
def test_a_format_is_known_by_its_looks(tmp_path: Path, name: str, record: dict[str, Any]) -> None:
    file = tmp_path / "set.jsonl"
    file.write_bytes(orjson.dumps(record))
    dataset = open_dataset(file)
    assert dataset.format == name
    assert [other for other, reader in READERS.items() if reader.fits(record)] == [name]
    assert open_dataset(file, name).digest == dataset.digest
    assert all(clip.dataset == name for clip in dataset.clips)


def test_joyai_as_published(tmp_path: Path) -> None:
    (clip,) = read(tmp_path, JOYAI)
    assert (clip.id, clip.video, clip.tags) == ("kitchen-1", "kitchen.mp4", ("event_grounding", "made_up"))
    assert [(q.at_s, q.text) for q in clip.queries] == [
        (4, "Tell me when the pot boils."),
        (30, "What is this?"),
    ]
    assert shape(clip) == [
        ("q1", Kind.ALERT, 11, 12, 17, ("It boils.",)),
        ("q2", Kind.ANSWER, 30, 31, 36, ("A spoon.",)),
    ]
    assert {s.judging for s in clip.slots} == {Judging.JUDGE}


def test_joyai_narration_repeats_and_the_later_of_a_second_counts(tmp_path: Path) -> None:
    (clip,) = read(tmp_path, NARRATED)
    assert [(s.due_s, s.kind, s.accepted[0]) for s in clip.slots] == [
        (5, Kind.REPEAT, "Stirring."),
        (6, Kind.REPEAT, "Stirring."),
        (7, Kind.REPEAT, "Now salt."),
    ]


def test_joyai_as_converted(tmp_path: Path) -> None:
    (clip,) = read(tmp_path, CONVERTED)
    assert [(q.at_s, q.text) for q in clip.queries] == [(1, "Tell me when the pot boils.")]
    assert shape(clip) == [("q1", Kind.ANSWER, 1, 2, 7, ("It boils.",))]


def test_a_response_before_any_question_is_told(tmp_path: Path) -> None:
    (clip,) = read(tmp_path, JOYAI | {"response": [{"content": "Hello.", "time": "1"}]})
    assert clip.slots == ()
    assert clip.meta == {"responses_before_any_question": 1}


def test_omni_duplex_reminders(tmp_path: Path) -> None:
    (clip,) = read(tmp_path, REMINDER)
    assert (clip.id, clip.video, clip.queries[0].audio) == ("PR_event_reminder-7", "v7.mp4", "q7.wav")
    assert [(s.kind, s.start_s, s.end_s) for s in clip.slots] == [
        (Kind.REPEAT, 15, 25),
        (Kind.REPEAT, 40.5, 50.5),
    ]
    assert {(s.judging, s.official) for s in clip.slots} == {(Judging.JUDGE, Official.OMNI_DUPLEX)}


def test_omni_duplex_corrections_and_descriptions(tmp_path: Path) -> None:
    correction, description = read(tmp_path, CORRECTION, DESCRIPTION)
    assert shape(correction) == [("q1", Kind.ANSWER, 0, 0, 20, ("The ship is white.",))]
    assert description.slots == ()
    assert [query.judged for query in description.queries] == [False]
    assert description.meta == {"split": "RTD_counting", "id": "d", "answers": ["One. Two."]}


def test_ovo_choices(tmp_path: Path) -> None:
    (clip,) = read(tmp_path, CHOICE)
    assert (clip.id, clip.tags, clip.queries[0].at_s) == ("OCR-3", ("realtime", "OCR"), 42)
    assert clip.queries[0].text.startswith("What does the sign say? Options: A. Stop B. Go C. Wait")
    (slot,) = clip.slots
    assert (slot.accepted, slot.choices, slot.official) == (
        ("C",),
        ("Stop", "Go", "Wait"),
        Official.OVO_CHOICE,
    )


def test_ovo_forward_probes(tmp_path: Path) -> None:
    crr, rec, first, second = read(tmp_path, CRR, REC, SSR)
    assert [(s.start_s, s.end_s, s.accepted) for s in crr.slots] == [
        (9, 14, ("No",)),
        (14, 19, ("No",)),
        (21, 26, ("Yes",)),
    ]
    assert [(s.kind, s.accepted, s.judging) for s in rec.slots] == [
        (Kind.COUNT, ("1",), Judging.NUMBER),
        (Kind.COUNT, ("3",), Judging.NUMBER),
    ]
    assert "jump" in rec.queries[0].text
    # Two steps asked a second apart are watched in streams of their own.
    assert [(c.id, len(c.slots)) for c in (first, second)] == [("SSR-12-1", 1), ("SSR-12-2", 1)]
    assert "pour" in second.queries[0].text


def test_streamingbench_proactive(tmp_path: Path) -> None:
    first, second = read(tmp_path, PROACTIVE)
    assert (first.id, second.id, first.video) == ("sample_17-1", "sample_17-2", "./videos/sample_17.mp4")
    assert shape(first) == [("q1.1", Kind.ALERT, 87, 89, 91, ("3",))]
    assert first.queries[0].until_s == 94
    assert shape(second) == [("q1.2", Kind.ALERT, 68, 70, 72, ("foul",))]


@pytest.mark.parametrize(
    ("record", "field", "words"),
    [
        (JOYAI | {"question": []}, "question", "needs a question"),
        (JOYAI | {"response": [{"content": "x", "time": "soon"}]}, "response.0.time", "'soon' is no number"),
        (JOYAI | {"response": [{"content": "", "time": "1"}]}, "response.0.content", "missing or empty"),
        (
            CONVERTED | {"messages": [{"role": "user", "content": "hi"}]},
            "messages.0.content",
            "no <S.0 seconds>",
        ),
        (REMINDER | {"reminder1": None, "reminder2": ""}, "reminder1", "its time in seconds"),
        (REMINDER | {"video": {"bytes": "x"}}, "video", "names no file"),
        (CORRECTION | {"answer1": ""}, "answer1", "needs the right statement"),
        (CHOICE | {"gt": 3}, "gt", "0 to 2"),
        (CHOICE | {"realtime": "later"}, "realtime", "no number of seconds"),
        (REC | {"test_info": [{"realtime": 5}]}, "test_info.0.count", "whole number"),
        (CRR | {"test_info": [{"realtime": 5, "type": 2}]}, "test_info.0.type", "0 (No) or 1 (Yes)"),
        (
            PROACTIVE | {"questions": [PROACTIVE["questions"][0] | {"time_stamp": "soon"}]},
            "questions.0.time_stamp",
            "hh:mm:ss",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, record: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, record)
    assert (caught.value.file, caught.value.line, caught.value.field) == ("set.json", 1, field)
    assert words in caught.value.problem


def test_what_is_no_data_set(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for content, words in ((b"[]", "no records"), (b'[{"x": 1}]', "no known format"), (b"[3]", "an object")):
        file.write_bytes(content)
        with pytest.raises(DatasetError, match=words):
            open_dataset(file)
    file.write_bytes(orjson.dumps([CHOICE]))
    with pytest.raises(DatasetError, match="no format 'else'"):
        open_dataset(file, "else")
    with pytest.raises(DatasetError, match="No such file"):
        open_dataset(tmp_path / "none.json")


def test_files_are_found_by_name_and_missing_ones_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "videos" / "COIN"
    folder.mkdir(parents=True)
    (folder / "street.mp4").touch()
    (folder / "q7.wav").touch()
    file = tmp_path / "set.jsonl"
    file.write_bytes(orjson.dumps(CHOICE) + b"\n" + orjson.dumps(CHOICE | {"id": 4, "video": "no.mp4"}))
    dataset = open_dataset(file, videos=tmp_path)
    assert dataset.missing == ("no.mp4",)
    assert [dataset.video(clip) for clip in dataset.clips] == [folder / "street.mp4", None]


def test_of_files_with_one_name_the_path_decides_or_none(tmp_path: Path) -> None:
    for name in ("a/x/1.mp4", "b/x/1.mp4", "b/y/1.mp4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found, missing = find_files(["/data/y/1.mp4", "1.mp4", "x/1.mp4", "../../etc/passwd"], tmp_path)
    assert found == {"/data/y/1.mp4": tmp_path / "b/y/1.mp4"}
    assert missing == ("1.mp4", "x/1.mp4", "../../etc/passwd")


def test_a_folder_of_files_is_one_data_set_and_ids_stay_apart(tmp_path: Path) -> None:
    for name in ("chat", "narration"):
        (tmp_path / f"{name}.json").write_bytes(orjson.dumps([CHOICE]))
    assert [clip.id for clip in open_dataset(tmp_path).clips] == ["OCR-3", "OCR-3.2"]
