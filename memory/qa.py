"""Q&A history: what was asked, answered and delivered, once it has left the window.

Lines are kept in the order of events. ``archive`` is what frozen heads hold: it only grows at its end,
until the bounds cut its older part into one digest line. ``recent`` still stands in window turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from memory.lines import Lines
from memory.tokens import estimate

RECENT_MAX = 256  # lines not archived yet
KEPT_AFTER_CUT = 3, 4  # a cut leaves three quarters, so that the head is rewritten rarely


@dataclass(frozen=True, slots=True)
class QaLine:
    """One line. ``seq``: the turn that shows the event; a head may hold it once that turn is gone.

    ``kind``: ``query``, ``response`` (under a query), ``unasked`` or ``delivery``.
    """

    kind: str
    seq: int
    media_time_ms: int
    text: str
    index: int = 0
    query_id: str | None = None
    response_id: str | None = None
    question: str = ""
    ok: bool = True

    def render(self, lines: Lines) -> str:
        if self.kind == "query":
            return lines.qa_query(self.index, self.media_time_ms, self.text)
        if self.kind == "response":
            return lines.qa_response(self.media_time_ms, self.text)
        if self.kind == "unasked":
            return lines.qa_unasked(self.index, self.media_time_ms, self.text)
        return lines.delegation(self.question, self.text, self.ok)

    @property
    def tokens(self) -> int:
        return estimate(self.text) + estimate(self.question) + 12


@dataclass(frozen=True, slots=True)
class Digest:
    """Entries that the bounds removed: how many, and the time they span."""

    count: int
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class QaArchive:
    """What a head shows: the digest of the oldest entries, then the others."""

    digest: Digest | None = None
    lines: tuple[QaLine, ...] = ()

    def render(self, lines: Lines) -> list[str]:
        first = (
            [lines.qa_digest(self.digest.count, self.digest.start_ms, self.digest.end_ms)]
            if self.digest
            else []
        )
        return first + [line.render(lines) for line in self.lines]

    def bounded(self, most: int, tokens: int) -> QaArchive:
        """Within both bounds; beyond one of them the oldest go, down to three quarters of it."""
        if len(self.lines) <= most and sum(line.tokens for line in self.lines) <= tokens:
            return self
        part, whole = KEPT_AFTER_CUT
        keep, room = most * part // whole, tokens * part // whole
        start = len(self.lines)
        while start > 0 and keep > 0 and room >= self.lines[start - 1].tokens:
            start -= 1
            keep -= 1
            room -= self.lines[start].tokens
        return replace(self, lines=self.lines[start:]).without(self.lines[:start])

    def without(self, gone: Sequence[QaLine]) -> QaArchive:
        """The digest counts ``gone`` too."""
        times = [line.media_time_ms for line in gone]
        if not times:
            return self
        if self.digest:
            times += (self.digest.start_ms, self.digest.end_ms)
        count = len(gone) + (self.digest.count if self.digest else 0)
        return replace(self, digest=Digest(count, min(times), max(times)))


class QaHistory:
    """All Q&A events of a session that are still in a window or within the bounds."""

    def __init__(self) -> None:
        self.archive = QaArchive()
        self.frozen = QaArchive()
        self.recent: list[QaLine] = []
        self.entries = 0

    def next_index(self) -> int:
        self.entries += 1
        return self.entries

    def add(self, line: QaLine) -> None:
        """Questions that no tick has shown yet may be many: beyond a bound they count as left out."""
        self.recent.append(line)
        if len(self.recent) > RECENT_MAX:
            self.archive = self.archive.without(self.recent[:1])
            self.frozen = self.frozen.without(self.recent[:1])
            del self.recent[0]

    def before(self, seq: int, most: int, tokens: int) -> QaArchive:
        """The archive of a head whose window starts at turn ``seq``."""
        gone = tuple(line for line in self.recent if line.seq < seq)
        return replace(self.archive, lines=self.archive.lines + gone).bounded(most, tokens)

    def freeze(self, archive: QaArchive) -> None:
        """A head with ``archive`` was frozen; it counts once its window is live."""
        self.frozen = archive

    def leave(self, seq: int) -> None:
        """The window now starts at ``seq`` on the head last frozen: what precedes it is archived."""
        self.archive = self.frozen
        self.recent = [line for line in self.recent if line.seq >= seq]

    def heard(self, response_id: str, text: str) -> bool:
        """Only what was heard stays of a response; nothing heard, no entry. False when it is unknown."""
        known = any(line.response_id == response_id for line in (*self.archive.lines, *self.recent))
        if known:
            self._edit(lambda lines: _heard(lines, response_id, text))
        return known

    def remove_query(self, query_id: str) -> None:
        """A deleted question goes with its answers."""
        self._edit(lambda lines: tuple(line for line in lines if line.query_id != query_id))

    def _edit(self, edit: Callable[[Sequence[QaLine]], tuple[QaLine, ...]]) -> None:
        self.archive = replace(self.archive, lines=edit(self.archive.lines))
        self.frozen = replace(self.frozen, lines=edit(self.frozen.lines))
        self.recent = list(edit(self.recent))


def _heard(lines: Sequence[QaLine], response_id: str, text: str) -> tuple[QaLine, ...]:
    kept = []
    for line in lines:
        if line.response_id != response_id:
            kept.append(line)
        elif text.strip():
            kept.append(replace(line, text=text))
    return tuple(kept)
