"""Standing queries: what the user wants watched, and what of it the model has been shown.

The note of a query (or of its withdrawal) is derived: it rides the open turn as long as no answered turn
shows it. So a failed tick leaves nothing to undo, and a query withdrawn before it was ever shown leaves
no trace.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Query:
    """A question. ``index`` numbers the session's questions; ``shown_seq``: the turn that showed it."""

    query_id: str
    index: int
    text: str
    media_time_ms: int
    shown_seq: int | None = None
    recorded: bool = False


class Queries:
    """The standing queries, oldest first, at most ``limit``; the newest is the one replies answer."""

    def __init__(self, limit: int) -> None:
        self._limit = max(1, limit)
        self.standing: list[Query] = []
        self.shown: tuple[str, ...] = ()

    @property
    def current(self) -> Query | None:
        return self.standing[-1] if self.standing else None

    def get(self, query_id: str) -> Query | None:
        return next((q for q in self.standing if q.query_id == query_id), None)

    def set(self, query: Query) -> list[Query]:
        """Add a query; returns those it replaces. A known id is the same asking, not a new one."""
        if self.get(query.query_id):
            return []
        replaced = self.standing[: len(self.standing) + 1 - self._limit]
        self.standing = [*self.standing[len(replaced) :], query]
        return replaced

    def clear(self) -> list[Query]:
        ended, self.standing = self.standing, []
        return ended

    def remove(self, query_id: str) -> None:
        """Forget a deleted query as if it had never been asked."""
        self.standing = [q for q in self.standing if q.query_id != query_id]
        self.shown = tuple(i for i in self.shown if i != query_id)

    def unseen(self) -> list[Query]:
        """Queries that the next turn has to ask."""
        return [q for q in self.standing if q.query_id not in self.shown]

    def withdrawn(self) -> bool:
        """The model still follows a query, and none stands any more: the next turn has to say so."""
        return bool(self.shown) and not self.standing

    def commit(self, standing: tuple[str, ...], seq: int) -> None:
        """Turn ``seq`` was answered; it was begun when ``standing`` stood."""
        for query in self.standing:
            if query.query_id in standing and query.query_id not in self.shown:
                query.shown_seq = seq
        self.shown = standing

    def before(self, seq: int) -> list[Query]:
        """Standing queries that the turns from ``seq`` on don't show: the head has to."""
        return [q for q in self.standing if q.shown_seq is not None and q.shown_seq < seq]
