"""``LeaseTable``: what a process knows of its leases, without I/O. The truth is in the store."""

from __future__ import annotations

from collections.abc import Mapping


class LeaseTable:
    """Times are this process's monotonic seconds.

    A heartbeat counts from when it was sent: the store may have taken it at any moment since then.

    :param life_s: of the process after a heartbeat
    """

    def __init__(self, life_s: float, now: float) -> None:
        self._life_s = life_s
        self._proven_at = now
        self._taken: dict[str, tuple[int, float]] = {}

    def took(self, session: str, fence: int, now: float) -> None:
        """The store gave this process a lease."""
        self._taken[session] = (fence, now)

    def let_go(self, session: str) -> None:
        """The lease is given back, or known to be lost."""
        self._taken.pop(session, None)

    def answered(self, sent_at: float, held: Mapping[str, int]) -> tuple[str, ...]:
        """A heartbeat was taken, and these leases were there: the sessions that were lost, each told once.

        A lease that came after the heartbeat was sent may be missing in its answer.
        """
        self._proven_at = max(self._proven_at, sent_at)
        lost = [
            session
            for session, (fence, at) in self._taken.items()
            if at < sent_at and held.get(session) != fence
        ]
        for session in lost:
            del self._taken[session]
        return tuple(lost)

    def doubted(self) -> tuple[str, ...]:
        """None of its sessions can be said to be its own any more: all of them, each told once."""
        taken = tuple(self._taken)
        self._taken.clear()
        return taken

    def sure(self, now: float) -> bool:
        """Nobody can have taken anything: the life since the last heartbeat is not over."""
        return now < self._proven_at + self._life_s

    def __contains__(self, session: object) -> bool:
        return session in self._taken

    def __len__(self) -> int:
        return len(self._taken)
