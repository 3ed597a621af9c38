"""Effects: what the core asks of the runtime, in order; and ``Carried``, the runtime's answer.

Backend effects are calls of one ``SessionBackend`` method; the runtime carries them out one at a time,
each with a deadline, and answers each with ``Carried``. All other effects are immediate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AnyCommand, AppendInput
from orchestrator.session.events import Event
from orchestrator.session.facts import SessionFact
from orchestrator.session.fence import Fence
from orchestrator.session.operations import Outcome
from orchestrator.session.told import ConversationFact
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import VigilError


@dataclass(frozen=True, slots=True)
class BackendEffect:
    """``command``: the command that asked for it, ``None`` when the core itself did."""

    command: AnyCommand | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class BackendAppend(BackendEffect):
    """``appends``: the commands whose input the unit holds; without ``command`` a committed turn sends it."""

    unit: InputUnit
    fence: Fence
    appends: tuple[AppendInput, ...]

    @property
    def operation_id(self) -> str:
        return self.appends[-1].operation_id


@dataclass(frozen=True, slots=True)
class BackendTell(BackendEffect):
    fact: ConversationFact
    fence: Fence


@dataclass(frozen=True, slots=True)
class BackendCommit(BackendEffect):
    fence: Fence
    create_response: bool


@dataclass(frozen=True, slots=True)
class BackendClear(BackendEffect):
    pass


@dataclass(frozen=True, slots=True)
class BackendUpdate(BackendEffect):
    config: SessionConfig


@dataclass(frozen=True, slots=True)
class BackendCancel(BackendEffect):
    cancelled: Fence
    next_fence: Fence


@dataclass(frozen=True, slots=True)
class BackendPlayback(BackendEffect):
    response_id: str
    fence: Fence
    played_ms: int
    committed_ms: int


@dataclass(frozen=True, slots=True)
class BackendClose(BackendEffect):
    reason: str


AnyBackendEffect = (
    BackendAppend
    | BackendTell
    | BackendCommit
    | BackendClear
    | BackendUpdate
    | BackendCancel
    | BackendPlayback
    | BackendClose
)


@dataclass(frozen=True, slots=True)
class Carried:
    """An input of the core: a backend effect was carried out, or failed with ``error``.

    :param planned_tick: the tick at which an update is meant to show, where it does not at once
    """

    effect: AnyBackendEffect
    error: VigilError | None = None
    planned_tick: int | None = None


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
class Dropped:
    """An operation that was taken before will not be answered: its input was let go, or refused later."""

    operation_id: str
    error: VigilError


@dataclass(frozen=True, slots=True)
class Completed:
    """The command was carried out. Every command ends with one ``Completed`` or one ``Reject``."""

    command: AnyCommand


@dataclass(frozen=True, slots=True)
class Reject:
    """The command was refused and changed nothing.

    Whoever waits for the command gets ``error``; ``told`` is what an error event says if nobody waits,
    ``None`` for a refusal that the client brought about itself by a cancel, a clear or a close.
    """

    error: VigilError
    command: AnyCommand
    told: VigilError | None


Effect = AnyBackendEffect | Emit | Record | Answered | Dropped | Completed | Reject
