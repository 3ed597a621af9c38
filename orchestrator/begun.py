"""Coroutines whose first step is taken before anything is set up for the case that they have to wait."""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any


class Begun:
    """A coroutine whose first step is taken where a deadline for all of it may not be needed yet."""

    def __init__(self, work: Coroutine[Any, Any, object]) -> None:
        self._work = work
        self._waits_for: Any = None

    def begin(self) -> bool:
        """Take the first step; True if there is no other. To be followed by nothing but the rest of it."""
        try:
            self._waits_for = self._work.send(None)
        except StopIteration:
            return True
        return False

    def __await__(self) -> Generator[Any, Any, None]:
        try:
            while True:
                try:
                    told = yield self._waits_for
                except BaseException as thrown:
                    self._waits_for = self._work.throw(thrown)
                else:
                    self._waits_for = self._work.send(told)
        except StopIteration:
            return
