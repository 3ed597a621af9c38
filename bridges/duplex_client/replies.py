"""Who waits for which answer. An error names its command; other answers come in the order of the commands."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

from bridges.duplex_client.link import LinkCode, LinkError

MAX_GHOSTS = 64


@dataclass(slots=True)
class _Waiter:
    """:param kind: what answers it; ``key``: where the answer itself says whose it is
    :param deadline: from the moment it is written; ``None`` until then, and while the socket is lost
    :param ghost: nobody waits any more, but its answer is still to come and is nobody else's
    :param adrift: the socket it was written to is gone; the engine may never have got it
    """

    event_id: str
    kind: str
    key: str | None
    patience_s: float | None
    written: bool = False
    deadline: float | None = None
    mark: int = 0
    ghost: bool = False
    adrift: bool = False

    def wait_from(self, now: float) -> None:
        self.deadline = None if self.patience_s is None else now + self.patience_s


class Replies:
    """``settled``: (event id, answer or ``LinkError``) pairs for the shell to hand out, each once."""

    def __init__(self) -> None:
        self._waiters: deque[_Waiter] = deque()
        self.settled: list[tuple[str, Any]] = []
        self.late = 0

    def expect(self, event_id: str, kind: str, patience_s: float | None, key: str | None = None) -> None:
        """``patience_s``: from the moment it is written; ``None``: someone else sees to it."""
        self._waiters.append(_Waiter(event_id, kind, key, patience_s))

    def wrote(self, event_id: str, now: float, mark: int) -> None:
        """The command is on its way; ``mark``: the appends that were written before it."""
        for waiter in self._waiters:
            if waiter.event_id == event_id:
                waiter.written, waiter.mark = True, mark
                waiter.wait_from(now)

    def answer(self, kind: str, value: Any = None, key: str | None = None) -> int | None:
        """The engine's answer of that kind; its waiter's mark, or ``None`` where nobody had asked."""
        for waiter in self._waiters:
            if waiter.kind == kind and waiter.written and (waiter.key is None or waiter.key == key):
                self._waiters.remove(waiter)
                if waiter.ghost:
                    self.late += 1
                else:
                    self.settled.append((waiter.event_id, value))
                return waiter.mark
        return None

    def refuse(self, event_id: str, error: LinkError) -> bool:
        """The engine refused this command; False: nobody waits for it."""
        for waiter in self._waiters:
            if waiter.event_id == event_id:
                self._waiters.remove(waiter)
                if waiter.ghost:
                    self.late += 1
                else:
                    self.settled.append((event_id, error))
                return True
        return False

    def leave(self, event_id: str) -> None:
        """Its caller has gone away."""
        for waiter in list(self._waiters):
            if waiter.event_id == event_id:
                self._give_up(waiter)

    def expire(self, now: float) -> None:
        for waiter in list(self._waiters):
            if waiter.deadline is not None and now >= waiter.deadline and not waiter.ghost:
                told = f"no answer to {waiter.kind} within {waiter.patience_s:g} s"
                self.settled.append((waiter.event_id, LinkError(LinkCode.TIMEOUT, told, retryable=True)))
                self._give_up(waiter)

    def lost(self) -> None:
        """The socket is gone: deadlines stand still, and nobody expects answers that nobody waits for."""
        self._waiters = deque(waiter for waiter in self._waiters if not waiter.ghost)
        for waiter in self._waiters:
            waiter.deadline, waiter.adrift = None, waiter.written

    def resumed(self, now: float) -> None:
        """Answers to what was written on the lost socket may be among the events that are sent again."""
        for waiter in self._waiters:
            if waiter.written:
                waiter.wait_from(now)

    def fail(self, error: LinkError) -> None:
        """Wake everybody."""
        waiters, self._waiters = self._waiters, deque()
        self.settled += [(waiter.event_id, error) for waiter in waiters if not waiter.ghost]

    def due(self) -> float | None:
        deadlines = [w.deadline for w in self._waiters if w.deadline is not None and not w.ghost]
        return min(deadlines, default=None)

    def __len__(self) -> int:
        return sum(not waiter.ghost for waiter in self._waiters)

    def _give_up(self, waiter: _Waiter) -> None:
        ghosts = sum(other.ghost for other in self._waiters)
        answerable = waiter.written and not waiter.adrift and waiter.key is None
        if answerable and ghosts < MAX_GHOSTS:
            waiter.ghost = True
        else:
            self._waiters.remove(waiter)
