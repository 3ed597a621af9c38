from __future__ import annotations

from orchestrator.backends.replay.health import EngineHealth


def test_wedged_after_three_misses_in_a_row_and_told_once() -> None:
    health = EngineHealth()
    assert [health.missed() for _ in range(5)] == [False, False, True, False, False]
    assert health.lost
    assert health.answered() and not health.lost
    assert [health.missed(), health.missed(), health.answered(), health.missed()] == [False] * 4


def test_unreachable_is_lost_at_once_and_backs_off_within_bounds() -> None:
    health = EngineHealth()
    assert health.unreachable()
    waits = []
    for _ in range(6):
        waits.append(health.backoff_s)
        assert not health.unreachable()
    assert waits == [0.5, 1, 2, 4, 5, 5]
