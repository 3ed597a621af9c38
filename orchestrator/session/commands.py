"""Commands: what a client may ask of a session. Plain frozen data, executed in arrival order."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.session.backend import SessionConfig
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import VigilError


@dataclass(frozen=True, slots=True)
class Command:
    """``event_id``: the client's own id of the event, echoed in the error if the command is refused."""

    event_id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AppendInput(Command):
    """One input unit. The same ``operation_id`` sent again is harmless: it is not taken twice."""

    operation_id: str
    unit: InputUnit


@dataclass(frozen=True, slots=True)
class AskQuery(Command):
    """Set or replace the standing query. Its operation id is also the id of its conversation item.

    :param repeat_ok: ask again even if the text equals the standing query
    """

    text: str
    operation_id: str
    repeat_ok: bool = True


@dataclass(frozen=True, slots=True)
class ClearQuery(Command):
    """Clear the standing query; with ``item_id``, only if it is that item's."""

    item_id: str | None = None


@dataclass(frozen=True, slots=True)
class CommitInput(Command):
    """Seal the open user turn. ``create_response``: and answer it."""

    create_response: bool = False


@dataclass(frozen=True, slots=True)
class CreateResponse(Command):
    """Ask for words now, from what has been appended or asked so far."""


@dataclass(frozen=True, slots=True)
class Cancel(Command):
    """Stop the active response (``None``) or the one named, if it is the active one."""

    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Configure(Command):
    """Replace the configuration, all or nothing."""

    config: SessionConfig


@dataclass(frozen=True, slots=True)
class Close(Command):
    """End the session. ``error``: the fault that ends it, told to the client before the end."""

    reason: str = "client_close"
    error: VigilError | None = None


OperationCommand = AppendInput | AskQuery
"""Commands that a tick answers."""

AnyCommand = AppendInput | AskQuery | ClearQuery | CommitInput | CreateResponse | Cancel | Configure | Close
