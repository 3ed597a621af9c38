"""Race: words are asked for while a decision is in flight.

Contract: a decision that has said nothing yet starts over as the reply; one that speaks is the reply.
"""

from __future__ import annotations

import asyncio

from tests.backends.replay.harness import Answer, Session


async def test_words_asked_for_mid_decision_start_it_over() -> None:
    gate = asyncio.Event()
    slow = Answer("</silence> thinking it over", gate=gate)
    async with Session([slow, " Here."]) as s:
        operation = await s.frame()
        await s.create()
        assert s.engine.decisions[0].ended == "aborted"
        assert s.spoken == "Here."
        answered = s.answered_by(operation)
        assert answered is not None and answered.record["action"] == "response"
        assert len(s.engine.decisions[1].uuids) == 1
