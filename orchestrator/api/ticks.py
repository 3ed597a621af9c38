"""Which decision carries which operation: told by the backend before anything of that decision is emitted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from orchestrator.runtime.vocabulary import Fence, TickStarted


class TickWatch:
    """The fences of the decisions that carried any of the watched operations, in order."""

    def __init__(self) -> None:
        self.fences: list[Fence] = []


class TickStarts:
    """A board of watches; as large as the number of operations that somebody waits for."""

    def __init__(self) -> None:
        self._watches: dict[str, TickWatch] = {}

    @contextmanager
    def watch(self, operations: Iterable[str]) -> Iterator[TickWatch]:
        operations = tuple(operations)
        watch = TickWatch()
        for operation_id in operations:
            self._watches[operation_id] = watch
        try:
            yield watch
        finally:
            for operation_id in operations:
                if self._watches.get(operation_id) is watch:
                    del self._watches[operation_id]

    def started(self, tick: TickStarted) -> None:
        for operation_id in tick.operations:
            watch = self._watches.get(operation_id)
            if watch is not None and tick.fence not in watch.fences:
                watch.fences.append(tick.fence)

    def statistics(self) -> dict[str, int]:
        return {"watched": len(self._watches)}
