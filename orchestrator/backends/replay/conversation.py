"""Conversation facts that the session hands over: queries asked and withdrawn, and what was heard."""

from __future__ import annotations

from memory.facts import HeardFact, QueryClearedFact, QuerySet
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.loop import TickLoop
from orchestrator.backends.replay.operations import Operations
from orchestrator.backends.replay.tick import TickRunner, response_key
from orchestrator.session.fence import Fence
from orchestrator.session.told import Heard, QueryAsked, QueryCleared
from orchestrator.wire.errors import TooLarge


class Conversation:
    """Turns the session's facts into memory's. A query's operation id is its item id."""

    def __init__(
        self,
        journal: Journal,
        operations: Operations,
        loop: TickLoop,
        runner: TickRunner,
        max_query_chars: int,
    ) -> None:
        self._journal = journal
        self._operations = operations
        self._loop = loop
        self._runner = runner
        self._max_query_chars = max_query_chars

    async def asked(self, asked: QueryAsked) -> None:
        """Set the standing query; a repeat that is not to be asked again is answered at once."""
        if len(asked.text) > self._max_query_chars:
            raise TooLarge(
                f"the query has {len(asked.text)} characters; send at most {self._max_query_chars}",
                code="query_too_long",
            )
        if self._operations.known(asked.item_id):
            return
        memory = self._journal.memory
        self._operations.add(asked.item_id, first_tick=self._journal.last_tick + 1)
        if not asked.repeat_ok and asked.text.strip() == memory.query:
            self._operations.refuse(asked.item_id, "repeated")
            await self._loop.tell_unanswerable()
            return
        query = QuerySet(query_id=asked.item_id, text=asked.text, media_time_ms=memory.now_ms)
        self._journal.write(query)
        self._loop.news()

    def cleared(self, cleared: QueryCleared) -> None:
        """Withdraw the standing query; with an ``item_id`` only if it is that one."""
        memory, item_id = self._journal.memory, cleared.item_id
        if memory.query is None or (item_id is not None and not memory.parts.queries.get(item_id)):
            return
        self._journal.write(QueryClearedFact(media_time_ms=memory.now_ms))
        self._loop.news()

    def heard(self, heard: Heard, fence: Fence) -> None:
        """The session names responses by its own ids; memory names them by their tick."""
        tick = self._runner.heard(heard.response_id, fence)
        if tick is None:
            return
        self._journal.write(
            HeardFact(
                response_id=response_key(tick),
                text=heard.text,
                complete=heard.complete,
                media_time_ms=self._journal.memory.now_ms,
            )
        )
        self._loop.wake()
