"""Facts on their way to the webhook: order, repetition, giving up, and what a next process goes on with."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from bridges.webhook import WebhookError
from memory.store.errors import StoreError
from memory.store.session import DurableSession
from memory.store.store import Store
from orchestrator.deliveries import Deliveries
from tests.fakes.clock import VirtualClock, settle

FAILED = WebhookError("webhook_failed", "status 503")
REFUSED = WebhookError("webhook_refused", "status 400")


class Receiver:
    """Takes events, or raises what ``answers`` has next."""

    def __init__(self) -> None:
        self.answers: list[WebhookError | None] = []
        self.tried: list[str] = []
        self.taken: list[dict[str, Any]] = []
        self._changed = asyncio.Condition()

    async def post(self, event_id: str, body: bytes) -> None:
        self.tried.append(event_id)
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            self.taken.append(orjson.loads(body))
        async with self._changed:
            self._changed.notify_all()
        if answer is not None:
            raise answer

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(holds)

    @property
    def said(self) -> list[str]:
        return [event["data"]["text"] for event in self.taken]


def choose(kind: str, data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    return data if kind == "alert" else None


class Service:
    """A store, its sessions, and the deliveries of one process."""

    def __init__(self, store: Store, clock: VirtualClock, receiver: Receiver) -> None:
        self.store = store
        self.clock = clock
        self.receiver = receiver
        self.counts: Counter[str] = Counter()
        self.deliveries = Deliveries(
            receiver, store, choose, clock, 3600.0, lambda what: self.counts.update([what])
        )

    async def session(self, name: str = "s") -> DurableSession:
        try:
            session = await self.store.create(
                name, tenant="t", model="m", pack_digest="d", renderer=1, alias=f"alias-{name}"
            )
        except StoreError:
            session = await self.store.session(name)
        await self.deliveries.session(name)
        session.log.subscribe(lambda entry: self.deliveries.news(name, entry.seq))
        return session

    async def counted(self, what: str, times: int) -> None:
        async with asyncio.timeout(60):
            while self.counts[what] < times:
                await settle()

    async def retry(self, seconds: float) -> None:
        """Let the clock run once the reader waits on it."""
        async with asyncio.timeout(60):
            while not self.clock.sleepers:
                await settle()
        await self.clock.advance(seconds)


@asynccontextmanager
async def service(
    folder: Path, clock: VirtualClock | None = None, receiver: Receiver | None = None
) -> AsyncIterator[Service]:
    clock = clock or VirtualClock()
    store = await Store.open(f"sqlite:///{folder}/vigil.db", folder, now_ms=clock.wall_ms)
    made = Service(store, clock, receiver or Receiver())
    try:
        yield made
    finally:
        await made.deliveries.aclose()
        await store.close()


def alert(session: DurableSession, text: str) -> int:
    session.log.append("noise", {})
    return session.log.append("alert", {"text": text})


async def test_events_come_in_order_and_tell_where_they_are_from(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        session = await made.session()
        for n in range(20):
            alert(session, str(n))
        await made.receiver.until(lambda: len(made.receiver.taken) == 20)
        assert made.receiver.said == [str(n) for n in range(20)]
        assert made.receiver.taken[0] == {
            "id": "s:2",
            "kind": "alert",
            "seq": 2,
            "at_ms": made.clock.wall_ms(),
            "session_id": "s",
            "alias": "alias-s",
            "tenant": "t",
            "data": {"text": "0"},
        }
        assert made.counts == {"delivered": 20}


async def test_one_that_fails_is_tried_again_before_the_next(tmp_path: Path) -> None:
    """Contract: a session's order is kept whatever fails; other sessions do not wait for it."""
    async with service(tmp_path) as made:
        made.receiver.answers = [FAILED]
        first = await made.session("a")
        alert(first, "one")
        alert(first, "two")
        await made.counted("failed", 1)
        second = await made.session("b")
        alert(second, "other")
        await made.receiver.until(lambda: made.receiver.said == ["other"])
        assert made.deliveries.statistics()["waiting"] == 1
        await made.retry(1.0)
        await made.receiver.until(lambda: len(made.receiver.taken) == 3)
        assert made.receiver.said == ["other", "one", "two"]
        assert made.receiver.tried == ["a:2", "b:2", "a:2", "a:4"]
        assert made.deliveries.statistics()["waiting"] == 0


async def test_waits_double_up_to_a_minute_and_the_receiver_may_say_more(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        made.receiver.answers = [FAILED] * 8 + [WebhookError("webhook_failed", "later", 300.0)]
        alert(await made.session(), "late")
        for tries, wait in enumerate((1, 2, 4, 8, 16, 32, 60, 60, 300), start=1):
            await made.counted("failed", tries)
            await made.retry(wait - 0.5)
            await settle()
            assert len(made.receiver.tried) == tries
            await made.clock.advance(0.5)
        await made.receiver.until(lambda: made.receiver.said == ["late"])
        assert made.deliveries.statistics()["late_s"] == 0


async def test_one_that_is_never_taken_is_given_up(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        session = await made.session()
        made.receiver.answers = [FAILED] * 1000
        alert(session, "lost")
        async with asyncio.timeout(60):
            while not made.counts["expired"]:
                await made.clock.advance(60.0)
        assert made.deliveries.statistics()["waiting"] == 0
        made.receiver.answers = []
        alert(session, "next")
        await made.receiver.until(lambda: made.receiver.said == ["next"])


async def test_one_that_is_refused_makes_way(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        made.receiver.answers = [REFUSED]
        session = await made.session()
        alert(session, "bad")
        alert(session, "good")
        await made.receiver.until(lambda: made.receiver.said == ["good"])
        assert made.counts["refused"] == 1


@pytest.mark.parametrize("closed", [True, False])
async def test_a_next_process_goes_on_where_this_one_was(tmp_path: Path, closed: bool) -> None:
    """Contract: what the receiver did not take is sent by the next process, even if the session is over."""
    receiver = Receiver()
    clock = VirtualClock()
    async with service(tmp_path, clock, receiver) as made:
        session = await made.session()
        alert(session, "taken")
        await receiver.until(lambda: receiver.said == ["taken"])
        receiver.answers = [FAILED] * 1000
        alert(session, "not taken")
        alert(session, "nor this")
        await made.counted("failed", 1)
        if closed:
            await session.close()
        await session.release()
    receiver.answers = []
    async with service(tmp_path, clock, receiver) as made:
        await made.deliveries.start()
        await receiver.until(lambda: len(receiver.taken) == 3)
        assert receiver.said == ["taken", "not taken", "nor this"]
        if not closed:
            alert(await made.session(), "it goes on")
            await receiver.until(lambda: receiver.said[3:] == ["it goes on"])
    async with service(tmp_path, clock, receiver) as made:
        await made.deliveries.start()
        async with asyncio.timeout(60):
            while made.deliveries.statistics()["readers"]:
                await settle()
    assert len(receiver.taken) == len({event["id"] for event in receiver.taken})


async def test_a_session_taken_up_while_its_rest_is_sent(tmp_path: Path) -> None:
    receiver, clock = Receiver(), VirtualClock()
    async with service(tmp_path, clock, receiver) as made:
        session = await made.session()
        receiver.answers = [FAILED] * 1000
        alert(session, "old")
        await made.counted("failed", 1)
    receiver.answers = [FAILED]
    async with service(tmp_path, clock, receiver) as made:
        await made.deliveries.start()
        await made.counted("failed", 1)
        session = await made.session()
        alert(session, "new")
        await made.retry(1.0)
        await receiver.until(lambda: receiver.said == ["old", "new"])


async def test_a_webhook_that_is_new_hears_nothing_old(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        old = await made.store.create("s", tenant="t", model="m", pack_digest="d", renderer=1)
        alert(old, "old")
        await old.log.flush()
        await made.deliveries.start()
        alert(await made.session(), "new")
        await made.receiver.until(lambda: made.receiver.said == ["new"])


async def test_nothing_more_is_told_of_a_deleted_session(tmp_path: Path) -> None:
    async with service(tmp_path) as made:
        made.receiver.answers = [FAILED] * 1000
        alert(await made.session(), "private")
        await made.counted("failed", 1)
        await made.deliveries.forget("s")
        await made.store.delete("s")
        made.receiver.answers = []
        await made.clock.advance(600.0)
        assert made.receiver.taken == []
        assert made.deliveries.statistics() == {"readers": 0, "waiting": 0, "late_s": 0}


async def test_a_store_that_is_away_costs_time_not_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with service(tmp_path) as made:
        session = await made.session()
        kept, away = made.store.bookmark, [True]

        async def bookmark(*arguments: Any) -> None:
            if away.pop() if away else False:
                raise StoreError("gone for a moment")
            await kept(*arguments)

        monkeypatch.setattr(made.store, "bookmark", bookmark)
        alert(session, "one")
        alert(session, "two")
        await made.receiver.until(lambda: made.receiver.said == ["one"])
        await made.retry(60.0)
        await made.receiver.until(lambda: "two" in made.receiver.said)
        # What was taken before the store went away comes again, under the same id.
        assert made.receiver.said == ["one", "one", "two"]
        assert [event["id"] for event in made.receiver.taken] == ["s:2", "s:2", "s:4"]
