"""Which append and query operations wait for an answer, and which tick answers each. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from memory.recent import RecentIds

_REMEMBERED = 256


@dataclass(slots=True)
class _Operation:
    """``frames``: what of it still waits; ``first_tick``: no earlier tick can answer it."""

    first_tick: int
    lossless: bool
    frames: set[str] = field(default_factory=set)


class Operations:
    """An operation is answered by the first tick after which none of its frames waits any more.

    ``unanswerable``: operations that no tick will answer, each with the reason its frames were dropped;
    whoever writes facts takes and tells them.
    """

    def __init__(self) -> None:
        self.unanswerable: list[tuple[str, str]] = []
        self._waiting: OrderedDict[str, _Operation] = OrderedDict()
        self._known = RecentIds(_REMEMBERED)

    def known(self, operation_id: str) -> bool:
        """It is in flight or was completed lately: it must not be taken twice."""
        return operation_id in self._known

    def add(
        self, operation_id: str, frames: Iterable[str] = (), *, first_tick: int = 0, lossless: bool = False
    ) -> None:
        """An operation with frames needs no ``first_tick``: its frames say when it is answered."""
        self._waiting[operation_id] = _Operation(first_tick, lossless, set(frames))
        self._known.add(operation_id)

    def refuse(self, operation_id: str, reason: str) -> None:
        """No tick will show anything of it."""
        if self._waiting.pop(operation_id, None):
            self.unanswerable.append((operation_id, reason))

    def dropped(self, frame_id: str, reason: str) -> None:
        """The frame will ride no tick. A thinned one is answered by the tick that its neighbours ride."""
        for operation_id, operation in list(self._waiting.items()):
            if frame_id in operation.frames:
                operation.frames.discard(frame_id)
                if not operation.frames and reason != "thinned":
                    self.refuse(operation_id, reason)

    def frameless(self, after_tick: int) -> tuple[str, ...]:
        """Operations that only a tick later than ``after_tick`` can answer, whatever frames it shows."""
        return tuple(o for o, op in self._waiting.items() if not op.frames and op.first_tick > after_tick)

    def riding(self, tick: int, frames: Iterable[str]) -> tuple[str, ...]:
        """Operations that this tick will answer if these frames ride it."""
        riders = set(frames)
        return tuple(
            operation_id
            for operation_id, operation in self._waiting.items()
            if operation.first_tick <= tick and operation.frames <= riders
        )

    def answered(self, tick: int, frames: Iterable[str]) -> tuple[str, ...]:
        """The tick was answered: give its operations out and forget them."""
        riders = set(frames)
        done = self.riding(tick, riders)
        for operation in self._waiting.values():
            operation.frames -= riders
        return self.give_up(done)

    def give_up(self, operation_ids: Iterable[str]) -> tuple[str, ...]:
        """Forget operations that will be told otherwise; returns those that had been waiting."""
        return tuple(o for o in operation_ids if self._waiting.pop(o, None) is not None)

    def impatient(self) -> tuple[str, ...]:
        """Operations whose source does not wait for the engine to come back."""
        return tuple(o for o, operation in self._waiting.items() if not operation.lossless)

    def statistics(self) -> dict[str, int]:
        return {"waiting": len(self._waiting), "remembered": len(self._known)}
