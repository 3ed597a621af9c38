"""What the tests of turn taking share."""

from typing import Any

from orchestrator.session.backend import (
    Action,
    Capabilities,
    Decision,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.commands import (
    AppendInput,
    CommitInput,
)
from orchestrator.session.effects import BackendAppend, BackendCommit, BackendTell
from orchestrator.session.told import QueryAsked
from orchestrator.session.units import FrameInput, InputUnit
from tests.session.driver import Driver, make_core

HOLDS = Capabilities(1000, optional_input_modalities=("audio", "video"), holds_turn_input=True)
RECORDS = Capabilities(1000, optional_input_modalities=("audio", "video"))
NEEDS_AUDIO = Capabilities(1000, ("audio",), ("video",), holds_turn_input=True, supports_text_only_turn=False)


def driver(capabilities: Capabilities = HOLDS, *, auto: bool = False, **more: Any) -> Driver:
    limits = more.pop("limits", None)
    carry = more.pop("carry", True)
    return Driver(make_core(capabilities, limits, auto_response=auto, **more), auto=carry)


def picture(name: str, data: bytes = b"jpeg") -> AppendInput:
    return AppendInput(name, InputUnit((FrameInput(data, 0),)))


def speech(name: str, ms: float = 200.0, **hints: Any) -> AppendInput:
    return AppendInput(name, InputUnit(pcm=b"\x01" * 8), is_speech=True, duration_ms=ms, **hints)


def silence(name: str) -> AppendInput:
    return AppendInput(name, InputUnit(pcm=b"\0" * 8), duration_ms=200.0)


def submitted(d: Driver) -> list[Any]:
    """What reached the backend: operation ids of units, and the calls of turns."""
    out: list[Any] = []
    for effect in d.done:
        if isinstance(effect, BackendAppend):
            out.append(effect.operation_id)
        elif isinstance(effect, BackendCommit):
            out.append("create" if effect.create_response else "commit")
        elif isinstance(effect, BackendTell) and isinstance(effect.fact, QueryAsked):
            out.append(effect.fact.text)
    return out


def answer(d: Driver, text: str = "yes", *, end: bool = True) -> None:
    fence = d.core.fence
    d.yields(Decision(fence, 1, Action.RESPONSE), TextDelta(fence, text))
    if end:
        d.yields(TurnEnd(fence))


def pending(d: Driver) -> Any:
    return d.core.statistics()["pending_input_bytes"]


def responding(d: Driver) -> None:
    d.send(speech("first"))
    d.send(CommitInput(create_response=True))
    answer(d, end=False)
