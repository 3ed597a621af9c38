"""The store without a disk: frames and logs that live as long as the process. Bounded in both."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from memory.store.base import Entry
from memory.store.errors import FrameTooLarge
from memory.store.listeners import Listener, Listeners


class TransientFrames:
    """Frames in memory, at most ``max_bytes`` of them; the least recently used go first.

    ``max_bytes`` must hold every live window (sessions x images of a window x bytes of a frame):
    a frame evicted while a window still shows it can't be sent again to an engine that lost it.
    ``statistics()["evicted"]`` tells.
    """

    def __init__(self, max_bytes: int = 512 * 1024 * 1024) -> None:
        self._max_bytes = max_bytes
        self._frames: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._evicted = 0

    def write(self, uuid: str, data: bytes) -> None:
        """There is no disk."""

    async def put(self, uuid: str, data: bytes) -> None:
        """Keep ``data`` under ``uuid``. Raises ``FrameTooLarge`` when it exceeds the whole store."""
        if len(data) > self._max_bytes:
            raise FrameTooLarge(f"a frame of {len(data)} bytes exceeds the store's {self._max_bytes} bytes")
        self.forget(uuid)
        self._frames[uuid] = data
        self._bytes += len(data)
        while self._bytes > self._max_bytes:
            self.forget(next(iter(self._frames)))
            self._evicted += 1

    def get(self, uuid: str) -> bytes:
        """The bytes of a frame; raises ``KeyError`` when it was evicted or never came."""
        data = self._frames[uuid]
        self._frames.move_to_end(uuid)
        return data

    def statistics(self) -> dict[str, int]:
        """``frames``, ``bytes``, ``max_bytes`` and frames ``evicted`` so far."""
        return {
            "frames": len(self._frames),
            "bytes": self._bytes,
            "max_bytes": self._max_bytes,
            "evicted": self._evicted,
        }

    def forget(self, uuid: str) -> None:
        """Drop a frame, if it is there."""
        self._bytes -= len(self._frames.pop(uuid, b""))


class TransientLog:
    """A session's log in memory: the newest ``max_entries`` facts; nothing survives the process.

    :param now_ms: Unix time in milliseconds, asked once per append
    """

    def __init__(self, now_ms: Callable[[], int], max_entries: int = 200_000) -> None:
        self._now_ms = now_ms
        self._entries: deque[Entry] = deque(maxlen=max_entries)
        self._seq = 0
        self._listeners = Listeners()

    @property
    def seq(self) -> int:
        """The newest entry; 0 for an empty log."""
        return self._seq

    def append(self, kind: str, data: Mapping[str, Any]) -> int:
        """Add a fact and return its ``seq``. ``data`` must be JSON; a copy is kept, as a disk would."""
        entry = Entry(self._seq + 1, self._now_ms(), kind, orjson.loads(orjson.dumps(data)))
        self._seq = entry.seq
        self._entries.append(entry)
        self._listeners.tell(entry)
        return entry.seq

    async def flush(self, seq: int | None = None) -> None:
        """Nothing to wait for: there is no disk."""

    async def read(self, after: int = 0) -> Sequence[Entry]:
        """Entries with ``seq > after`` that are still held, oldest first."""
        return [entry for entry in self._entries if entry.seq > after]

    def subscribe(self, callback: Listener) -> Callable[[], None]:
        """Call ``callback`` with each entry as it is appended; returns the function that ends it."""
        return self._listeners.subscribe(callback)

    def statistics(self) -> dict[str, int]:
        """``seq`` of the newest entry, ``entries`` held, ``dropped`` for space, ``listeners``."""
        return {
            "seq": self._seq,
            "entries": len(self._entries),
            "dropped": self._seq - len(self._entries),
            "listeners": len(self._listeners),
        }
