"""What would have been heard: one response after the other, on one clock, never more than was there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.offline.player import Player

RATE = 1000


def ones(ms: int) -> np.ndarray:
    return np.ones(ms * RATE // 1000, np.float32)


def test_chunks_play_when_they_are_there_and_the_ones_before_are_over() -> None:
    player = Player(10.0)
    player.add("a", ones(300), RATE, 10.5)
    player.add("a", ones(300), RATE, 10.6)
    player.add("b", ones(100), RATE, 10.7)
    assert player.played_ms("a", 10.4) == 0 and player.played_ms("a", 10.7) == 200
    assert (player.played_ms("a", 11.1), player.played_ms("b", 11.1)) == (600, 0)
    assert not player.idle(11.15) and player.idle(11.2)
    assert player.played_ms("b", 20.0) == 100
    heard = player.heard(RATE)
    assert not heard[:500].any() and heard[500:1200].all() and not heard[1200:].any()


def test_what_was_cut_is_not_heard_and_what_waited_comes_earlier() -> None:
    player = Player(0.0)
    player.add("a", ones(1000), RATE, 0.0)
    player.add("b", ones(200), RATE, 0.1)
    player.cut("a", 0.4)
    assert player.played_ms("a", 9.0) == 400
    assert player.idle(0.6) and player.heard(RATE).sum() == 600


def test_rates_may_differ() -> None:
    player = Player(0.0)
    player.add("a", np.full(2400, 0.5, np.float32), 24000, 0.0)
    player.add("b", np.full(1600, 0.5, np.float32), 16000, 0.0)
    heard = player.heard(24000)
    assert abs(heard.size - 4800) <= 2 and np.isfinite(heard).all()


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 400), st.floats(0, 0.5)), max_size=20))
def test_it_never_plays_more_than_it_was_given_nor_faster_than_time(
    chunks: list[tuple[str, int, float]],
) -> None:
    player, now, given_ms = Player(0.0), 0.0, {"a": 0, "b": 0}
    for name, ms, passed in chunks:
        now += passed
        player.add(name, ones(ms), RATE, now)
        given_ms[name] += ms
        played = [player.played_ms(each, now) for each in "ab"]
        assert sum(played) <= now * 1000 + 1
        assert all(p <= given_ms[each] for p, each in zip(played, "ab", strict=True))
    assert [player.played_ms(each, now + 60) for each in "ab"] == [given_ms["a"], given_ms["b"]]
