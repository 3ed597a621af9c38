"""What the tests of the session core share."""

import pytest

from orchestrator.session.backend import (
    Action,
    Decision,
    TextDelta,
)
from orchestrator.session.commands import (
    AppendInput,
)
from orchestrator.session.fence import Fence
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import VigilError

UNIT = InputUnit((FrameInput(b"x" * 40, 0),))
F0 = Fence(0, 0)


def append(operation_id: str, unit: InputUnit = UNIT) -> AppendInput:
    return AppendInput(operation_id, unit)


def speaking(text: str = "hello", fence: Fence = F0) -> tuple[Decision, TextDelta]:
    return Decision(fence, 1, Action.RESPONSE, 0.9), TextDelta(fence, text)


def code_of(refused: pytest.ExceptionInfo[VigilError]) -> str:
    return refused.value.code
