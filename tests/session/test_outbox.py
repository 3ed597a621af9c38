"""The outbox: order, both budgets, the closing slot; and random use against a list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.events import ErrorEvent, Event, NoticeEvent, ResponseDone, SessionClosed
from orchestrator.session.fence import Fence
from orchestrator.session.items import Item
from orchestrator.session.outbox import Outbox, OutboxLimits, Outgoing, may_use_reserve
from orchestrator.session.playback import Cursors
from orchestrator.wire.errors import ServerFault
from orchestrator.wire.server import Written

LIMITS = OutboxLimits(max_bytes=100, max_events=4, reserve_bytes=30, reserve_events=2)


def out(event: Event, size: int) -> Outgoing:
    return Outgoing(event, Written(event.type, "{}"), size)


def notice(code: str = "n", size: int = 10) -> Outgoing:
    return out(NoticeEvent(code, ""), size)


def error(size: int = 10) -> Outgoing:
    return out(ErrorEvent(ServerFault("x")), size)


def done(status: str) -> ResponseDone:
    return ResponseDone(Fence(), "r", status, None, Item("i", "assistant"), False, Cursors(), {}, {})


def drain(outbox: Outbox) -> list[Outgoing]:
    taken = []
    while (each := outbox.take()) is not None:
        taken.append(each)
    return taken


def test_first_in_first_out() -> None:
    outbox = Outbox(LIMITS)
    sent = [notice("a"), error(), notice("b")]
    assert all(outbox.offer(each) for each in sent)
    assert drain(outbox) == sent
    assert outbox.statistics() == {"events": 0, "bytes": 0, "reserve_events": 0, "reserve_bytes": 0}


@pytest.mark.parametrize("sizes", [[60, 41], [25, 25, 25, 25, 1]])
def test_the_normal_budget_is_bounded_in_bytes_and_events(sizes: list[int]) -> None:
    outbox = Outbox(LIMITS)
    assert [outbox.offer(notice(size=size)) for size in sizes] == [True] * (len(sizes) - 1) + [False]
    assert len(outbox) == len(sizes) - 1


def test_the_reserve_serves_errors_and_bad_endings_alone() -> None:
    outbox = Outbox(LIMITS)
    outbox.offer(notice(size=100))
    assert not outbox.offer(out(done("completed"), 1))
    assert not outbox.offer(out(done("incomplete"), 1))
    assert outbox.offer(error(20))
    assert outbox.offer(out(done("failed"), 10))
    assert not outbox.offer(error(1)), "the reserve is bounded too"
    assert [may_use_reserve(done(s)) for s in ("completed", "cancelled", "failed")] == [False, True, True]


def test_taking_gives_each_budget_its_own_back() -> None:
    outbox = Outbox(LIMITS)
    outbox.offer(notice(size=100))
    outbox.offer(error(30))
    outbox.take()
    assert outbox.statistics() == {"events": 1, "bytes": 0, "reserve_events": 1, "reserve_bytes": 30}
    outbox.take()
    assert outbox.statistics()["reserve_bytes"] == 0


def test_the_closing_event_always_fits_and_leaves_last() -> None:
    outbox = Outbox(LIMITS)
    outbox.offer(notice(size=100))
    closing = out(SessionClosed("s", "output_backpressure"), 10_000)
    outbox.close_with(closing)
    outbox.offer(error())
    assert drain(outbox)[-1] == closing


def test_removing_refunds_and_keeps_the_order_of_the_rest() -> None:
    outbox = Outbox(LIMITS)
    for code in "abc":
        outbox.offer(notice(code))
    outbox.close_with(out(SessionClosed("s", "x"), 1))
    removed = outbox.remove(lambda event: isinstance(event, NoticeEvent) and event.code == "b")
    assert [event.code for event in removed if isinstance(event, NoticeEvent)] == ["b"]
    assert outbox.statistics()["bytes"] == 20
    assert [o.event.type for o in drain(outbox)] == ["vigil.notice", "vigil.notice", "session.closed"]


def test_replacing_changes_the_newest_match_in_its_place() -> None:
    outbox = Outbox(LIMITS)
    outbox.offer(out(done("completed"), 5))
    outbox.offer(out(done("completed"), 10))
    outbox.offer(notice())
    before = outbox.replace_last(lambda e: isinstance(e, ResponseDone), lambda _: out(done("failed"), 99))
    assert before == done("completed")
    assert outbox.replace_last(lambda e: isinstance(e, ErrorEvent), lambda _: error()) is None
    statuses = [o.event.status for o in drain(outbox) if isinstance(o.event, ResponseDone)]
    assert statuses == ["completed", "failed"]
    assert outbox.statistics()["bytes"] == 0


@given(
    st.lists(st.one_of(st.tuples(st.sampled_from("ne"), st.integers(0, 60)), st.just(("t", 0))), max_size=60)
)
def test_bounds_and_order_hold_whatever_happens(steps: list[tuple[str, int]]) -> None:
    outbox, model = Outbox(LIMITS), []  # type: ignore[var-annotated]
    for step, size in steps:
        if step == "t":
            assert outbox.take() is (model.pop(0) if model else None)
        else:
            offered = notice(size=size) if step == "n" else error(size)
            if outbox.offer(offered):
                model.append(offered)
        figures = outbox.statistics()
        assert figures["bytes"] <= LIMITS.max_bytes
        assert figures["reserve_bytes"] <= LIMITS.reserve_bytes
        assert figures["bytes"] + figures["reserve_bytes"] == sum(each.size for each in model)
        assert figures["events"] == len(model) <= LIMITS.max_events + LIMITS.reserve_events
