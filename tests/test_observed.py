"""The end of a session's record: told once, with the reason of its end, whatever its engine does."""

from __future__ import annotations

import pytest

from orchestrator.observed import Observed
from orchestrator.session.backend import SessionConfig
from orchestrator.wire.errors import EngineUnavailable
from tests.fakes.backend import ScriptedBackend


async def observed() -> tuple[ScriptedBackend, Observed, list[str]]:
    backend, ended = ScriptedBackend(), list[str]()

    async def on_closed(reason: str) -> None:
        ended.append(reason)

    made = Observed(backend, lambda output: None, on_closed)
    await made.open(SessionConfig("m"))
    return backend, made, ended


async def test_an_end_that_the_engine_does_not_confirm_is_recorded_all_the_same() -> None:
    """A shutdown does not wait for the next attempt, and its reason is not that of the attempt."""
    backend, made, ended = await observed()
    backend.fail("close", EngineUnavailable("it does not say so", code="timeout"))
    with pytest.raises(EngineUnavailable):
        await made.close("shutdown")
    assert ended == ["shutdown"]
    await made.close("request_cleanup")
    assert ended == ["shutdown"] and backend.closed


async def test_an_end_that_failed_half_way_is_recorded_by_the_next_attempt_under_its_own_reason() -> None:
    backend, made, ended = await observed()
    backend.fail("close", RuntimeError("a fault"))
    with pytest.raises(RuntimeError):
        await made.close("client_close")
    assert ended == []
    await made.close("request_cleanup")
    assert ended == ["client_close"]
