"""Race: a reader of a session's events stops reading.

Contract: its queue is bounded; media and ticks are dropped first and counted; a reader too slow even then is
closed with a reason and keeps its terminal events; the session, its backend and other readers go on.
"""

from orchestrator.session.backend import Action, Decision, TextDelta, TurnEnd
from orchestrator.session.commands import AppendInput
from orchestrator.session.events import ResponseDone
from orchestrator.session.fence import Fence
from tests.fakes.backend import frame
from tests.fakes.clock import settle
from tests.runtime.conftest import Rig


async def test_ticks_are_dropped_before_anything_else(rig: Rig) -> None:
    slow = rig.session.events(maxsize=16)
    await rig.session.submit(AppendInput("a", frame()))
    await settle()
    for tick in range(40):
        rig.backend.stay_silent(tick=tick)
    rig.backend.speak("hello", tick=40)
    await settle()
    assert slow.reason is None
    assert rig.lost.events > 0
    await rig.session.close("over")
    types = [event.type async for event in slow]
    assert types.count("response.done") == 1
    assert types[-1] == "session.closed"


async def test_a_reader_too_slow_is_closed_and_harms_nobody(rig: Rig) -> None:
    slow, quick = rig.session.events(maxsize=8), rig.session.events(maxsize=256)
    await rig.session.submit(AppendInput("a", frame()))
    await settle()
    rig.backend.emit(Decision(Fence(), 1, Action.RESPONSE))
    for _ in range(50):
        rig.backend.emit(TextDelta(Fence(), "x"))
    rig.backend.emit(TurnEnd(Fence()))
    await settle()
    assert slow.reason == "output_backpressure"
    assert [event async for event in slow if event.type == "response.output_text.delta"] == []
    await rig.session.close("over")
    done = [event async for event in quick if isinstance(event, ResponseDone)]
    assert [event.text for event in done] == ["x" * 50]
