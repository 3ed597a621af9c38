"""What sessions have waiting, added up a few at a time: whoever scrapes holds nobody up."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session_sums import AT_ONCE, SessionSums, summed


def session(mailbox: int, pending: int, *queued: int) -> dict[str, Any]:
    readers = [{"queued": each} for each in queued]
    return {"mailbox": mailbox, "pending_input_bytes": pending, "subscriptions": readers}


def test_everything_is_added_up_and_the_worst_lag_told() -> None:
    sums = SessionSums()
    sums.add(session(1, 10, 2, 3), {"frames": {"waiting": 4}}, None)
    sums.add(session(2, 20), {"frames": {"waiting": 1}, "voice": {"speaking": 1}}, 0.5)
    sums.add(session(0, 0, 1), {}, 0.2)
    assert (sums.commands, sums.input_bytes, sums.events, sums.lag_s) == (3, 30, 6, 0.5)
    assert sums.sizes["frames"]["waiting"] == 5 and sums.sizes["voice"]["speaking"] == 1
    assert sums.sizes["ears"]["waiting"] == 0, "what nobody told"


@given(st.integers(0, 20 * AT_ONCE))
def test_others_have_their_turn_meanwhile(sessions: int) -> None:
    seen: Counter[int] = Counter()

    async def main() -> SessionSums:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())

        def add(sums: SessionSums, name: str) -> None:
            seen[turns] += 1
            sums.add(session(1, 0), {}, None)

        sums = await summed(map(str, range(sessions)), add)
        task.cancel()
        return sums

    assert asyncio.run(main()).commands == sessions
    assert max(seen.values(), default=0) <= AT_ONCE
