"""Chunks tile media time; summaries are tried, given up, mended, merged; nothing grows without bound."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from memory.chunks import ATTEMPTS, GAPS, IN_FLIGHT, ROUNDS, Chunks, Span, merge, sample
from memory.plan import FrameRef


def ref(ms: int) -> FrameRef:
    return FrameRef(f"f{ms}", f"u{ms}", ms, 8, 8)


def closed(*lengths: int) -> Chunks:
    """Chunks of the given lengths in frames, one frame a turn and a second, closed without overlap."""
    chunks, seq = Chunks(), 0
    for length in lengths:
        for _ in range(length):
            chunks.take(seq, [ref(seq * 1000)])
            seq += 1
        chunks.close(seq, seq * 1000)
    return chunks


def fail_round(chunks: Chunks, index: int) -> None:
    for _ in range(ATTEMPTS):
        want = next(w for w in chunks.wants(8) if w.chunk == index)
        chunks.failed(want.chunk, want.attempt, final=False)


def test_a_chunk_ends_where_the_overlap_begins() -> None:
    chunks = Chunks()
    for seq in range(10):
        chunks.take(seq, [ref(seq * 1000)])
    chunk = chunks.close(carry_seq=8, end_ms=8000)
    assert chunk and (chunk.start_ms, chunk.end_ms, len(chunk.frames)) == (0, 8000, 8)
    assert (chunks.open.index, chunks.open.start_ms, chunks.open.start_seq) == (1, 8000, 8)
    assert [frame.media_time_ms for _, frame in chunks.open.frames] == [8000, 9000]
    assert chunks.open.fresh == 0


def test_nothing_to_close() -> None:
    assert Chunks().close(0, 0) is None
    chunks = Chunks()
    chunks.take(0, [ref(0)])
    assert chunks.close(0, 0) is None and chunks.open.fresh == 1


def test_heads_wait_for_a_chunk_until_it_is_told_or_given_up() -> None:
    chunks = closed(3, 3)
    assert chunks.boundary() == 0
    chunks.landed(1)
    assert chunks.boundary() == 0  # chunk 0 is still awaited
    fail_round(chunks, 0)
    assert chunks.boundary() == 6
    assert chunks.gaps(6, 6000) == [Span(0, 3000)]


def test_attempts_are_counted_and_stale_reports_ignored() -> None:
    chunks = closed(3)
    chunks.failed(0, 1, final=False)
    chunks.failed(0, 1, final=False)
    assert [w.attempt for w in chunks.wants(8)] == [2]
    chunks.failed(0, 2, final=True)
    assert not chunks.wants(8) and chunks.closed[0].gap


def test_a_gap_is_retried_when_the_next_chunk_closes_and_mended() -> None:
    chunks = closed(3)
    fail_round(chunks, 0)
    chunks.take(3, [ref(3000)])
    chunks.close(4, 4000)
    assert [(w.chunk, w.attempt) for w in chunks.wants(8)] == [(1, 1), (0, ATTEMPTS + 1)]
    assert chunks.boundary() == 3  # heads don't wait for the gap again
    assert chunks.landed(0) is not None
    assert chunks.gaps(4, 4000) == [Span(3000, 4000)]


def test_a_gap_stays_for_good_after_its_rounds() -> None:
    chunks = closed(1)
    for number in range(1, ROUNDS + 1):
        fail_round(chunks, 0)
        chunks.take(number, [ref(number * 1000)])
        chunks.close(number + 1, number * 1000 + 1000)
        chunks.landed(number)
    assert not chunks.closed and chunks.lost == [Span(0, 1000)]
    assert chunks.landed(0) is None  # too late


def test_adjacent_gaps_are_one() -> None:
    chunks = closed(2, 2, 2)
    for index in (0, 1):
        chunks.failed(index, 1, final=True)
    assert chunks.gaps(6, 6000) == [Span(0, 6000)]
    assert chunks.gaps(4, 4000) == [Span(0, 4000)]


def test_the_gaps_that_may_be_mended_are_bounded() -> None:
    chunks = Chunks()
    for seq in range(60):
        chunks.take(seq, [ref(seq * 1000)])
        chunks.close(seq + 1, seq * 1000 + 1000)
        for want in chunks.wants(8):
            chunks.failed(want.chunk, want.attempt, final=True)
    assert sum(c.gap for c in chunks.closed) <= GAPS
    assert merge([*chunks.lost, *(Span(c.start_ms, c.end_ms) for c in chunks.closed)]) == [Span(0, 60_000)]


def test_where_the_summarizer_is_slow_waiting_chunks_merge() -> None:
    chunks = closed(*[2] * 20)
    assert len(chunks.closed) == IN_FLIGHT + 1
    last = chunks.closed[-1]
    assert (last.start_ms, last.end_ms) == (4000, 40_000) and len(last.frames) == 36
    assert [w.chunk for w in chunks.wants(8)] == [0, 1]


def test_deleting_all_frames_of_a_chunk_leaves_a_gap() -> None:
    chunks = closed(2, 1)
    chunks.delete_frame("f0")
    assert [f.media_time_ms for f in chunks.wants(8)[0].frames] == [1000]
    chunks.delete_frame("f1000")
    assert [w.chunk for w in chunks.wants(8)] == [1] and chunks.lost == [Span(0, 2000)]


def test_gaps_inside_a_block_are_its_own() -> None:
    chunks = Chunks()
    chunks.lost = [Span(0, 5), Span(10, 20), Span(40, 50)]
    chunks.told(8, 40)
    assert chunks.lost == [Span(0, 5), Span(40, 50)]
    chunks.forget_before(5)
    assert chunks.lost == [Span(40, 50)]


@given(st.integers(1, 300), st.integers(1, 64))
def test_key_frames_are_spread_with_both_ends(count: int, most: int) -> None:
    frames = [ref(i) for i in range(count)]
    picked = [f.media_time_ms for f in sample(frames, most)]
    assert len(picked) == min(count, most) and picked == sorted(set(picked))
    assert picked[-1] == count - 1
    if most > 1:
        assert picked[0] == 0


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=12))
def test_merged_spans_cover_the_same_and_never_touch(pieces: list[tuple[int, int]]) -> None:
    spans = [Span(start, start + size) for start, size in pieces]
    merged = merge(spans)
    assert {t for s in spans for t in range(s.start_ms, s.end_ms)} == {
        t for s in merged for t in range(s.start_ms, s.end_ms)
    }
    assert all(a.end_ms < b.start_ms for a, b in itertools.pairwise(merged))
