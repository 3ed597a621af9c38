"""What a live session is given to run with: its parts, and the bounds of its actor."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.runtime.calls import CallDeadlines
from orchestrator.session.backend import FactLog, SessionBackend
from orchestrator.session.record import SessionRecord


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What a session is made of besides its core; built by the composition root.

    ``record``: what an earlier process knew of it; the session goes on from there, under the
    ``session_id`` that it had.
    """

    backend: SessionBackend
    log: FactLog
    record: SessionRecord | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """Bounds of one actor.

    :param mailbox: commands waiting; ``mailbox_reserve`` more are kept for cancel and close
    :param glimpses: appends of live pictures that may wait in a row
    :param open_s: seconds a backend may take to open
    :param flush_s: seconds the log may take to become durable at the end
    """

    mailbox: int = 256
    mailbox_reserve: int = 16
    glimpses: int = 8
    lane: int = 64
    open_s: float = 60.0
    flush_s: float = 5.0
    deadlines: CallDeadlines = field(default_factory=CallDeadlines)
