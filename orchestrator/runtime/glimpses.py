"""Live pictures that wait in a mailbox: the newest matter, older ones give way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from orchestrator.session.commands import ASIDE, AnyCommand, AppendInput


def surplus(
    mailbox: deque[tuple[AnyCommand, bool]], gives_way: Callable[[AnyCommand], bool], most: int
) -> AppendInput | None:
    """Where a picture was added, take the oldest one out of its row if that has more than ``most`` now.

    A row ends where anything else waits that concerns input, so a commit seals what it sealed before, as long
    as ``most`` is not 0.
    """
    if not gives_way(mailbox[-1][0]):
        return None
    row: list[int] = []
    for place in range(len(mailbox) - 1, -1, -1):
        command = mailbox[place][0]
        if gives_way(command):
            row.append(place)
        elif not isinstance(command, ASIDE):
            break
    if len(row) <= most:
        return None
    oldest = mailbox[row[-1]][0]
    assert isinstance(oldest, AppendInput)
    del mailbox[row[-1]]
    return oldest
