"""Frames that are no commands cost their tenant what any other frame of their size does."""

from __future__ import annotations

import pytest

from orchestrator.api.access import Caller
from orchestrator.api.quota import Quota, Quotas
from orchestrator.wire.errors import ResourceExhausted, VigilError
from tests.fakes.clock import VirtualClock

WRONG: tuple[str | bytes, ...] = (
    "{" + 99 * "x",
    b"\x00" * 100,
    '{"type":"no.such.event","x":"' + 69 * "y" + '"}',
)


@pytest.mark.parametrize("frame", WRONG, ids=("no json", "binary", "unknown"))
async def test_what_is_no_command_is_charged_too(frame: str | bytes) -> None:
    clock = VirtualClock()
    caller = Caller("ann", Quotas(Quota(input_bytes_per_minute=300)), clock)
    assert len(frame) == 100
    for _ in range(3):
        with pytest.raises(VigilError) as told:
            caller.command(frame)
        assert not isinstance(told.value, ResourceExhausted)
    with pytest.raises(ResourceExhausted) as refused:
        caller.command(frame)
    assert refused.value.code == "input_quota_exceeded"
    with pytest.raises(ResourceExhausted):
        caller.command('{"type":"session.heartbeat"}')
    await clock.advance(60.0)
    caller.command('{"type":"session.heartbeat"}')


def test_the_first_frame_is_charged_whatever_it_is() -> None:
    caller = Caller("ann", Quotas(Quota(input_bytes_per_minute=150)), VirtualClock())
    with pytest.raises(VigilError) as told:
        caller.opening(b"\x00" * 100)
    assert told.value.code == "bad_event"
    with pytest.raises(ResourceExhausted):
        caller.opening("{" + 99 * "x")
