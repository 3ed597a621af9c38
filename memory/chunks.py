"""Chunks: runs of shown frames, each to become one summary. The spans of all chunks tile media time.

A chunk closes when it has taken its frames. Its span ends at the first frame that the next window will
carry (the overlap), and the next chunk's span begins there: so text and window never tell the same second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from memory.plan import FrameRef, WantSummary

ATTEMPTS = 3  # failures of one round before a gap marker takes the summary's place
MERGED_FRAMES = 256  # frames kept of chunks that merged while they waited
ROUNDS = 3  # a round begins with each later chunk; then the gap stays
GAPS = 4  # gaps that may still be mended; beyond it the oldest stays for good
IN_FLIGHT = 2  # summaries wanted at a time; further chunks wait, and merge when several do


@dataclass(slots=True)
class Chunk:
    """A closed chunk without its summary. ``start_seq``: the turn where its span begins.

    ``gap``: its summary has failed for good once, so heads no longer wait for it.
    """

    index: int
    start_ms: int
    end_ms: int
    start_seq: int
    frames: tuple[FrameRef, ...]
    attempt: int = 1
    failures: int = 0
    rounds: int = 1
    waiting: bool = True
    gap: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of media time, end exclusive."""

    start_ms: int
    end_ms: int


@dataclass(slots=True)
class OpenChunk:
    """The chunk that takes frames now. ``fresh`` of its frames are new; the others are overlap."""

    index: int = 0
    start_ms: int | None = None
    start_seq: int = 0
    frames: list[tuple[int, FrameRef]] = field(default_factory=list)
    fresh: int = 0


class Chunks:
    """The open chunk, the closed ones without summary, and the gaps that will stay."""

    def __init__(self) -> None:
        self.open = OpenChunk()
        self.closed: list[Chunk] = []
        self.lost: list[Span] = []

    def take(self, seq: int, frames: Sequence[FrameRef]) -> None:
        """Turn ``seq`` showed ``frames``."""
        if frames:
            first, start = frames[0].media_time_ms, self.open.start_ms
            self.open.start_ms = first if start is None else min(start, first)
        self.open.frames += ((seq, frame) for frame in frames)
        self.open.fresh += len(frames)

    def close(self, carry_seq: int, end_ms: int, *, told: bool = True) -> Chunk | None:
        """Close the open chunk so that its span ends where turn ``carry_seq`` begins (at ``end_ms``).

        Not ``told``: no text will speak for it, and its frames go without waiting for one.
        """
        taken = self.open
        inside = tuple(frame for seq, frame in taken.frames if seq < carry_seq)
        if not inside or taken.start_ms is None:
            return None
        after = [(seq, frame) for seq, frame in taken.frames if seq >= carry_seq]
        chunk = Chunk(taken.index, taken.start_ms, end_ms, taken.start_seq, inside)
        self.open = OpenChunk(taken.index + 1, end_ms, carry_seq, after)
        for gap in self.closed:
            if gap.gap and not gap.waiting:
                gap.waiting, gap.failures, gap.rounds = True, 0, gap.rounds + 1
        if told:
            self.closed.append(chunk)
            self._merge_waiting()
        return chunk

    def _merge_waiting(self) -> None:
        """Where the summarizer is slower than the chunks, those that wait become one longer chunk."""
        if len(self.closed) < 2:
            return
        first, second = self.closed[-2:]
        untouched = not first.gap and first.attempt == 1 and first not in self._wanted()
        if untouched and first.end_ms == second.start_ms:
            first.end_ms = second.end_ms
            first.frames = sample(first.frames + second.frames, MERGED_FRAMES)
            del self.closed[-1]

    def _wanted(self) -> list[Chunk]:
        """What the summarizer works on: chunks that heads wait for, then gaps to be mended."""
        waiting = sorted((c for c in self.closed if c.waiting), key=lambda c: c.gap)
        return waiting[:IN_FLIGHT]

    def wants(self, key_frames: int) -> list[WantSummary]:
        return [
            WantSummary(c.index, c.attempt, c.start_ms, c.end_ms, sample(c.frames, key_frames))
            for c in self._wanted()
        ]

    def landed(self, index: int) -> Chunk | None:
        """The chunk whose summary has come, no longer kept here; ``None`` when it is not awaited."""
        chunk = next((c for c in self.closed if c.index == index), None)
        if chunk:
            self.closed.remove(chunk)
        return chunk

    def failed(self, index: int, attempt: int, final: bool) -> None:
        """One attempt came to nothing; after the last of a round the chunk is a gap until a later round."""
        chunk = next((c for c in self.closed if c.index == index and c.attempt == attempt), None)
        if chunk is None or not chunk.waiting:
            return
        chunk.attempt += 1
        chunk.failures += 1
        if not final and chunk.failures < ATTEMPTS:
            return
        chunk.waiting, chunk.gap = False, True
        gaps = [c for c in self.closed if c.gap]
        for gap in gaps:
            if (gap is chunk and gap.rounds >= ROUNDS) or (gap is gaps[0] and len(gaps) > GAPS):
                self._lose(gap)

    def _lose(self, chunk: Chunk) -> None:
        self.closed.remove(chunk)
        self.lost = merge([*self.lost, Span(chunk.start_ms, chunk.end_ms)])

    def boundary(self) -> int:
        """The turn before which all is told by text or by a gap marker."""
        return next((c.start_seq for c in self.closed if not c.gap), self.open.start_seq)

    def gaps(self, start_seq: int, start_ms: int) -> list[Span]:
        """What a window that starts at turn ``start_seq`` shows in neither frames nor text."""
        spans = [
            *self.lost,
            *(Span(c.start_ms, min(c.end_ms, start_ms)) for c in self.closed if c.start_seq < start_seq),
        ]
        if self.open.start_ms is not None and self.open.start_seq < start_seq:
            spans.append(Span(self.open.start_ms, start_ms))
        return merge([span for span in spans if span.start_ms < span.end_ms])

    def pending_before(self, end_ms: int) -> bool:
        """A chunk that may still get its summary lies before ``end_ms``."""
        return any(c.start_ms < end_ms for c in self.closed)

    def told(self, start_ms: int, end_ms: int) -> None:
        """A long-term block now speaks for this time, its gaps included."""
        self.lost = [span for span in self.lost if not start_ms <= span.start_ms < end_ms]

    def forget_before(self, ms: int) -> None:
        """Long-term memory no longer reaches back beyond ``ms``; nor do gaps."""
        self.lost = [span for span in self.lost if span.end_ms > ms]

    def delete_frame(self, frame_id: str) -> None:
        """A chunk left without a picture cannot be summarised any more."""
        self.open.frames = [(seq, f) for seq, f in self.open.frames if f.frame_id != frame_id]
        for chunk in tuple(self.closed):
            chunk.frames = tuple(f for f in chunk.frames if f.frame_id != frame_id)
            if not chunk.frames:
                self._lose(chunk)


def merge(spans: Sequence[Span]) -> list[Span]:
    """Sorted, adjacent and overlapping ones joined."""
    joined: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.start_ms, s.end_ms)):
        if joined and span.start_ms <= joined[-1].end_ms:
            joined[-1] = Span(joined[-1].start_ms, max(joined[-1].end_ms, span.end_ms))
        else:
            joined.append(span)
    return joined


def sample(frames: Sequence[FrameRef], most: int) -> tuple[FrameRef, ...]:
    """At most ``most`` frames, evenly spread, first and last among them."""
    if len(frames) <= most:
        return tuple(frames)
    if most <= 1:
        return (frames[-1],)
    return tuple(frames[i * (len(frames) - 1) // (most - 1)] for i in range(most))
