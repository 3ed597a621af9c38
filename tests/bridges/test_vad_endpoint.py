"""Where speech begins and ends: the contract's rules as a table, and what holds for any probabilities."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.vad_endpoint import Began, Ended, Endpointer, EndpointRules

WINDOW = 32.0
PLAIN = EndpointRules()
S, Q, M = 0.9, 0.05, 0.4  # speech, quiet, and in between: it neither begins nor ends speech


def run(windows: list[float], rules: EndpointRules = PLAIN) -> list[Began | Ended]:
    pointer = Endpointer(rules)
    found = (pointer.push(p, i * WINDOW, (i + 1) * WINDOW) for i, p in enumerate(windows))
    return [each for each in found if each is not None]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        ([Q] * 40, []),
        ([S] * 2 + [Q] * 40, []),
        ([S, S, Q, S, S] + [Q] * 40, []),
        ([S, S, M, S, S] + [Q] * 40, []),
        ([S] * 3, [Began(0.0)]),
        ([Q] * 20 + [S] * 3, [Began(20 * WINDOW - 300)]),
        ([S] * 3 + [Q] * 15, [Began(0.0)]),
        ([S] * 3 + [Q] * 16, [Began(0.0), Ended(19 * WINDOW)]),
        ([S] * 3 + [Q] * 15 + [S] + [Q] * 15, [Began(0.0)]),
        ([S] * 3 + [M] * 60, [Began(0.0)]),
        ([S] * 3 + [Q] + [M] * 30 + [Q], [Began(0.0), Ended(35 * WINDOW)]),
        ([S] * 3 + [Q] * 16 + [S] * 3, [Began(0.0), Ended(19 * WINDOW), Began(19 * WINDOW)]),
    ],
)
def test_the_rules(windows: list[float], expected: list[Began | Ended]) -> None:
    assert run(windows) == expected


def test_settings_count() -> None:
    slow = EndpointRules(threshold=0.8, padding_ms=0.0, silence_ms=1000.0, min_speech_ms=320.0)
    assert run([0.7] * 100, slow) == []
    assert run([0.9] * 10, slow) == [Began(0.0)]
    assert run([0.9] * 10 + [0.1] * 31, slow) == [Began(0.0)]
    assert run([0.9] * 10 + [0.1] * 32, slow) == [Began(0.0), Ended(42 * WINDOW)]
    assert EndpointRules(threshold=0.151).closing == pytest.approx(0.01)


def test_nothing_begins_before_a_reset_and_speech_ends_with_one() -> None:
    pointer = Endpointer(EndpointRules())
    for i in range(10):
        pointer.push(S, i * WINDOW, (i + 1) * WINDOW)
    assert pointer.reset(5000.0) == Ended(5000.0)
    assert pointer.reset(6000.0) is None
    assert [pointer.push(S, 6000 + i * WINDOW, 6032 + i * WINDOW) for i in range(3)][-1] == Began(6000.0)


probabilities = st.lists(st.one_of(st.sampled_from([S, Q, M]), st.floats(0, 1)), max_size=300)
rules = st.builds(
    EndpointRules,
    st.floats(0.16, 1.0),
    st.floats(0, 1000),
    st.floats(0, 2000),
    st.floats(32, 1000),
)


@given(probabilities, rules)
def test_any_stream_gives_utterances_in_order(windows: list[float], asked: EndpointRules) -> None:
    found = run(windows, asked)
    assert [type(each) for each in found] == [Began, Ended] * (len(found) // 2) + [Began] * (len(found) % 2)
    at = 0.0
    for each in found:
        time = each.start_ms if isinstance(each, Began) else each.end_ms
        assert time >= at
        at = time
    for began, ended in zip(found[::2], found[1::2], strict=False):
        assert isinstance(began, Began) and isinstance(ended, Ended)
        assert ended.end_ms - began.start_ms >= min(asked.min_speech_ms, WINDOW) - 1e-6


@given(probabilities, st.lists(st.integers(0, 300), max_size=4))
def test_what_came_before_a_reset_changes_nothing_after(windows: list[float], cuts: list[int]) -> None:
    pointer = Endpointer(EndpointRules())
    for cut in cuts:
        for i in range(cut % 20):
            pointer.push(S if i % 3 else Q, i * WINDOW, (i + 1) * WINDOW)
    pointer.reset(10_000.0)
    later = [pointer.push(p, 10_000 + i * WINDOW, 10_032 + i * WINDOW) for i, p in enumerate(windows)]
    fresh = Endpointer(EndpointRules())
    fresh.reset(10_000.0)
    assert later == [fresh.push(p, 10_000 + i * WINDOW, 10_032 + i * WINDOW) for i, p in enumerate(windows)]
