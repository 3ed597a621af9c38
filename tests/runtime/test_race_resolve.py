"""Race: several callers resolve one alias at once.

Contract: the session is opened once and all get it; a failed open is raised to all and gives its place back;
a caller that goes away does not abort the open for the others; concurrent opens never overshoot the limit.
"""

import asyncio

import pytest

from orchestrator.runtime.actor import Session
from orchestrator.runtime.registry import RegistryLimits
from orchestrator.wire.errors import EngineUnavailable, ResourceExhausted
from tests.fakes.clock import settle
from tests.runtime.conftest import CONFIG, make_fleet


async def test_concurrent_callers_open_once() -> None:
    fleet = make_fleet()
    sessions = await asyncio.gather(*(fleet.registry.resolve("t", "cam", CONFIG) for _ in range(5)))
    assert len(set(sessions)) == 1
    assert len(fleet.built) == 1
    await fleet.registry.drain(0.0)


async def test_a_caller_that_goes_away_aborts_nothing() -> None:
    fleet = make_fleet()
    impatient = asyncio.create_task(fleet.registry.resolve("t", "cam", CONFIG))
    patient = asyncio.create_task(fleet.registry.resolve("t", "cam", CONFIG))
    await asyncio.sleep(0)
    impatient.cancel()
    assert (await patient).is_open
    assert len(fleet.built) == 1
    await fleet.registry.drain(0.0)


async def test_a_failed_open_is_told_to_all_and_gives_its_place_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = make_fleet(RegistryLimits(max_sessions=1))
    real_open = Session.open

    async def failing(*_: object, **__: object) -> Session:
        raise EngineUnavailable("no engine")

    monkeypatch.setattr(Session, "open", failing)
    results = await asyncio.gather(
        *(fleet.registry.resolve("t", "cam", CONFIG) for _ in range(2)), return_exceptions=True
    )
    assert [type(result) for result in results] == [EngineUnavailable] * 2
    monkeypatch.setattr(Session, "open", real_open)
    assert (await fleet.registry.resolve("t", "cam", CONFIG)).is_open
    await fleet.registry.drain(0.0)


async def test_three_concurrent_opens_for_two_places() -> None:
    fleet = make_fleet(RegistryLimits(max_sessions=2))
    results = await asyncio.gather(
        *(fleet.registry.resolve("t", None, CONFIG) for _ in range(3)), return_exceptions=True
    )
    assert sum(isinstance(result, Session) for result in results) == 2
    refused = [result for result in results if isinstance(result, ResourceExhausted)]
    assert refused[0].retry_after_s is not None
    await settle()
    await fleet.registry.drain(0.0)
