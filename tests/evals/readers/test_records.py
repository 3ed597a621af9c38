"""What readers share, and that whatever stands in a record, a reader reads it or says what is wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.readers import READERS, DatasetError
from evals.readers.records import Record, clip_id, lanes, to_seconds
from tests.evals.readers.made import (
    CHOICE,
    CONVERTED,
    CORRECTION,
    CRR,
    JOYAI,
    PROACTIVE,
    REC,
    REMINDER,
    SSR,
)

RECORDS = {
    "joyai": (JOYAI, CONVERTED),
    "omni_duplex": (REMINDER, CORRECTION),
    "ovo": (CHOICE, CRR, REC, SSR),
    "streamingbench": (PROACTIVE,),
}
_anything = st.recursive(
    st.none() | st.booleans() | st.integers(-100, 10**9) | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in nested data."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_whatever_stands_in_a_record_it_is_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(RECORDS)))
    record = copy.deepcopy(data.draw(st.sampled_from(RECORDS[name])))
    *path, last = data.draw(st.sampled_from(places(record)))
    inner: Any = record
    for key in path:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[last] = data.draw(_anything)
    else:
        del inner[last]
    try:
        clips = list(READERS[name].clips_of([Record("a.json", 1, record)]))
    except DatasetError as error:
        assert (error.file, error.line) == ("a.json", 1)
        assert error.problem
    else:
        assert all(clip.dataset == name for clip in clips)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), max_size=12))
def test_lanes_hold_every_item_once_and_never_two_at_a_time(items: list[tuple[int, int]]) -> None:
    spans = [(float(start), float(start + length)) for start, length in items]
    rows = lanes(spans, lambda span: span)
    assert sorted(span for row in rows for span in row) == sorted(spans)
    for row in rows:
        assert all(row[n][1] <= row[n + 1][0] for n in range(len(row) - 1))
    # As few rows as the most that are under way at one moment.
    most = max((sum(a <= t < b for a, b in spans) for t, _ in spans), default=0)
    empty = any(a == b for a, b in spans)
    assert len(rows) == max(most, 1) if spans and not empty else len(rows) >= most


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (3, 3),
        ("4.5", 4.5),
        ("00:01:29", 89),
        ("[0:00:30]", 30),
        ("1:05", 65),
        ("soon", None),
        ("", None),
        ("inf", None),
        (float("inf"), None),
        (None, None),
        (True, None),
        ([3], None),
    ],
)
def test_seconds_are_read(value: Any, seconds: float | None) -> None:
    assert to_seconds(value) == seconds


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4))
def test_an_id_always_names_a_folder(parts: list[str]) -> None:
    made = clip_id(*parts)
    assert made and "/" not in made and not made.startswith(".")
