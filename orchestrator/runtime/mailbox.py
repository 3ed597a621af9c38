"""Commands that were admitted and wait for their turn: in arrival order, and never too many."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.runtime.parts import RuntimeLimits
from orchestrator.session.commands import (
    ASIDE,
    AnyCommand,
    AppendInput,
    Cancel,
    ClearOutput,
    Close,
    Interrupt,
)
from orchestrator.session.core import SessionCore
from orchestrator.wire.errors import ResourceExhausted, VigilError

URGENT = (Cancel, ClearOutput, Interrupt, Close)
"""Commands that find room in a full mailbox."""


class Waiting(NamedTuple):
    """``interrupting``: it ends work in flight that was asked for before it."""

    command: AnyCommand
    interrupting: bool


class Mailbox:
    """Of one session: what is put in was admitted by its core, which has charged for it.

    Every command comes out once, in arrival order, but for live pictures that newer ones behind them replace
    and what is left when the session ends.
    """

    def __init__(self, core: SessionCore, limits: RuntimeLimits) -> None:
        self._core = core
        self._limits = limits
        self._waiting: deque[Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next(self) -> AnyCommand:
        """What comes out next. There must be something."""
        return self._waiting[0].command

    def check(self, reserve: int = 0) -> None:
        """Raise ``input_backpressure`` when it is full; ``reserve``: it has so many places more, or fewer."""
        if len(self._waiting) >= self._limits.mailbox + reserve:
            raise ResourceExhausted(
                f"{len(self._waiting)} commands are waiting; send fewer at a time", code="input_backpressure"
            )

    def put(self, command: AnyCommand, *, always: bool = False) -> Waiting | None:
        """Admit and keep a command. ``None``: there is nothing to do (a known operation, a repeated close).

        :param always: there is room for it however many wait
        :raises VigilError: it was refused, with its ``event_id``
        """
        try:
            if not always:
                self.check(self._limits.mailbox_reserve if isinstance(command, URGENT) else 0)
            if not self._core.admit(command):
                return None
        except VigilError as error:
            error.event_id = command.event_id
            raise
        waiting = Waiting(command, self._core.interrupts(command))
        self._waiting.append(waiting)
        return waiting

    def put_together(self, commands: Sequence[AnyCommand], event_id: str | None) -> list[AnyCommand]:
        """All that one event of a client asks for, or nothing of it; what was kept. None of it interrupts.

        :raises VigilError: one of them was refused, with the ``event_id``
        """
        admitted: list[AnyCommand] = []
        try:
            self.check(1 - len(commands))
            admitted.extend(each for each in commands if self._core.admit(each))
        except VigilError as error:
            self._core.retract(admitted)
            error.event_id = event_id
            raise
        self._waiting.extend(Waiting(each, False) for each in admitted)
        return admitted

    def pop(self) -> Waiting:
        return self._waiting.popleft()

    def clear(self) -> None:
        self._waiting.clear()

    def thinned(self) -> AppendInput | None:
        """Where a live picture was put in last, take the oldest one out of its row if that is too long now.

        A row ends where anything else waits that concerns input, so a commit seals what it sealed before, as
        long as ``glimpses`` is not 0.
        """
        gives_way = self._core.gives_way
        if not self._waiting or not gives_way(self._waiting[-1].command):
            return None
        row: list[int] = []
        for place in range(len(self._waiting) - 1, -1, -1):
            command = self._waiting[place].command
            if gives_way(command):
                row.append(place)
            elif not isinstance(command, ASIDE):
                break
        if len(row) <= self._limits.glimpses:
            return None
        oldest = self._waiting[row[-1]].command
        assert isinstance(oldest, AppendInput)
        del self._waiting[row[-1]]
        return oldest
