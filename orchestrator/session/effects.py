"""Effects: what the core asks of the runtime, in order; and ``Carried``, the runtime's answer.

Backend effects are calls of one ``SessionBackend`` method; the runtime carries them out one at a time,
each with a deadline, and answers each with ``Carried``. All other effects are immediate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.session.backend import ConversationFact, SessionConfig
from orchestrator.session.commands import AnyCommand, AppendInput
from orchestrator.session.events import Event
from orchestrator.session.facts import SessionFact
from orchestrator.session.fence import Fence
from orchestrator.session.operations import Outcome
from orchestrator.wire.errors import VigilError


@dataclass(frozen=True, slots=True)
class BackendEffect:
    """``command``: the command that asked for it, ``None`` when the core itself did."""

    command: AnyCommand | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class BackendAppend(BackendEffect):
    append: AppendInput
    fence: Fence


@dataclass(frozen=True, slots=True)
class BackendTell(BackendEffect):
    fact: ConversationFact
    fence: Fence


@dataclass(frozen=True, slots=True)
class BackendCommit(BackendEffect):
    fence: Fence
    create_response: bool


@dataclass(frozen=True, slots=True)
class BackendUpdate(BackendEffect):
    config: SessionConfig


@dataclass(frozen=True, slots=True)
class BackendCancel(BackendEffect):
    cancelled: Fence
    next_fence: Fence


@dataclass(frozen=True, slots=True)
class BackendClose(BackendEffect):
    reason: str


AnyBackendEffect = BackendAppend | BackendTell | BackendCommit | BackendUpdate | BackendCancel | BackendClose


@dataclass(frozen=True, slots=True)
class Carried:
    """An input of the core: a backend effect was carried out, or failed with ``error``."""

    effect: AnyBackendEffect
    error: VigilError | None = None


@dataclass(frozen=True, slots=True)
class Emit:
    event: Event


@dataclass(frozen=True, slots=True)
class Record:
    fact: SessionFact


@dataclass(frozen=True, slots=True)
class Answered:
    """An operation was answered by a tick."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Completed:
    """The command was carried out. Every command ends with one ``Completed`` or one ``Reject``."""

    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Reject:
    """The command was refused and changed nothing.

    ``quiet``: whoever waits for the command learns of it, but it is no event: the client itself
    cancelled or closed.
    """

    error: VigilError
    command: AnyCommand
    quiet: bool = False


Effect = AnyBackendEffect | Emit | Record | Answered | Completed | Reject
