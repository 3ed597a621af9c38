"""Views of a log that the store promises by name. Pure: entries in, plain values out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memory.store.base import Entry


@dataclass(frozen=True, slots=True)
class FrozenHead:
    """A head as it was frozen, with the pack and the renderer that made its bytes.

    :param seq: the ``head_frozen`` entry
    :param data: the fact's data, verbatim
    """

    seq: int
    at_ms: int
    pack_digest: str
    renderer: int
    data: Mapping[str, Any]


def heads(entries: Iterable[Entry]) -> list[FrozenHead]:
    """Every frozen head of a log, oldest first. Entries start at the log's beginning.

    A head was made by the pack of the newest ``memory_opened`` before it.
    """
    found: list[FrozenHead] = []
    opened: Mapping[str, Any] = {"pack_digest": "", "renderer": 0}
    for entry in entries:
        if entry.kind == "memory_opened":
            opened = entry.data
        elif entry.kind == "head_frozen":
            found.append(
                FrozenHead(entry.seq, entry.at_ms, opened["pack_digest"], opened["renderer"], entry.data)
            )
    return found
