"""Folders are built once, whole, whoever comes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from engine_launch.atomic import build_once, silent


def test_two_builders_build_once(tmp_path: Path) -> None:
    """Contract: the second waits, is told so, and finds the finished folder."""
    target = tmp_path / "deep" / "thing"
    inside, waiting, built = threading.Event(), threading.Event(), []

    def slow(folder: Path) -> None:
        inside.set()
        assert waiting.wait(10)
        folder.mkdir()
        (folder / "file").write_text("whole")
        built.append(folder)

    first = threading.Thread(target=build_once, args=(target, slow, silent, "first"))
    first.start()
    assert inside.wait(10)
    assert not target.exists(), "nothing shows before it is whole"
    found = build_once(target, slow, lambda stage, detail: waiting.set(), "second")
    first.join()
    assert found == target and len(built) == 1
    assert (target / "file").read_text() == "whole"


def test_a_failed_build_leaves_nothing_and_can_be_repeated(tmp_path: Path) -> None:
    target = tmp_path / "thing"

    def fail(folder: Path) -> None:
        folder.mkdir()
        (folder / "half").write_text("")
        raise RuntimeError("no disk")

    with pytest.raises(RuntimeError):
        build_once(target, fail, silent, "")
    assert not target.exists()
    (tmp_path / "thing.building").mkdir()  # as after a crash in mid-build
    (tmp_path / "thing.building" / "junk").write_text("")
    build_once(target, lambda folder: folder.mkdir(), silent, "")
    assert list(target.iterdir()) == []
