"""The page of a run: it holds everything, loads nothing, and nothing that was said can break it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from evals.report.suite_plots import Mark, curve, histogram, timeline
from evals.runs.manifest import RunError
from evals.runs.reporting import report
from tests.evals.runs.stand import clip, watch
from tests.fakes.engine import FakeEngine, Seen

HOSTILE = '</title></script><img src="http://evil.invalid/x.png" onerror=alert(1)>'


def hostile(seen: Seen) -> str:
    return f"</response> {HOSTILE} {seen.tick}" if seen.tick in (3, 8) else "</silence>"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))


async def test_a_page_of_its_own_with_all_that_counts(tmp_path: Path) -> None:
    slots = [
        {"id": "s1", "query": "q1", "kind": "alert", "start_s": 3.0, "end_s": 5.0},
        {"id": "s2", "query": "q1", "kind": "repeat", "start_s": 10.0, "end_s": 11.0, "accepted": [HOSTILE]},
    ]
    queries = [{"id": "q1", "text": f"Watch for {HOSTILE}", "skill": "alert"}]
    async with FakeEngine(hostile) as engine:
        await watch(tmp_path, engine, [clip("one", slots=slots, queries=queries), clip("two")])
    page = report(tmp_path).read_text()
    assert (tmp_path / "scores.json").is_file(), "a run that is not scored is scored"
    tags = Tags()
    tags.feed(page)
    for tag, attrs in tags.seen:
        assert not any(name.startswith("on") for name in attrs)
        for name in ("src", "href"):
            target = attrs.get(name) or ""
            assert re.match(r"(data:image/jpeg;base64,|#|clips/(one|two)/report\.html$|$)", target), (
                tag,
                target,
            )
    assert [tag for tag, _ in tags.seen].count("svg") >= 3
    assert page.count('<article class="clip"') == 2
    assert "data:image/jpeg" in page, "wrong decisions have their pictures"
    for text in (
        "Misses against false alerts",
        "What went wrong",
        "Missed",
        "onset F1 at 1 s",
        "95 % interval",
    ):
        assert text in page
    assert "http" not in page.replace(HOSTILE.split('"')[1], "").replace("http-equiv", "")


async def test_a_folder_that_is_no_run_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run"):
        report(tmp_path)


async def test_a_run_without_a_finished_clip_has_a_page_too(tmp_path: Path) -> None:
    async with FakeEngine(hostile) as engine:
        await watch(tmp_path, engine, [clip("one", 3)])
    (tmp_path / "clips" / "one" / "summary.json").write_text('{"outcome": "interrupted"}')
    page = report(tmp_path).read_text()
    assert "1 clip is interrupted and was not judged" in page
    assert "Nothing could be measured" in page


def test_marks_are_placed_by_time_and_never_too_narrow_to_see() -> None:
    svg = timeline(
        100, [Mark(50, 60, "right", "a <b>")], [Mark(99.99, 99.99, "wrong", "late")], [(10, 0.5)], [25], "x"
    )
    assert 'x="500" y="4.94" width="100"' in svg or 'x="500"' in svg
    assert 'width="4"' in svg and "a &lt;b&gt;" in svg and svg.count("<line") == 2


def test_plots_of_nothing_are_none() -> None:
    assert curve([], None) is None and histogram([], "x") is None


def test_a_curve_has_misses_upwards_and_false_alerts_to_the_right() -> None:
    points = [
        {"threshold": 0.9, "misses": 1.0, "false_alerts_per_h": 0.0},
        {"threshold": 0.1, "misses": 0.0, "false_alerts_per_h": 10.0},
    ]
    drawn = curve(points, points[1])
    assert drawn is not None and drawn.top == 10.0
    assert 'points="0,0 1000,300"' in drawn.svg and "M1000 300" in drawn.svg
