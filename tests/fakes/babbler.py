"""A backend that hears, sees and keeps talking: it answers by chance, and remembers nothing."""

from __future__ import annotations

import random
from typing import Any

from orchestrator.session.backend import (
    Action,
    AudioDelta,
    Capabilities,
    Decision,
    TextDelta,
    TickStarted,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact, QueryAsked
from orchestrator.session.units import InputUnit
from tests.fakes.backend import ScriptedBackend, tick_done

RATE = 24000


class Babbler(ScriptedBackend):
    """Every append and query is one tick. Some begin an answer, which a later one goes on with or ends."""

    def __init__(self, capabilities: Capabilities, seed: int = 0) -> None:
        super().__init__(capabilities)
        self._random = random.Random(seed)
        self._tick = 0
        self._open: Fence | None = None

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        self._answer(fence, (operation_id,))

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        if isinstance(fact, QueryAsked):
            self._answer(fence, (fact.item_id,))

    async def commit(self, fence: Fence, create_response: bool) -> None:
        self._answer(fence, (), speaks=create_response)

    async def _called(self, method: str, *arguments: Any) -> None:
        """Nothing is kept: runs are long."""

    def _answer(self, fence: Fence, operations: tuple[str, ...], *, speaks: bool = False) -> None:
        tick, self._tick = self._tick, self._tick + 1
        self.emit(TickStarted(fence, tick, operations))
        if speaks or self._open == fence or self._random.random() < 0.3:
            samples = self._random.choice((240, 2400, 4800))
            self.emit(
                Decision(fence, tick, Action.RESPONSE, 0.9),
                TextDelta(fence, "la "),
                AudioDelta(fence, bytes(2 * samples), RATE),
            )
            self._open = fence
            if self._random.random() < 0.5:
                self.emit(TurnEnd(fence))
                self._open = None
            self.emit(tick_done(fence, tick, operations, action="response", text="la "))
        else:
            self.emit(
                Decision(fence, tick, Action.SILENCE, 0.1, "model"),
                tick_done(fence, tick, operations, action="silence", reason="model"),
            )
