"""Waiting with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from orchestrator.begun import Begun


async def set_within(event: asyncio.Event, sleep: Coroutine[Any, Any, Any]) -> None:
    """Return when the event is set, and set it once ``sleep`` is over: for one that wakes somebody who looks
    what there is to do, and clears it. Where it is set already nothing is started, and otherwise one task:
    this is waited for at every tick."""
    if event.is_set():
        sleep.close()
        return
    timer = asyncio.ensure_future(sleep)
    timer.add_done_callback(lambda timer: None if timer.cancelled() else event.set())
    try:
        await event.wait()
    finally:
        timer.cancel()


async def in_time(wait: Coroutine[Any, Any, Any], deadline: Coroutine[Any, Any, Any]) -> bool:
    """Await ``wait`` until ``deadline`` is over; False: it was cancelled for that.

    It begins at once and in the task that calls, as if it were awaited alone: whoever asks for something
    first is the first to have asked. Where it is over at once nothing else is started.
    """
    waiting, over = Begun(wait), True
    try:
        over = waiting.begin()
    finally:
        if over:  # also with an error
            deadline.close()
    if over:
        return True
    caller = asyncio.current_task()
    assert caller is not None
    late = False

    def on_deadline(alarm: asyncio.Task[Any]) -> None:
        nonlocal late
        if not over and not alarm.cancelled():
            late = True
            caller.cancel()

    alarm = asyncio.create_task(deadline)
    alarm.add_done_callback(on_deadline)
    try:
        await waiting
    except asyncio.CancelledError:
        if late and caller.uncancel() == 0:
            return False
        raise
    finally:
        over = True
        alarm.cancel()
    return True
