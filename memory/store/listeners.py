"""Who hears of new entries: the live part of an event stream, called as each fact is appended."""

from __future__ import annotations

import logging
from collections.abc import Callable

from memory.store.base import Entry

Listener = Callable[[Entry], None]

_log = logging.getLogger(__name__)


class Listeners:
    """A set of callbacks. One that raises is removed and counted: its fault never reaches the log."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Listener] = {}
        self._next = 0
        self.failed = 0

    def __len__(self) -> int:
        return len(self._callbacks)

    def subscribe(self, callback: Listener) -> Callable[[], None]:
        """Call ``callback`` with every entry from now on; returns the function that ends it."""
        key, self._next = self._next, self._next + 1
        self._callbacks[key] = callback
        return lambda: self._drop(key)

    def tell(self, entry: Entry) -> None:
        """Pass ``entry`` to everyone subscribed when the call began."""
        for key, callback in list(self._callbacks.items()):
            try:
                callback(entry)
            except Exception:
                _log.exception("a listener of the session log failed and was removed")
                self.failed += 1
                self._drop(key)

    def _drop(self, key: int) -> None:
        self._callbacks.pop(key, None)
