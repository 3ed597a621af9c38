"""What the steps of a load are, and what came of one: plain data between two processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import ceil
from typing import Any

import orjson

INSIST_S = 25.0
"""Longer than a service remembers that it was late: a step before must not be held against the next one."""
LATE = float("inf")
"""The latency of a frame that was never decided."""


@dataclass(frozen=True, slots=True)
class Job:
    """So many sessions at once. Times in seconds.

    :param shape: how the server is spoken to, see ``evals.load.generator``
    :param sessions: of a step; of several ones at most
    :param pictures: folder of JPEGs, shown in the order of their names, again and again
    :param query: asked once the windows are filled
    :param period_s: between two frames of a session; the sessions are spread over it evenly
    :param fill: frames of a full window: before it is asked anything each session is shown a part of them as
        quickly as they are taken, so that windows are at all stages; see ``evals.load.drive.stage``
    :param head: words of a text that each session's prompts begin with; every session has its own
    :param warm_s: at full pace before it is measured; ``seconds``: measured
    :param patience_s: for one answer that is waited for, and for the last answers
    :param sound: a WAV file that each session hears beside its frames, again and again
    :param opening_s: between the openings of two sessions
    :param each_at_once: a session keeps its pace from when it is in; otherwise all begin together
    :param insist_s: a session that is refused is tried again for so long
    :param stay: go on with those sessions that were let in; otherwise nothing is measured when one is refused
    :param extra: of shapes that need more
    """

    url: str
    shape: str
    sessions: int
    pictures: str
    query: str
    period_s: float
    seconds: float
    warm_s: float = 2.0
    fill: int = 0
    head: int = 0
    patience_s: float = 120.0
    model: str | None = None
    api_key: str | None = None
    sound: str | None = None
    opening_s: float = 0.05
    each_at_once: bool = False
    insist_s: float = 0.0
    stay: bool = False
    mark: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Job:
        return cls(**orjson.loads(text))


@dataclass(frozen=True, slots=True)
class Told:
    """What a step's generator saw.

    :param samples: of each measured frame when it was sent (seconds, monotonic) and how long until it was
        decided (seconds; ``None``: it never was). Frames that a busy client could not send count so too
    :param opened: sessions that were let in; ``refused``: by code; ``lost``: by code, after they were in
    :param errors: events and answers that told of a fault, by code
    :param lag_s: how late the generator itself ran what was due, p99
    """

    opened: int
    refused: Mapping[str, int]
    lost: Mapping[str, int]
    errors: Mapping[str, int]
    samples: tuple[tuple[float, float | None], ...]
    lag_s: float

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: bytes) -> Told:
        plain = orjson.loads(text)
        plain["samples"] = tuple((at, took) for at, took in plain["samples"])
        return cls(**plain)

    def latencies(self) -> list[float]:
        """Ascending, in seconds; ``LATE`` for frames that were never decided."""
        return sorted(LATE if took is None else took for _, took in self.samples)


MAY_LAG = 0.1
"""Share of the bound that the generator itself may be late, before its figures are doubted."""


def percentile(ordered: list[float], share: float) -> float | None:
    """Nearest rank of ascending values: the least of them that ``share`` (0 to 1) of all do not exceed.

    Nothing is drawn between two of them, since some may be ``LATE``. ``None`` if there are none.
    """
    if not ordered:
        return None
    rank = ceil(round(len(ordered) * share, 6))  # 0.07 * 100 is a little more than 7
    return ordered[max(rank, 1) - 1]


def carried(told: Told, bound_s: float) -> bool:
    """All sessions were let in, none was lost, and the p95 stays within the bound."""
    p95 = percentile(told.latencies(), 0.95)
    return not told.refused and not told.lost and p95 is not None and p95 <= bound_s


def doubtful(told: Told, bound_s: float) -> bool:
    """The generator was too late itself to say so."""
    return told.lag_s > MAY_LAG * bound_s
