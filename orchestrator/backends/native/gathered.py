"""Errors that an engine pours out: the first of a kind is told at once, the others together. Sans-IO."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from orchestrator.session.backend import Failed

GATHER_S = 1.0
"""What comes within it after a told one is told as one."""
KINDS = 16
"""Codes that are kept apart."""
OPERATIONS = 512
"""Operations that one output answers."""


@dataclass(slots=True)
class _Kind:
    last: Failed | None = None
    count: int = 0
    operations: tuple[str, ...] = ()


class Gathered:
    def __init__(self) -> None:
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()
        self.told_together = 0
        """Errors that had no output of their own."""

    @property
    def busy(self) -> bool:
        """``due`` is to be asked in ``GATHER_S``."""
        return bool(self._kinds)

    def take(self, failed: Failed) -> Failed | None:
        """The output to tell now, or nothing yet."""
        kind = self._kinds.get(failed.code)
        if kind is None and len(self._kinds) < KINDS:
            self._kinds[failed.code] = _Kind()
            return failed
        if kind is None:
            kind = next(iter(self._kinds.values()))
        kind.last, kind.count = failed, kind.count + 1
        kind.operations = (*kind.operations, *failed.operations)[-OPERATIONS:]
        self.told_together += 1
        return None

    def due(self) -> list[Failed]:
        """What came meanwhile, one output for each code. One that was quiet is told at once again."""
        told: list[Failed] = []
        for code, kind in list(self._kinds.items()):
            if kind.last is None:
                del self._kinds[code]
                continue
            more = f"{kind.last.message} ({kind.count} such errors)" if kind.count > 1 else kind.last.message
            told.append(replace(kind.last, message=more, operations=kind.operations))
            self._kinds[code] = _Kind()
        return told
