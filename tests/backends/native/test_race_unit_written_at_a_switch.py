"""A unit is being written when its engine session is left for the next one.

Contract: the next session gets it, once and before all later units, however the write to the former one ends;
nothing of it counts twice.
"""

from __future__ import annotations

import pytest

from bridges.duplex_client.link import LinkCode
from orchestrator.session.events import NoticeEvent
from tests.backends.native.harness import open_rig
from tests.backends.native.test_rollover_carried_out import TWO_MINUTES
from tests.fakes.link import ScriptedLink, listen


@pytest.mark.parametrize("ending", ["written", "lost", "refused"])
async def test_the_next_session_gets_it_once(ending: str) -> None:
    links: list[ScriptedLink] = []

    def prepare(link: ScriptedLink) -> None:
        links.append(link)
        if len(links) == 2:
            link.hold("append")  # it is not warm yet

    rig = await open_rig(TWO_MINUTES, script=lambda link, unit: [listen()], prepare=prepare)
    sent = 0
    while len(links) < 2:
        sent += 1
        await rig.append(1000, speech=False)
        await rig.clock.advance(1)
    links[0].hold("append")
    await rig.append(1000, speech=False)
    await rig.clock.advance(1)
    links[1].free("append")
    await rig.clock.advance(1)
    assert [event.code for event in rig.of(NoticeEvent)] == ["rolled_over"]
    if ending != "written":
        links[0].fail("append", LinkCode.LINK_LOST if ending == "lost" else "engine_error")
    links[0].free("append")
    for _ in range(5):
        await rig.append(1000, speech=False)
        await rig.clock.advance(1)
    heard = [unit.end_ms for unit in links[1].units[1:]]
    assert heard == [1000 * number for number in range(sent + 1, sent + 7)]
    assert [unit.end_ms for unit in links[0].units][:sent] == [1000 * n for n in range(1, sent + 1)]
    assert rig.codes() == [] and rig.facts("media_gap") == []
    assert rig.backend.statistics()["units"]["written"] == sent + 6
