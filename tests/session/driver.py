"""Drives a ``SessionCore`` as the runtime would: commands in order, backend effects carried out in order."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeVar

from orchestrator.session.backend import BackendOutput, Capabilities, SessionConfig
from orchestrator.session.commands import AnyCommand
from orchestrator.session.core import SessionCore
from orchestrator.session.effects import (
    Answered,
    AnyBackendEffect,
    BackendEffect,
    Carried,
    Completed,
    Dropped,
    Effect,
    Emit,
    Record,
    Reject,
)
from orchestrator.session.events import Event
from orchestrator.session.lease import Lease, LeaseLimits
from orchestrator.session.limits import SessionLimits
from orchestrator.wire.errors import VigilError
from tests.fakes.clock import CountingIds

E = TypeVar("E", bound=Event)

CAPABILITIES = Capabilities(chunk_period_ms=1000, optional_input_modalities=("audio", "video"))


def make_core(
    capabilities: Capabilities = CAPABILITIES,
    limits: SessionLimits | None = None,
    *,
    lease: LeaseLimits | None = None,
    **config: Any,
) -> SessionCore:
    """A core with counting ids and tokens ``token-1``, ``token-2`` ..."""
    numbers = itertools.count(1)
    return SessionCore(
        "duplex-1",
        SessionConfig("m", **config),
        capabilities,
        limits or SessionLimits(),
        CountingIds(),
        lambda: f"token-{next(numbers)}",
        Lease(lease or LeaseLimits(), 0.0),
    )


@dataclass
class Driver:
    """``auto``: carry out each backend effect at once, successfully."""

    core: SessionCore = field(default_factory=make_core)
    auto: bool = True
    now: float = 0.0
    pending: deque[AnyBackendEffect] = field(default_factory=deque)
    done: list[AnyBackendEffect] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)

    def send(self, command: AnyCommand) -> list[Effect]:
        """Admit and execute one command; the effects that followed."""
        before = len(self.effects)
        if self.core.admit(command):
            self._absorb(self.core.handle(self.now, command))
        return self.effects[before:]

    def yields(self, *outputs: BackendOutput) -> list[Effect]:
        before = len(self.effects)
        for output in outputs:
            self._absorb(self.core.handle(self.now, output))
        return self.effects[before:]

    def carry(self, error: VigilError | None = None) -> list[Effect]:
        """Carry out the oldest pending backend effect, or fail it."""
        before = len(self.effects)
        effect = self.pending.popleft()
        self.done.append(effect)
        self._absorb(self.core.handle(self.now, Carried(effect, error)))
        return self.effects[before:]

    def _absorb(self, effects: tuple[Effect, ...]) -> None:
        self.effects.extend(effects)
        self.pending.extend(e for e in effects if isinstance(e, BackendEffect))
        while self.auto and self.pending:
            self.carry()

    def take_all(self) -> list[dict[str, Any]]:
        """Everything that the attached socket would write now."""
        out: list[dict[str, Any]] = []
        while events := self.core.take(self.now):
            out.extend(event.value for event in events)
        return out

    def absorb(self, effects: tuple[Effect, ...]) -> None:
        """Effects of a step that the test took on the core itself."""
        self._absorb(effects)

    # --- views ---

    def events(self) -> list[Event]:
        return [e.event for e in self.effects if isinstance(e, Emit)]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events() if isinstance(event, kind)]

    def types(self) -> list[str]:
        return [event.type for event in self.events()]

    def facts(self) -> list[str]:
        return [e.fact.kind for e in self.effects if isinstance(e, Record)]

    def rejects(self) -> list[str]:
        return [e.error.code for e in self.effects if isinstance(e, Reject)]

    def dropped(self) -> list[str]:
        return [e.operation_id for e in self.effects if isinstance(e, Dropped)]

    def completed(self) -> list[AnyCommand]:
        return [e.command for e in self.effects if isinstance(e, Completed)]

    def answers(self) -> list[Answered]:
        return [e for e in self.effects if isinstance(e, Answered)]
