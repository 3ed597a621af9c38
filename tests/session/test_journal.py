"""The journal: numbers without gaps, acks, expiry, replay, and the end of sequencing at an overflow."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.journal import Journal
from orchestrator.wire.errors import VigilError
from orchestrator.wire.server import Written

EVENT = Written("x", '{"type":"x"}')


def filled(count: int, **limits: Any) -> Journal:
    journal = Journal(**limits)
    for _ in range(count):
        journal.write(0.0, EVENT, 10)
    return journal


def seqs(journal: Journal, after: int, now: float = 0.0) -> list[int] | None:
    entries = journal.replay(now, after)
    return None if entries is None else [entry.seq for entry in entries]


def test_numbers_start_at_one_and_ride_the_event() -> None:
    journal = Journal()
    assert journal.write(0.0, EVENT, 10).value == {"type": "x", "server_event_seq": 1}
    assert journal.write(0.0, EVENT, 10).value["server_event_seq"] == 2


def test_replay_gives_what_came_after() -> None:
    journal = filled(5)
    assert seqs(journal, 0) == [1, 2, 3, 4, 5]
    assert seqs(journal, 3) == [4, 5]
    assert seqs(journal, 5) == []


def test_acknowledged_events_are_gone_and_older_acks_harmless() -> None:
    journal = filled(5)
    journal.ack(3)
    journal.ack(1)
    journal.ack(0)
    assert seqs(journal, 3) == [4, 5]
    assert seqs(journal, 2) is None, "a client cannot go back behind its own ack"
    assert journal.statistics()["bytes"] == 20


@pytest.mark.parametrize("seq", [-1, 6, 1.5, "1", None, True])
def test_acks_that_mean_nothing(seq: Any) -> None:
    with pytest.raises(VigilError) as refused:
        filled(5).ack(seq)
    assert refused.value.code == "invalid_event_ack"


def test_a_number_never_given_out_is_a_conflict() -> None:
    with pytest.raises(VigilError) as refused:
        filled(5).replay(0.0, 6)
    assert refused.value.code == "session_resume_conflict"


def test_entries_expire() -> None:
    journal = filled(2, ttl_s=60.0)
    journal.write(50.0, EVENT, 10)
    assert seqs(journal, 2, now=61.0) == [3]
    assert seqs(journal, 1, now=61.0) is None


def test_an_overflow_ends_sequencing_for_good() -> None:
    journal = filled(2, max_bytes=25)
    assert "server_event_seq" not in journal.write(0.0, EVENT, 10).value
    assert journal.overflowed
    assert "server_event_seq" not in journal.write(0.0, EVENT, 1).value
    assert seqs(journal, 2) is None
    journal.ack(2)
    assert journal.statistics() == {"entries": 0, "bytes": 0, "head": 2, "overflowed": True}


def test_a_restart_goes_on_above_the_reserved_ceiling() -> None:
    journal = Journal(head=2000)
    assert journal.write(0.0, EVENT, 1).value["server_event_seq"] == 2001
    assert seqs(journal, 1999) is None
    assert seqs(journal, 2000) == [2001]


@given(
    st.lists(
        st.one_of(st.tuples(st.just("w"), st.integers(1, 40)), st.tuples(st.just("a"), st.integers(0, 30)))
    )
)
def test_numbers_have_no_gaps_and_bytes_stay_bounded(steps: list[tuple[str, int]]) -> None:
    journal, numbers = Journal(max_bytes=100), []
    for step, value in steps:
        if step == "w":
            written = journal.write(0.0, EVENT, value).value
            if "server_event_seq" in written:
                numbers.append(written["server_event_seq"])
                assert not journal.overflowed
        elif value <= journal.head:
            journal.ack(value)
        assert journal.statistics()["bytes"] <= 100
        kept = seqs(journal, journal.boundary)
        assert kept is None or kept == list(range(journal.boundary + 1, journal.head + 1))
    assert numbers == list(range(1, len(numbers) + 1))
