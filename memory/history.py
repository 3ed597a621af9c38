"""What is told by text: chunk summaries, and the long-term blocks they roll up into. Oldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from memory.chunks import Span
from memory.lines import Lines
from memory.plan import WantRollup

ROLLUP_ATTEMPTS = 3  # failures after which a roll-up waits for the next summary
SUMMARIES_MAX = 4  # times ``rollup_chunks``: summaries kept while no roll-up succeeds


@dataclass(frozen=True, slots=True)
class Passage:
    """Text about ``[start_ms, end_ms)``. ``chunk``: the summary's chunk, or the last one of a block;
    ``start_seq``: the turn where it begins."""

    chunk: int
    start_ms: int
    end_ms: int
    start_seq: int
    text: str


class History:
    """Summaries and blocks within their budget. ``revision`` grows with every change."""

    def __init__(self) -> None:
        self.summaries: list[Passage] = []
        self.blocks: list[Passage] = []
        self.revision = 0
        self.forgotten_before_ms: int | None = None
        self.attempt = 1
        self.failures = 0

    def summary(self, passage: Passage) -> None:
        """A summary has come; it takes its place in time. A new one lets a failed roll-up try again."""
        self.summaries.append(passage)
        self.summaries.sort(key=lambda p: p.start_seq)
        self.revision += 1
        self.failures = 0

    def ready(self, count: int, pending_before: Callable[[int], bool]) -> list[Passage]:
        """The oldest ``count`` summaries, if they are there and none between them may still come."""
        oldest = self.summaries[:count]
        if len(oldest) < count or pending_before(oldest[-1].end_ms):
            return []
        return oldest

    def wants(
        self, count: int, pending_before: Callable[[int], bool], lost: Sequence[Span], lines: Lines
    ) -> list[WantRollup]:
        """The roll-up due now. Gaps that will stay are told to it at their place."""
        oldest = self.ready(count, pending_before)
        if not oldest or self.failures >= ROLLUP_ATTEMPTS:
            return []
        start_ms, end_ms = oldest[0].start_ms, oldest[-1].end_ms
        chunks = tuple(p.chunk for p in oldest)
        texts = timed(lines, oldest, [s for s in lost if start_ms <= s.start_ms < end_ms])
        return [WantRollup(chunks, self.attempt, tuple(texts), start_ms, end_ms)]

    def rollup(self, chunks: tuple[int, ...], text: str) -> Passage | None:
        """A block takes the place of its summaries. ``None``, and nothing changes, when they are no longer
        the oldest ones."""
        oldest = self.summaries[: len(chunks)]
        if not chunks or tuple(p.chunk for p in oldest) != chunks:
            return None
        self.summaries = self.summaries[len(chunks) :]
        first, last = oldest[0], oldest[-1]
        block = Passage(last.chunk, first.start_ms, last.end_ms, first.start_seq, text)
        self.blocks.append(block)
        self.revision += 1
        self.attempt, self.failures = 1, 0
        return block

    def rollup_failed(self, chunks: tuple[int, ...], attempt: int) -> None:
        """Its inputs stay."""
        if attempt == self.attempt and tuple(p.chunk for p in self.summaries[: len(chunks)]) == chunks:
            self.attempt += 1
            self.failures += 1

    def trim(
        self, *, blocks_max: int, blocks_keep: int, block_tokens: int, all_tokens: int,
        summaries_max: int, count: Callable[[str], int],
    ) -> None:  # fmt: skip
        """Keep within count and tokens. A cut goes well below the bound, so that it is rare."""
        if len(self.blocks) > blocks_max:
            self._forget_blocks(len(self.blocks) - blocks_keep)
        sizes = [count(p.text) for p in self.blocks]
        if sum(sizes) > block_tokens:
            while len(sizes) > 1 and sum(sizes) > block_tokens * 3 // 4:
                sizes.pop(0)
            self._forget_blocks(len(self.blocks) - len(sizes))
        held = [count(p.text) for p in (*self.blocks, *self.summaries)]
        if sum(held) > all_tokens or len(self.summaries) > summaries_max:
            keep = summaries_max * 3 // 4
            while len(held) > 1 and (sum(held) > all_tokens * 3 // 4 or len(held) > keep):
                held.pop(0)
            gone = len(self.blocks) + len(self.summaries) - len(held)
            self._forget_blocks(min(gone, len(self.blocks)))
            self._forget_summaries(max(0, len(self.summaries) - len(held)))

    def _forget_blocks(self, gone: int) -> None:
        if gone > 0:
            self.forgotten_before_ms = self.blocks[gone - 1].end_ms
            self.blocks = self.blocks[gone:]
            self.revision += 1

    def _forget_summaries(self, gone: int) -> None:
        if gone > 0:
            self.forgotten_before_ms = self.summaries[gone - 1].end_ms
            self.summaries = self.summaries[gone:]
            self.revision += 1

    def before(self, seq: int) -> tuple[list[Passage], list[Passage]]:
        """Blocks and summaries of what precedes turn ``seq``: what a head may tell."""
        blocks = [p for p in self.blocks if p.start_seq < seq]
        return blocks, [p for p in self.summaries if p.start_seq < seq]


def timed(lines: Lines, passages: Iterable[Passage], gaps: Iterable[Span]) -> list[str]:
    """Passages and gap markers as prompt text, in the order of their times."""
    entries = [(p.start_ms, lines.passage(p.start_ms, p.end_ms, p.text)) for p in passages]
    entries += ((gap.start_ms, lines.gap(gap.start_ms, gap.end_ms)) for gap in gaps)
    return [text for _, text in sorted(entries, key=lambda entry: entry[0])]
