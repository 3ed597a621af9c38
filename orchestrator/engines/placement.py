"""Which engine a session belongs to: rendezvous hashing with bounded loads. Pure.

Every session ranks all engines by a hash of both names, so that an engine that comes or goes moves only the
sessions that are its own. A session takes the first of its ranking that is not fuller than the others by a
quarter (Mirrokni, Thorup, Zadimoghaddam: Consistent Hashing with Bounded Loads, 2016).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

SLACK = 1.25
"""How much fuller than the average an engine may be before a session goes to its next choice."""


def ranked(session: str, engines: Iterable[str]) -> list[str]:
    """The engines in this session's order of preference; the same at every call and in every process."""
    return sorted(engines, key=lambda engine: weight(session, engine), reverse=True)


def chosen(session: str, loads: Mapping[str, int], admits: Mapping[str, bool]) -> str | None:
    """The engine for one session more; ``None``: none admits it.

    :param loads: sessions of every engine that may take sessions at all; ``admits``: has room now
    """
    open_to = [engine for engine in ranked(session, loads) if admits[engine]]
    bound = _bound(loads)
    return next((engine for engine in open_to if loads[engine] < bound), open_to[0] if open_to else None)


def overloaded(load: int, loads: Mapping[str, int]) -> bool:
    """An engine carries so much more than its share that sessions should leave it where that is free."""
    return load > _bound(loads)


def weight(session: str, engine: str) -> bytes:
    """How much a session is drawn to an engine, against others: the larger, the more."""
    return hashlib.blake2b(f"{engine}\0{session}".encode(), digest_size=8).digest()


def engine_name(url: str) -> str:
    """An engine by its address, as metrics, rows and logs name it."""
    return urlsplit(url).netloc


def _bound(loads: Mapping[str, int]) -> int:
    """Sessions that one engine may carry with one session more, so that none has far more than its share."""
    return math.ceil(SLACK * (sum(loads.values()) + 1) / max(1, len(loads)))
