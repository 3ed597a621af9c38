"""One request's input on its way through a session: handed over in order, waited for together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from orchestrator.api.chat_reply import merged
from orchestrator.api.ticks import TickStarts, TickWatch
from orchestrator.runtime.actor import Session
from orchestrator.runtime.subscription import Subscription
from orchestrator.runtime.vocabulary import OperationCommand, Outcome, OutputTextDelta

EVENTS = 1024
"""Events of a session that may wait for one streaming request; it reads them at once."""

OnText = Callable[[str], None]


class Exchange:
    """Made with its commands already on their way into the mailbox, in order and next to each other.

    :param on_text: told of the words of the ticks that carry these commands, and of no others
    """

    def __init__(
        self,
        session: Session,
        commands: Sequence[OperationCommand],
        ticks: TickStarts,
        on_text: OnText | None,
        timeout_s: float,
    ) -> None:
        self._stack = ExitStack()
        watch = self._stack.enter_context(ticks.watch(c.operation_id for c in commands))
        self._tasks: list[asyncio.Task[Outcome]] = []
        if on_text is not None:
            events = self._stack.enter_context(session.events(EVENTS))
            reader = asyncio.create_task(_read_words(events, watch, on_text))
            self._stack.callback(reader.cancel)
        for command in commands:
            task = asyncio.create_task(session.operation(command, timeout_s))
            self._stack.callback(task.cancel)
            self._tasks.append(task)

    async def outcome(self) -> Outcome:
        """One answer for all commands; the first refusal is raised."""
        with self._stack:
            return merged(await asyncio.gather(*self._tasks))


async def _read_words(events: Subscription, watch: TickWatch, on_text: OnText) -> None:
    async for event in events:
        if isinstance(event, OutputTextDelta) and event.fence in watch.fences:
            on_text(event.delta)
