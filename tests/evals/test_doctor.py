"""The doctor on the prefix cache: what it finds, what it says, and where it takes rows from."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from evals.doctor import diagnose, report, rows_of
from orchestrator.cli import app


def row(tick: int, **more: Any) -> dict[str, Any]:
    return {
        "tick": tick,
        "media_time_s": float(tick),
        "window": 0,
        "prompt_tokens": 1000,
        "cached_tokens": 960,
        "expected_cached_tokens": 960,
        "shortfall": None,
        **more,
    }


SOUND = [row(1, cached_tokens=0, expected_cached_tokens=0), row(2), row(3, window=1, cached_tokens=992)]
EVICTED = row(4, cached_tokens=0, shortfall="evicted")
DIFFERS = row(5, window=1, cached_tokens=512, shortfall="said/7/4093")
HEAD = row(6, window=1, cached_tokens=32, shortfall="summaries/-1/99")


def text(rows: list[dict[str, Any]]) -> str:
    return "\n".join(report(diagnose(rows)))


def vigil(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "TERM": "dumb"})


def test_windows_are_told_apart() -> None:
    found = diagnose([*SOUND, EVICTED, {"tick": 9, "prompt_tokens": None}])
    assert [(w.window, w.ticks, w.promised, w.cached, w.kept, w.short) for w in found.windows] == [
        (0, 3, 1920, 960, 960, 1),
        (1, 1, 960, 992, 960, 0),
    ]
    assert (found.asked, found.judged) == (4, 4)


def test_kept_promises() -> None:
    told = text(SOUND)
    assert "Every promise was kept: 1920 tokens in 3 ticks." in told
    assert "Remedy" not in told


def test_each_shortfall_is_told_with_its_place_and_a_remedy() -> None:
    told = text([*SOUND, EVICTED, DIFFERS, HEAD])
    assert "3 of 6 ticks fell short" in told
    assert "tick 4 at 4 s, window 0: 960 tokens evicted" in told
    assert "tick 5 at 5 s, window 1: 448 tokens: section said of turn 7 differs from byte 4093 on" in told
    assert "928 tokens: section summaries differs from byte 99 on" in told
    assert "--kv-cache-memory-bytes" in told
    assert "fault of Vigil" in told
    assert "fault of Vigil" not in text([EVICTED])


def test_many_shortfalls_are_counted() -> None:
    told = text([row(n, cached_tokens=0, shortfall="evicted") for n in range(50)])
    assert "and 30 more" in told


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "nothing to compare"),
        ([{"tick": 1, "prompt_tokens": None}], "nothing to compare"),
        ([row(1, cached_tokens=None)], "--enable-prompt-tokens-details"),
        ([row(1, expected_cached_tokens=0), row(2, expected_cached_tokens=0)], "the prefix audit was off"),
        ([row(1, expected_cached_tokens=None)], "the prefix audit was off"),
    ],
)
def test_what_there_is_not(rows: list[dict[str, Any]], words: str) -> None:
    assert words in text(rows)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"".join(orjson.dumps(r) + b"\n" for r in rows))
    return path


def test_rows_of_a_run_and_of_an_export(tmp_path: Path) -> None:
    decisions = write(tmp_path / "decisions.jsonl", SOUND)
    assert list(rows_of(tmp_path)) == list(rows_of(decisions)) == SOUND
    facts = [{"seq": 1, "at_ms": 0, "kind": "frame_seen", "data": {}}]
    facts += [{"kind": "tick_answered", "data": {"metrics": {"row": r}}} for r in SOUND]
    facts.append({"kind": "tick_answered", "data": {}})
    exported = tmp_path / "s.tar"
    with tarfile.open(exported, "w") as tar:
        for name, data in (
            ("session.json", b"{}"),
            ("facts/000001.jsonl", b"".join(orjson.dumps(f) + b"\n" for f in facts)),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    assert list(rows_of(exported)) == SOUND


def test_exit_codes(tmp_path: Path) -> None:
    sound = write(tmp_path / "sound.jsonl", SOUND)
    short = write(tmp_path / "short.jsonl", [*SOUND, EVICTED])
    nothing = write(tmp_path / "nothing.jsonl", [])
    (tmp_path / "broken.jsonl").write_text("{nonsense\n")
    codes = {path: vigil("doctor", "prefix", str(path)).exit_code for path in (sound, short, nothing)}
    assert list(codes.values()) == [0, 1, 2]
    broken = vigil("doctor", "prefix", str(tmp_path / "broken.jsonl"))
    assert (broken.exit_code, "is no run" in broken.output) == (2, True)
    unknown = vigil("doctor", "prefix", "cam", "--data", str(tmp_path))
    assert (unknown.exit_code, "no sessions in" in unknown.output) == (2, True)
