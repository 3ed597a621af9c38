"""What an engine does wrong on request: one object, changed by a test at any time."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Drop:
    """The socket breaks once ``after`` more events were written; the ``lose`` last ones of these never
    arrive, though the engine holds them for sent."""

    after: int
    lose: int = 0


@dataclass
class Faults:
    """Times in ms of the engine's clock.

    :param cancel_ms: a cancel takes that long; with ``leak_on_cancel`` the response speaks on meanwhile
    :param late_after_cancel: audio deltas of a response that come after its cancelled end
    :param close_ms: a session that closes keeps its place that long; ``close_silent``: for ever, unanswered
    :param refuse: code with which openings are refused, ``refuse_times`` of them (-1: all)
    :param refuse_flat: refused before there is a session, in the flat error shape
    :param think_ms: from a unit to the first word of it, if its act says nothing else; ``chunk_ms`` between
        its chunks
    :param drop_units: sockets break when the model has got that many units in all
    :param forget_tokens: each resume is answered ``invalid_resume_token``
    """

    cancel_ms: float = 0.0
    leak_on_cancel: bool = False
    late_after_cancel: int = 0
    close_ms: float = 0.0
    close_silent: bool = False
    refuse: str | None = None
    refuse_times: int = -1
    refuse_flat: bool = False
    think_ms: float = 0.0
    chunk_ms: float = 0.0
    drop_units: list[int] = field(default_factory=list)
    forget_tokens: bool = False

    def refusal(self) -> str | None:
        """The code for this opening, if it is refused."""
        if self.refuse is None or self.refuse_times == 0:
            return None
        if self.refuse_times > 0:
            self.refuse_times -= 1
        return self.refuse
