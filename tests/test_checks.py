"""Checks of engines that hang take no thread of anybody else, and are bounded."""

from __future__ import annotations

import asyncio
import threading

import pytest

from orchestrator.checks import Busy, Checks
from tests.fakes.clock import settle


async def test_those_that_hang_hold_up_only_their_like() -> None:
    gate = threading.Event()
    checks = Checks(2, 1)
    hanging = [asyncio.create_task(checks.run(gate.wait)) for _ in range(3)]
    await settle()
    with pytest.raises(Busy):
        await checks.run(lambda: 1)
    assert await asyncio.to_thread(lambda: 1) == 1
    for task in hanging[:2]:
        task.cancel()
    await settle()
    with pytest.raises(Busy):
        await checks.run(lambda: 1)  # whoever asked is gone; the check is not
    gate.set()
    assert await hanging[2] is True
    assert await checks.run(lambda: 2) == 2


async def test_one_that_is_given_up_while_it_waits_leaves_its_place() -> None:
    gate = threading.Event()
    checks = Checks(1, 1)
    first, waits = (asyncio.create_task(checks.run(gate.wait)) for _ in range(2))
    await settle()
    waits.cancel()
    await settle()
    third = asyncio.create_task(checks.run(lambda: 3))
    gate.set()
    assert await first is True and await third == 3


async def test_what_it_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        await Checks(1, 0).run(lambda: 1 // 0)
    assert await Checks(1, 0).run(lambda: None) is None
