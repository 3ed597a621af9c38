"""Which written appends the engine is known to have: its answers come in the order of our commands."""

from __future__ import annotations

from collections import deque

MAX_UNCONFIRMED = 4096
CONFIRM_S = 0.2
"""While appends are unconfirmed a heartbeat asks for the engine's word: one at a time, at most that often."""


class Confirming:
    """Counts appends as they are written; an answer to anything written later confirms them."""

    def __init__(self) -> None:
        self._count = 0
        self._waiting: deque[tuple[int, str]] = deque(maxlen=MAX_UNCONFIRMED)
        self._beats: deque[int | None] = deque()
        self._asked = 0
        self._beat_at = 0.0

    def connected(self, now: float) -> bool:
        """A fresh socket carries the session. Heartbeats that were written before prove nothing any more:
        whether they will be answered is not known. True: some are out, and nothing is asked before an
        answer that cannot be theirs has come (``caught_up``)."""
        self._beats = deque(None for _ in self._beats)
        self._beat_at = now
        self._asked = self._count
        return bool(self._beats)

    def caught_up(self) -> None:
        """Whatever the engine had to say to what was written on earlier sockets, it has said."""
        self._beats = deque(mark for mark in self._beats if mark is not None)

    def wrote(self, event_id: str) -> None:
        self._count += 1
        self._waiting.append((self._count, event_id))

    @property
    def mark(self) -> int:
        """What an answer to a command that is written now will confirm."""
        return self._count

    def confirm(self, mark: int) -> None:
        while self._waiting and self._waiting[0][0] <= mark:
            self._waiting.popleft()

    def refused(self, event_id: str) -> None:
        """The engine spoke of this append: whatever became of it, it has it."""
        self._waiting = deque(
            (entry for entry in self._waiting if entry[1] != event_id), maxlen=MAX_UNCONFIRMED
        )

    def give_up(self) -> tuple[str, ...]:
        """The event ids that are unconfirmed; nobody asks for them again."""
        ids = tuple(event_id for _, event_id in self._waiting)
        self._waiting.clear()
        return ids

    @property
    def unconfirmed(self) -> int:
        return len(self._waiting)

    # --- heartbeats -----------------------------------------------------------------------------------

    def beat_at(self, heartbeat_s: float) -> float:
        """When the next heartbeat is due."""
        due = self._beat_at + heartbeat_s
        if self._waiting and self._count > self._asked and not self._beats:
            due = min(due, self._beat_at + CONFIRM_S)
        return due

    def beat(self, now: float) -> None:
        """A heartbeat is written."""
        self._beat_at, self._asked = now, self._count
        self._beats.append(self._count)

    def answered(self) -> bool:
        """A heartbeat is answered. False: none was out."""
        if not self._beats:
            return False
        mark = self._beats.popleft()
        if mark is not None:
            self.confirm(mark)
        return True
