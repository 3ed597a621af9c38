"""A session is closed while it changes over from one engine session to the next, held up by a slow reader.

Contract: both engine sessions are closed and both places given back, wherever the change is broken off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from orchestrator.session.backend import BackendOutput, Notice
from tests.backends.native.harness import open_rig
from tests.backends.native.test_rollover_carried_out import TWO_MINUTES, every_fifth
from tests.fakes.clock import settle

Put = Callable[[BackendOutput], Awaitable[None]]


async def test_nothing_stays_open() -> None:
    rig = await open_rig(TWO_MINUTES, script=every_fifth)
    stream, stuck = rig.backend._stream, asyncio.Event()
    put: Put = stream.put

    async def slow(output: BackendOutput) -> None:
        if len(rig.links.made) > 1 and isinstance(output, Notice):
            stuck.set()
            await asyncio.Event().wait()
        await put(output)

    stream.put = slow  # type: ignore[method-assign]
    for _ in range(150):
        await rig.append(1000)
        await rig.clock.advance(1)
        if stuck.is_set():
            break
    assert stuck.is_set()
    await rig.finish()
    await rig.clock.advance(20)
    await settle()
    assert [link.closed for link in rig.links.made] == [True, True]
    assert rig.seats.states == ["freed", "freed"]
