"""Append idempotency: which operations are in flight, which were completed, and how they were answered."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the tick that carried an operation ended.

    :param record: the tick's record, columns of ``decisions.jsonl``
    :param response_id: the response that the tick opened, if it spoke
    :param error_code: set when the tick failed; its input stays for the next tick
    """

    operation_id: str
    record: Mapping[str, Any]
    text: str = ""
    action: str | None = None
    question: str | None = None
    response_id: str | None = None
    error_code: str | None = None


class OperationLedger:
    """Remembers in-flight operations and the newest completed ones that can come again. A refused one is
    forgotten."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._in_flight: dict[str, bool] = {}  # with whether it can come again
        # Outcomes as JSON text, a quarter of the size; orjson's bytes would keep the whole of its buffer.
        self._completed: OrderedDict[str, str | None] = OrderedDict()
        self._events: OrderedDict[str, str] = OrderedDict()

    def begin(self, operation_id: str, *, repeatable: bool = True) -> bool:
        """False when the operation is known: it must not be taken twice."""
        if self.known(operation_id):
            return False
        self._in_flight[operation_id] = repeatable
        return True

    def known(self, operation_id: str) -> bool:
        """It is in flight, or was completed lately."""
        return operation_id in self._in_flight or operation_id in self._completed

    def name(self, operation_id: str, event_id: str | None) -> None:
        """Remember the client's own id of the event that an operation came in."""
        if event_id is not None:
            self._events[operation_id] = event_id
            while len(self._events) > self._remembered:
                self._events.popitem(last=False)

    def event_of(self, operations: Iterable[str]) -> str | None:
        """The client's id of the event of the first of these that had one."""
        return next((self._events[each] for each in operations if each in self._events), None)

    def accept(self, operation_id: str) -> None:
        """The backend took it."""
        if self._in_flight.pop(operation_id, False):
            self._completed[operation_id] = None
            while len(self._completed) > self._remembered:
                self._completed.popitem(last=False)

    def refuse(self, operation_id: str) -> None:
        """It was refused or rolled back: the same id may be sent again."""
        self._in_flight.pop(operation_id, None)

    def outstanding(self, operation_id: str) -> bool:
        """True from ``begin`` until the backend took or refused it."""
        return operation_id in self._in_flight

    def answer(self, outcome: Outcome) -> None:
        if outcome.operation_id in self._completed:
            self._completed[outcome.operation_id] = orjson.dumps(outcome).decode()

    def outcome(self, operation_id: str) -> Outcome | None:
        kept = self._completed.get(operation_id)
        return None if kept is None else Outcome(**orjson.loads(kept))

    def statistics(self) -> dict[str, int]:
        return {"in_flight": len(self._in_flight), "remembered": len(self._completed)}
