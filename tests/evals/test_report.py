"""The page renders for any run, holds nothing executable from the outside, and asks nobody for anything."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.report.plots import ceiling
from evals.report.render import TABLE_CAP, clock, kind_of, number, render, size
from evals.report.thumbs import EvenSample, Filmstrip, thumbnail
from tests.evals.rows import facts, picture, run_rows, summary

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&lt;\u2028"


class Page(HTMLParser):
    """Checks that tags nest, and gathers what a browser would load or run."""

    VOID = frozenset({"meta", "img", "input", "br", "link"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.ids: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        if values.get("id"):
            self.ids.append(values["id"])
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "script":
            self.scripts.append(data)
        else:
            self.text += data

    @property
    def ticks(self) -> dict:
        return json.loads(self.scripts[0])


def page(rows, thumbs=None, **changes) -> Page:
    return Page(render(summary(rows, **changes), rows, thumbs or {}))


@pytest.mark.parametrize("count", [0, 1, 2, 250, 1000])
def test_renders_for_runs_of_any_length(count):
    got = page(run_rows(count))
    assert len(got.ticks["tick"]) == count
    assert len(got.ids) == len(set(got.ids))
    assert ("svg" in {tag for tag, _ in got.tags}) == (count > 0)


def test_long_runs_stay_small():
    rows = run_rows(50_000)
    html = render(summary(rows), rows, {})
    got = Page(html)
    assert len(got.ticks["tick"]) < 30_000
    assert html.count('class="time"') == TABLE_CAP
    assert "more are in decisions.jsonl" in got.text
    assert html.count("<rect") < 2_000


def test_hostile_text_stays_text():
    rows = run_rows(30)
    for row in rows:
        row |= {"action": "delegate", "text": EVIL, "question": EVIL, "shortfall": EVIL}
    thumbs = {row["tick"]: thumbnail(picture(row["tick"])) for row in rows}
    got = page(
        rows,
        thumbs,
        options={"queries": [{"at_s": 0.0, "text": EVIL}], "persona": EVIL, "pace": EVIL},
        source={"name": EVIL, "width": EVIL, "height": EVIL},
        engine={"model": EVIL, "url": EVIL, "version": EVIL},
        error={"code": EVIL, "message": EVIL},
        warnings=[EVIL],
    )
    assert len(got.scripts) == 2
    assert not any(name.startswith("on") for _, attrs in got.tags for name in attrs)
    assert got.ticks["text"]["0"] == f"{EVIL} → {EVIL}"
    assert all(
        attrs["src"].startswith("data:image/jpeg;base64,") for tag, attrs in got.tags if attrs.get("src")
    )


def test_nothing_is_fetched():
    rows = run_rows(120)
    html = render(summary(rows), rows, {3: thumbnail(picture(3)) or ""})
    assert "default-src 'none'" in html
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?(?:https?:)?//""", html)
    assert "@import" not in html
    assert not re.search(r"url\(", html)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"tick": st.integers(0, 10**6)},
            optional={
                "media_time_s": st.one_of(st.none(), st.floats(0, 1e6)),
                "action": st.sampled_from(["silence", "response", "delegate", "predict", None]),
                "reason": st.one_of(st.none(), st.text(max_size=5), st.just("gated")),
                "text": st.one_of(st.none(), st.text(max_size=30)),
                "question": st.one_of(st.none(), st.text(max_size=30)),
                "window": st.one_of(st.none(), st.integers(0, 3)),
                "prompt_tokens": st.one_of(st.none(), st.integers(0, 10**6)),
                "cached_tokens": st.one_of(st.none(), st.integers(0, 10**6)),
                "latency_ms": st.one_of(st.none(), st.floats(0, 1e7)),
                "status": st.sampled_from(["completed", "incomplete", "failed", None]),
            },
        ),
        max_size=12,
    )
)
def test_renders_whatever_columns_are_known(rows):
    page(rows)


def test_every_control_has_a_name():
    rows = run_rows(60)
    got = page(rows, {5: thumbnail(picture(5)) or ""})
    assert all("alt" in attrs for tag, attrs in got.tags if tag == "img")
    assert all(attrs.get("aria-label") for tag, attrs in got.tags if tag == "svg")
    assert any(tag == "label" and attrs.get("for") == "slider" for tag, attrs in got.tags)
    assert any(tag == "html" and attrs.get("lang") for tag, attrs in got.tags)


def test_words_for_figures():
    assert [clock(s) for s in (0, 7.46, 750, 3723, None)] == ["0:00.0", "0:07.5", "12:30.0", "1:02:03.0", "–"]
    assert [number(None), number(1234567.0, "ms"), number(0.25, digits=2)] == ["–", "1 234 567 ms", "0.25"]
    assert [size(None), size(61_500), size(2_340_000)] == ["–", "61.5 kB", "2.3 MB"]


def test_kinds():
    assert kind_of({"action": "silence", "reason": "gated"}) == "gated"
    assert kind_of({"action": "silence", "reason": "model"}) == "silence"
    assert kind_of({"action": "response", "status": "failed"}) == "failed"
    assert kind_of({"action": "predict"}) == "silence"


def test_summary_of_a_run():
    got = summary(run_rows(250))
    assert got["ticks"] == 250
    assert sum(got["actions"].values()) == 250
    assert got["reasons"]["gated"] == 10
    assert got["statuses"]["failed"] == 2
    assert got["audit"]["shortfalls"] == {"evicted": 2}
    assert [w["ticks"] for w in got["windows"]] == [100, 100, 50]
    assert json.loads(json.dumps(got))["latency_ms"]["count"] == got["latency_ms"]["count"]
    assert facts().outcome == "complete"


def test_thumbnails_are_small_and_refuse_junk():
    url = thumbnail(picture(1, 1920, 1080))
    assert url is not None
    assert len(url) < 9_000
    assert thumbnail(b"not a picture") is None
    assert thumbnail(b"") is None


@settings(deadline=None)
@given(st.integers(2, 9), st.integers(0, 200))
def test_even_sample_is_bounded_and_spread(cap, count):
    sample = EvenSample(cap)
    for n in range(count):
        sample.offer(n, str(n))
    kept = list(sample.items())
    assert len(kept) <= cap
    assert kept[:1] == ([0] if count else [])
    if count >= cap:
        gaps = {b - a for a, b in pairwise(kept)}
        assert len(gaps) <= 1
        assert len(kept) >= cap // 2


def test_filmstrip_keeps_spoken_ticks_apart_from_quiet_ones():
    strip = Filmstrip(spoken_cap=4, quiet_cap=4)
    for tick in range(40):
        strip.add(tick, picture(tick), spoke=tick % 10 == 5)
    strip.add(40, None, spoke=True)
    thumbs = strip.thumbs()
    assert [t for t in thumbs if t % 10 == 5] == [5, 15, 25, 35]
    assert 3 <= len(thumbs) - 4 <= 4
    assert list(thumbs) == sorted(thumbs)


def test_the_smallest_numbers_have_a_scale_too() -> None:
    assert ceiling(5e-324) == ceiling(0.0) == 1.0
    assert ceiling(0.03) == 0.05
