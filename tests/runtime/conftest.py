"""One scripted session, or a registry of them, on a virtual clock."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from orchestrator.runtime.actor import Session
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.registry import Registry, RegistryLimits, SessionSpec
from orchestrator.runtime.subscription import Lost
from orchestrator.session.attachment import Tokens
from orchestrator.session.backend import SessionConfig
from orchestrator.session.limits import SessionLimits
from tests.fakes.backend import ListLog, ScriptedBackend
from tests.fakes.clock import CountingIds, VirtualClock

CONFIG = SessionConfig("m")


def counting_tokens() -> Tokens:
    """``token-1``, ``token-2`` ..."""
    numbers = itertools.count(1)
    return lambda: f"token-{next(numbers)}"


@dataclass
class Rig:
    """A session with its scripted parts."""

    session: Session
    backend: ScriptedBackend
    log: ListLog
    clock: VirtualClock
    lost: Lost


@dataclass
class Fleet:
    """A registry and the parts it built, by session id in the order of building."""

    registry: Registry
    clock: VirtualClock
    built: dict[str, ScriptedBackend]
    specs: list[SessionSpec] = field(default_factory=list)

    @property
    def backends(self) -> list[ScriptedBackend]:
        return list(self.built.values())


async def open_rig(
    backend: ScriptedBackend | None = None,
    limits: RuntimeLimits | None = None,
    session_limits: SessionLimits | None = None,
) -> Rig:
    clock, log, backend, lost = VirtualClock(), ListLog(), backend or ScriptedBackend(), Lost()
    session = await Session.open(
        "duplex-1",
        "alias",
        CONFIG,
        SessionParts(backend, log),
        clock,
        ids=CountingIds(),
        tokens=counting_tokens(),
        session_limits=session_limits or SessionLimits(),
        limits=limits or RuntimeLimits(),
        lost=lost,
    )
    return Rig(session, backend, log, clock, lost)


def make_fleet(limits: RegistryLimits | None = None) -> Fleet:
    clock = VirtualClock()
    built: dict[str, ScriptedBackend] = {}
    specs: list[SessionSpec] = []

    async def build(spec: SessionSpec) -> SessionParts:
        specs.append(spec)
        built[spec.session_id] = backend = ScriptedBackend()
        return SessionParts(backend, ListLog())

    registry = Registry(build, clock, CountingIds(), limits or RegistryLimits(), counting_tokens())
    return Fleet(registry, clock, built, specs)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = await open_rig()
    yield rig
    rig.backend.free_all()
    await rig.session.close("test_over")
