"""``SpokenMemory``: what a native session's log of facts means for the next engine session. A pure fold.

The same tiers as for replay sessions: the newest talk word for word, a summary of each chunk that left it,
blocks that several summaries rolled up into. A summary is cut from the talk itself at once, so nothing ever
waits for one; where a summarizer is configured, its text takes that place when it comes.

Everything is bounded by ``seed_tokens`` of the first fact, however long the talk lasts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from memory import facts as f
from memory.digest import newest
from memory.history import History, Passage
from memory.plan import WantRollup
from memory.tokens import clip, estimate
from memory.utterances import Spoken, Utterance, Utterances, flat
from prompts.conversation import telling

ATTEMPTS = 3
"""Of a summarizer at one text; then what was cut from the talk stays."""
OPEN_CHUNKS = 4
"""Chunks whose talk is kept for the summarizer; the oldest goes first."""
ROLLUP_CHUNKS = 4
SUMMARIES_MAX = 8
BLOCKS_MAX, BLOCKS_KEEP = 8, 6
SMALLEST = 256
"""Tokens: memory is never sized for less."""


@dataclass(frozen=True, slots=True)
class WantSpokenSummary:
    """Summarise a chunk of talk; ends with ``summary_landed`` or ``summary_failed``.

    :param lines: what was said, oldest first, neutralised; ``target``: tokens asked for
    """

    chunk: int
    attempt: int
    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    target: int


SpokenWant = WantSpokenSummary | WantRollup


@dataclass(slots=True)
class _Chunk:
    """Talk that a summarizer may still put better than the digest."""

    index: int
    start_ms: int
    end_ms: int
    lines: tuple[str, ...]
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """Tokens of each tier.

    :param recent: of talk kept word for word; ``keep``: of it after a chunk was closed; ``line`` of one line
    :param passage: of one summary or block; ``history`` of all of them
    """

    recent: int
    keep: int
    line: int
    passage: int
    history: int


def sizes(seed_tokens: int) -> Sizes:
    """Half of a seed for what was said lately, half for notes on the rest."""
    seed = max(SMALLEST, seed_tokens)
    return Sizes(
        recent=seed // 2, keep=seed // 3, line=seed // 6, passage=max(16, seed // 24), history=seed * 3 // 4
    )


class SpokenMemory:
    """One session's. Deterministic in its facts: replaying a log gives the same bytes.

    ``apply`` raises ``prompts.loader.PackError`` for a language that does not ship; the memory is then
    unchanged. No other method may be called before ``spoken_opened`` was applied.
    """

    def __init__(self) -> None:
        self.revision = 0
        """Grows with everything that was said and heard."""
        self.now_ms = 0
        self.transcribed = False
        """Some of the user's words were understood."""
        self.history = History()
        self._parts: tuple[Spoken, Sizes, Utterances] | None = None
        self._opened: f.SpokenOpened | None = None
        self._chunks: list[_Chunk] = []
        self._next_chunk = 0
        self._folds: dict[str, Callable[[Any], None]] = {
            "spoken_opened": self._open,
            "user_said": self._user_said,
            "query_set": self._query_set,
            "item_deleted": self._item_deleted,
            "heard": self._heard,
            "frames_shown": self._frames_shown,
            "frames_described": self._frames_described,
            "delegation_done": self._delegation_done,
            "summary_landed": self._summary_landed,
            "summary_failed": self._summary_failed,
            "rollup_landed": self._rollup_landed,
            "rollup_failed": self._rollup_failed,
        }

    # --- questions ------------------------------------------------------------------------------------

    @property
    def opened(self) -> f.SpokenOpened:
        if self._opened is None:
            raise RuntimeError("the memory is not open: apply spoken_opened first")
        return self._opened

    @property
    def spoken(self) -> Spoken:
        return self._all[0]

    @property
    def sizes(self) -> Sizes:
        return self._all[1]

    @property
    def recent(self) -> tuple[Utterance, ...]:
        """The newest talk, oldest first, lines without words left out."""
        return tuple(line for line in self._all[2].lines if line.shown)

    @property
    def empty(self) -> bool:
        return not (self.recent or self.history.summaries or self.history.blocks)

    def apply(self, fact: f.AnyFact) -> None:
        """Fold one fact. Kinds that mean nothing to a conversation are ignored."""
        fold = self._folds.get(fact.kind)
        if fold is not None:
            fold(fact)

    def wants(self) -> tuple[SpokenWant, ...]:
        """Texts for the summarizer, outstanding until their facts come. Identities: (chunk, attempt) and
        (chunks, attempt)."""
        if not self.opened.summarizer:
            return ()
        target = self.sizes.passage
        wanted: list[SpokenWant] = [
            WantSpokenSummary(c.index, c.attempt, c.start_ms, c.end_ms, c.lines, target)
            for c in self._chunks[:1]
        ]
        oldest = self._ready()
        if oldest:
            texts = tuple(self.spoken.passage(p.start_ms, p.end_ms, p.text) for p in oldest)
            chunks = tuple(p.chunk for p in oldest)
            wanted.append(
                WantRollup(chunks, self.history.attempt, texts, oldest[0].start_ms, oldest[-1].end_ms)
            )
        return tuple(wanted)

    def fingerprint(self) -> str:
        """Digest over everything kept."""
        history = self.history
        kept = (self._all[2].lines, history.summaries, history.blocks, history.forgotten_before_ms)
        return hashlib.sha256(repr((kept, self._chunks, self.revision, self.now_ms)).encode()).hexdigest()

    def statistics(self) -> dict[str, int]:
        """Tokens and counts of each tier, all of them bounded."""
        texts = [p.text for p in (*self.history.summaries, *self.history.blocks)]
        return {
            "recent_tokens": self._all[2].tokens,
            "recent_lines": len(self._all[2].lines),
            "summaries": len(self.history.summaries),
            "blocks": len(self.history.blocks),
            "history_tokens": sum(map(estimate, texts)),
            "open_chunks": len(self._chunks),
        }

    # --- the folds ------------------------------------------------------------------------------------

    @property
    def _all(self) -> tuple[Spoken, Sizes, Utterances]:
        if self._parts is None:
            raise RuntimeError("the memory is not open: apply spoken_opened first")
        return self._parts

    def _open(self, fact: f.SpokenOpened) -> None:
        size = sizes(fact.seed_tokens)
        spoken = Spoken(telling(fact.language))
        self._parts = spoken, size, Utterances(size.line)
        self._opened = fact

    def _see(self, ms: int) -> Utterances:
        self.now_ms = max(self.now_ms, ms)
        return self._all[2]

    def _user_said(self, fact: f.UserSaid) -> None:
        self.transcribed = True
        self._changed(self._see(fact.media_time_ms).user(fact.item_id, fact.text, self.now_ms))

    def _query_set(self, fact: f.QuerySet) -> None:
        self.transcribed = True
        self._changed(self._see(fact.media_time_ms).user(fact.query_id, fact.text, self.now_ms))

    def _item_deleted(self, fact: f.ItemDeleted) -> None:
        self._changed(bool(fact.query_id) and self._all[2].forget(fact.query_id or ""))

    def _heard(self, fact: f.HeardFact) -> None:
        lines = self._see(fact.media_time_ms)
        self._changed(lines.heard(fact.response_id, fact.text, fact.complete, self.now_ms))

    def _frames_shown(self, fact: f.FramesShown) -> None:
        self._see(fact.media_time_ms).frames(fact.count, self.now_ms)
        self._close_chunk()

    def _frames_described(self, fact: f.FramesDescribed) -> None:
        """No news to a seed: nobody said it."""
        self._all[2].describe(fact.text, fact.count, fact.start_ms, fact.end_ms)
        self._close_chunk()

    def _delegation_done(self, fact: f.DelegationDone) -> None:
        """An answer is news to a seed; its question stands beside it."""
        who = "looked_up" if fact.ok else "failed"
        self._see(fact.media_time_ms).note(
            who, fact.delegation_id, f"{fact.question} - {fact.text}", self.now_ms
        )
        self._changed(True)

    def _summary_landed(self, fact: f.SummaryLanded) -> None:
        chunk = self._taken(fact.chunk)
        text = clip(flat(fact.text), self.sizes.passage)
        if chunk is None or not text:
            return
        summaries = self.history.summaries
        for index, passage in enumerate(summaries):
            if passage.chunk == fact.chunk:
                summaries[index] = replace(passage, text=text)
        self._roll_up()

    def _summary_failed(self, fact: f.SummaryFailed) -> None:
        chunk = next((c for c in self._chunks if c.index == fact.chunk and c.attempt == fact.attempt), None)
        if chunk is not None:
            chunk.attempt += 1
            if fact.final or chunk.attempt > ATTEMPTS:
                self._taken(fact.chunk)
                self._roll_up()

    def _rollup_landed(self, fact: f.RollupLanded) -> None:
        text = clip(flat(fact.text), self.sizes.passage)
        if not text:
            self.history.rollup_failed(fact.chunks, self.history.attempt)
        else:
            self.history.rollup(fact.chunks, text)
        self._roll_up()

    def _rollup_failed(self, fact: f.RollupFailed) -> None:
        self.history.rollup_failed(fact.chunks, fact.attempt)
        self._roll_up()

    # --- tiers ----------------------------------------------------------------------------------------

    def _changed(self, changed: bool) -> None:
        if changed:
            self.revision += 1
            self._close_chunk()

    def _close_chunk(self) -> None:
        """Talk beyond what is kept word for word becomes a summary."""
        spoken, size, utterances = self._all
        if utterances.tokens <= size.recent:
            return
        taken = utterances.take(size.keep)
        if not taken:
            return
        lines = tuple(line.render(spoken.telling, str) for line in taken)
        index, self._next_chunk = self._next_chunk, self._next_chunk + 1
        start_ms, end_ms = taken[0].start_ms, max(line.end_ms for line in taken)
        text = newest(lines, size.passage, spoken.telling)
        self.history.summary(Passage(index, start_ms, end_ms, index, text))
        if self.opened.summarizer:
            said = tuple(map(spoken.line, taken))
            self._chunks = [*self._chunks, _Chunk(index, start_ms, end_ms, said)][-OPEN_CHUNKS:]
        self._roll_up()

    def _roll_up(self) -> None:
        """What no summarizer will roll up any more is rolled up here; then the oldest is forgotten."""
        history, size = self.history, self.sizes
        while len(history.summaries) > (SUMMARIES_MAX if self._ready() else 2 * SUMMARIES_MAX) or (
            len(history.summaries) >= ROLLUP_CHUNKS and self._alone
        ):
            oldest = history.summaries[:ROLLUP_CHUNKS]
            text = newest([p.text for p in oldest], size.passage, self.spoken.telling)
            history.rollup(tuple(p.chunk for p in oldest), text)
        history.trim(
            blocks_max=BLOCKS_MAX, blocks_keep=BLOCKS_KEEP, block_tokens=size.history,
            all_tokens=size.history, summaries_max=2 * SUMMARIES_MAX, count=estimate,
        )  # fmt: skip

    @property
    def _alone(self) -> bool:
        """No summarizer rolls up, or it has failed at it."""
        return not self.opened.summarizer or (bool(self._ready()) and self.history.failures >= ATTEMPTS)

    def _ready(self) -> list[Passage]:
        """The oldest summaries, once none of them may still be put better."""
        oldest = self.history.summaries[:ROLLUP_CHUNKS]
        waiting = {c.index for c in self._chunks}
        if len(oldest) < ROLLUP_CHUNKS or any(p.chunk in waiting for p in oldest):
            return []
        return oldest

    def _taken(self, index: int) -> _Chunk | None:
        """The chunk, no longer kept for the summarizer."""
        found = next((c for c in self._chunks if c.index == index), None)
        if found is not None:
            self._chunks.remove(found)
        return found
