"""The lane of backend calls: in order, each with a deadline, whatever the backend makes of a cancellation."""

import asyncio
from contextlib import suppress

import pytest

from orchestrator.runtime import calls
from orchestrator.runtime.calls import BackendCalls, CallDeadlines
from orchestrator.session.commands import AppendInput
from orchestrator.session.effects import BackendAppend, BackendUpdate, Carried
from orchestrator.session.fence import Fence
from orchestrator.session.units import InputUnit
from tests.fakes.backend import ScriptedBackend, frame
from tests.fakes.clock import VirtualClock, settle
from tests.realtime.serving import eventually
from tests.runtime.conftest import CONFIG


class Stubborn(ScriptedBackend):
    """Its appends go on when they are cancelled."""

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                return await super().append(unit, fence, operation_id)


class Lane:
    def __init__(self, backend: ScriptedBackend) -> None:
        self.backend, self.clock = backend, VirtualClock()
        self.carried: list[Carried] = []
        self.faults: list[Exception] = []

        async def read_out() -> None:
            pass

        self.calls = BackendCalls(
            backend,
            self.clock,
            CallDeadlines(call_s=10),
            read_out,
            self.carried.append,
            self.faults.append,
        )
        self.task = asyncio.create_task(self.calls.run())

    def append(self) -> None:
        self.calls.queue(BackendAppend(frame(), Fence(), (AppendInput("a", frame()),)))

    def codes(self) -> list[str | None]:
        return [each.error.code if each.error else None for each in self.carried]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_calls_go_one_at_a_time_and_leave_no_task_each() -> None:
    lane = Lane(ScriptedBackend())
    await settle()
    lane.append()
    await settle()
    tasks = asyncio.all_tasks()
    for _ in range(5):
        lane.append()
        lane.calls.queue(BackendUpdate(CONFIG))
        await settle()
    assert asyncio.all_tasks() == tasks
    assert lane.backend.methods() == ["append", *["append", "update"] * 5]
    assert lane.codes() == [None] * 11 and lane.calls.idle
    await lane.end()


async def test_a_call_that_is_late_is_ended_and_the_next_one_goes_on() -> None:
    lane = Lane(ScriptedBackend())
    lane.backend.hold("append")
    lane.append()
    lane.calls.queue(BackendUpdate(CONFIG))
    await lane.clock.advance(10)
    assert lane.codes() == ["timeout", None]
    assert [call.method for call in lane.backend.cancelled] == ["append"]
    assert lane.calls.idle
    await lane.end()


async def test_a_call_that_heeds_no_cancellation_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract: its late end is told to nobody, and takes no call that came after it."""
    monkeypatch.setattr(calls, "CANCEL_WAIT_S", 0.01)
    lane = Lane(Stubborn())
    lane.backend.hold("append")
    lane.append()
    lane.calls.queue(BackendUpdate(CONFIG))
    await lane.clock.advance(10)
    await eventually(lambda: lane.calls.idle)
    assert lane.codes() == ["timeout", None]
    lane.backend.free("append")
    lane.calls.queue(BackendUpdate(CONFIG))
    await settle()
    assert lane.codes() == ["timeout", None, None]
    assert lane.backend.methods()[-1] == "update" and not lane.faults
    await lane.end()


async def test_a_call_that_is_over_as_its_time_is_up_counts() -> None:
    lane = Lane(ScriptedBackend())
    lane.backend.hold("append")
    lane.append()
    await settle()
    lane.backend.free("append")
    lane.clock.move(10)
    while lane.clock.wake_one(10):
        pass
    await settle()
    assert lane.codes() == [None] and not lane.backend.cancelled
    await lane.end()


async def test_a_fault_of_the_backend_is_carried_and_told() -> None:
    lane = Lane(ScriptedBackend())
    lane.backend.fail("append", ValueError("scripted"))
    lane.append()
    await settle()
    assert lane.codes() == ["internal_error"] and [str(each) for each in lane.faults] == ["scripted"]
    await lane.end()
