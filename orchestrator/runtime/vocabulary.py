"""What transports say to a session and hear from it: the session's types, as the runtime hands them on.

Transports know the runtime and the wire alone; these are the parts of the session room they need.
"""

from orchestrator.session.backend import (
    Action,
    BackendOutput,
    Capabilities,
    Clock,
    Delegation,
    Failed,
    Ids,
    Notice,
    SessionConfig,
    TickDone,
    TickStarted,
)
from orchestrator.session.commands import AppendInput, AskQuery, ClearQuery, Configure, OperationCommand
from orchestrator.session.configuration import opened as opening_config
from orchestrator.session.events import OutputTextDelta
from orchestrator.session.fence import Fence
from orchestrator.session.operations import Outcome
from orchestrator.session.units import FrameInput, InputUnit

__all__ = [
    "Action",
    "AppendInput",
    "AskQuery",
    "BackendOutput",
    "Capabilities",
    "ClearQuery",
    "Clock",
    "Configure",
    "Delegation",
    "Failed",
    "Fence",
    "FrameInput",
    "Ids",
    "InputUnit",
    "Notice",
    "OperationCommand",
    "Outcome",
    "OutputTextDelta",
    "SessionConfig",
    "TickDone",
    "TickStarted",
    "opening_config",
]
