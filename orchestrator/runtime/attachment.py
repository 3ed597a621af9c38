"""One socket's seat at a session: what it writes, in order, until it is displaced or the session is over."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from orchestrator.session.attachment import Ticket
from orchestrator.session.backend import Clock
from orchestrator.session.core import SessionCore
from orchestrator.session.states import State
from orchestrator.wire.client import AnyCommand
from orchestrator.wire.server import Written

MAX_ASIDE = 16
"""Events outside the session's sequence that may wait to be written."""


class Attachment(AsyncIterator[Written]):
    """Iterate to get the next event to write; the one task that does so is the writer.

    Events are numbered as they are taken, so whoever stops reading lets them wait in the session's bounded
    outbox. Iteration ends when the socket lost its place (``displaced``) or after the session's last event.

    :param missed: events a resuming socket has to get before any other
    :param on_command: takes the commands of the socket
    :param on_leave: told once when the socket is gone
    """

    def __init__(
        self,
        core: SessionCore,
        clock: Clock,
        ticket: Ticket,
        missed: tuple[Written, ...],
        on_command: Callable[[AnyCommand], None],
        on_leave: Callable[[Attachment], None],
        *,
        gap: bool = False,
    ) -> None:
        self.generation = ticket.generation
        self.token = ticket.token
        self.gap = gap
        """Events were lost with an earlier process."""
        self._core = core
        self._clock = clock
        self._on_command = on_command
        self._on_leave: Callable[[Attachment], None] | None = on_leave
        self._next: deque[Written] = deque(missed)
        self._aside: deque[Written] = deque()
        self._room = asyncio.Event()
        self._wake = asyncio.Event()

    @property
    def displaced(self) -> bool:
        """Another socket has taken the place."""
        return self._on_leave is not None and not self._core.is_seated(self.generation)

    @property
    def has_more(self) -> bool:
        """The next event is there already."""
        return bool(self._next or self._aside)

    def wake(self) -> None:
        self._wake.set()

    def alive(self) -> None:
        """The socket sent something, a closing frame included: it has what it was told."""
        self._core.alive(self.generation)

    def receive(self, command: AnyCommand) -> None:
        """Execute a command of this socket; one that has lost its place is ignored."""
        if self._core.is_seated(self.generation):
            self.alive()
            self._on_command(command)

    async def interject(self, event: Written) -> None:
        """Write an event that is no part of the session's sequence, after those that wait.

        Returns when it is queued; while many wait, so does whoever reads the socket.
        """
        while len(self._aside) >= MAX_ASIDE:
            self._room.clear()
            await self._room.wait()
        self._aside.append(event)
        self._wake.set()

    def leave(self) -> None:
        """The socket is gone, whoever closed it. Idempotent."""
        on_leave, self._on_leave = self._on_leave, None
        if on_leave is not None:
            on_leave(self)
        self._wake.set()

    async def __anext__(self) -> Written:
        while True:
            if not self._core.is_seated(self.generation):
                raise StopAsyncIteration
            if self._next:
                return self._next.popleft()
            self._next.extend(self._core.take(self._clock.now()))
            if self._next:
                continue
            if self._aside:
                self._room.set()
                return self._aside.popleft()
            if self._core.state is State.CLOSED:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
