"""Data sets with names, files and doubles as people have them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.readers import open_dataset
from evals.readers.dataset import find_files
from evals.readers.jsonl import DatasetError, read_clips


def test_ids_that_are_given_twice_never_meet_one_that_is_there(tmp_path: Path) -> None:
    """Ids name folders: a clip that is called as the second one of another would share it."""
    record = {"format": "vigil-clip-1", "video": "v.mp4"}
    path = tmp_path / "set.jsonl"
    path.write_text("".join(json.dumps(record | {"id": name}) + "\n" for name in ("a", "a", "a.2", "a")))
    assert [clip.id for clip in open_dataset(path).clips] == ["a", "a.3", "a.2", "a.4"]


def test_names_that_no_file_can_have_are_missing(tmp_path: Path) -> None:
    names = ["视" * 180, "nul\0l.mp4", "..", "a/" * 90 + "b.mp4", "ok.mp4"]
    (tmp_path / "ok.mp4").write_bytes(b"")
    found, missing = find_files(names, tmp_path)
    assert set(found) == {"ok.mp4"} and list(missing) == names[:-1]


def test_a_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    line = json.dumps({"format": "vigil-clip-1", "id": "a", "video": "v.mp4"})
    for name in ("set.jsonl", "set.json"):
        path = tmp_path / name
        path.write_text("\ufeff" + line + "\r\n", encoding="utf-8")
        assert [clip.id for clip in open_dataset(path).clips] == ["a"]
    assert [clip.id for clip in read_clips(tmp_path / "set.jsonl")] == ["a"]


def test_a_set_of_no_clips_is_told(tmp_path: Path) -> None:
    for content in ("", "\n# nothing\n"):
        (tmp_path / "set.jsonl").write_text(content)
        with pytest.raises(DatasetError, match="holds no records"):
            open_dataset(tmp_path / "set.jsonl")
