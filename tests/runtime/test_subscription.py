"""One reader's queue: order, what a slow reader loses first, and how it ends."""

from orchestrator.runtime.subscription import Lost, Subscription
from orchestrator.session.events import (
    Event,
    ItemDone,
    NoticeEvent,
    RateLimitsUpdated,
    SessionClosed,
    TickEvent,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import Item


def subscribe(lost: Lost | None = None) -> Subscription:
    return Subscription(3, lambda _: None, lost or Lost())


def tick(number: int) -> TickEvent:
    return TickEvent(Fence(), {"tick": number})


def notice(code: str) -> NoticeEvent:
    return NoticeEvent(code, "")


async def drain(subscription: Subscription) -> list[Event]:
    return [event async for event in subscription]


async def test_events_come_in_order_and_end_with_the_session() -> None:
    subscription = subscribe()
    events = [notice("a"), tick(1), SessionClosed("s", "client_close")]
    for event in events:
        subscription.offer(event)
    assert await drain(subscription) == events
    assert subscription.reason == "client_close"


async def test_the_oldest_media_goes_first_and_is_counted() -> None:
    lost = Lost()
    subscription = subscribe(lost)
    for event in (tick(1), notice("a"), tick(2), notice("b")):
        subscription.offer(event)
    assert [await anext(subscription) for _ in range(3)] == [notice("a"), tick(2), notice("b")]
    assert lost.events == 1


async def test_media_never_displaces_content() -> None:
    lost = Lost()
    subscription = subscribe(lost)
    for event in (notice("a"), notice("b"), notice("c"), tick(1)):
        subscription.offer(event)
    assert subscription.reason is None
    assert lost.events == 1


async def test_a_too_slow_reader_keeps_terminal_events_and_gets_a_reason() -> None:
    ended: list[Subscription] = []
    lost = Lost()
    subscription = Subscription(3, ended.append, lost)
    done = ItemDone(None, Item("item_1", "assistant"))
    for event in (notice("a"), done, notice("b"), RateLimitsUpdated()):
        subscription.offer(event)
    subscription.offer(notice("never"))
    assert await drain(subscription) == [done, RateLimitsUpdated()]
    assert subscription.reason == "output_backpressure"
    assert ended == [subscription] and lost.events == 2


async def test_closing_ends_iteration_at_once() -> None:
    subscription = subscribe()
    subscription.offer(notice("a"))
    with subscription:
        pass
    assert await drain(subscription) == []
    assert subscription.reason == "reader_closed"
