"""A session's facts as server-sent events over a real socket: from any one on, none twice, none missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from memory.store.log import DurableLog
from orchestrator.api import routes_events
from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Seen

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


def every_third(seen: Seen) -> str:
    return f"<response> A dog, {seen.tick}." if seen.tick % 3 == 0 else "<silence>"


class Reader:
    """Reads one stream. ``quiet``: some lines came that only keep it alive."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()
        self._comments = 0
        self.quiet = asyncio.Event()
        self.ended: str | None = None

    async def next(self) -> dict[str, Any]:
        """The next event's data; ``ended`` is set when it is the last."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                self._comments += 1
                if self._comments >= 5:
                    self.quiet.set()
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                data = dict(orjson.loads(fields["data"]))
                if fields["event"] == "end":
                    self.ended = data["reason"]
                    assert "id" not in fields
                else:
                    assert (fields["id"], fields["event"]) == (str(data["seq"]), data["kind"])
                return data
        raise AssertionError("the stream ended without a word")

    async def idle(self) -> None:
        """Until the stream has nothing more to tell: it has come to the end of what is there."""
        async for line in self._lines:
            assert not line or line.startswith(":")
            if line:
                return

    async def until(self, seq: int) -> list[dict[str, Any]]:
        found = []
        while not found or found[-1]["seq"] < seq:
            found.append(await self.next())
            assert self.ended is None
        return found

    async def rest(self) -> list[dict[str, Any]]:
        found = []
        while self.ended is None:
            found.append(await self.next())
        return found[:-1]


@asynccontextmanager
async def follow(served: Served, name: str = "cam", **more: Any) -> AsyncIterator[Reader]:
    async with (
        asyncio.timeout(60),
        served.client.stream("GET", f"/v1/sessions/{name}/events", **more) as response,
    ):
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Reader(response)


async def newest(served: Served) -> int:
    return int((await served.client.get("/v1/sessions/cam")).json()["facts"])


def log_of(served: Served) -> DurableLog:
    assert served.core.keeper.store is not None
    (session,) = served.core.keeper.store._open.values()
    return session.log


def numbers(events: list[dict[str, Any]]) -> list[int]:
    return [event["seq"] for event in events]


async def test_what_was_and_what_comes_without_a_gap_or_a_double(tmp_path: Path) -> None:
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            await served.see(n)
        async with follow(served) as early:
            first = await early.next()
            assert first["seq"] == 1
            watching = [asyncio.create_task(served.see(n)) for n in range(3, 8)]
            async with follow(served, params={"after": 5}) as late:
                await asyncio.gather(*watching)
                await served.see(8)
                last = await newest(served)
                assert numbers(await late.until(last)) == list(range(6, last + 1))
            events = [first, *await early.until(last)]
        assert numbers(events) == list(range(1, last + 1))
        kinds = {event["kind"] for event in events}
        assert {"session_opened", "memory_opened", "frame_seen", "tick_begun", "tick_answered"} <= kinds
        assert len({event["session_id"] for event in events}) == 1


async def test_a_reader_comes_back_where_it_left(tmp_path: Path) -> None:
    """Contract: the header of a reconnecting browser counts more than its old URL."""
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            await served.see(n)
        last = await newest(served)
        again = {"headers": {"last-event-id": str(last - 2)}, "params": {"after": 1}}
        async with follow(served, **again) as reader:
            assert numbers(await reader.until(last)) == [last - 1, last]


async def test_without_following_it_ends_at_the_newest_fact(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        last = await newest(served)
        async with follow(served, params={"follow": "false"}) as reader:
            assert numbers(await reader.rest()) == list(range(1, last + 1))
        assert reader.ended == "caught_up"


async def test_an_alert_reaches_an_http_client(tmp_path: Path) -> None:
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        async with follow(served, params={"kinds": "response"}) as reader:
            for n in range(1, 5):
                await served.see(n)
            alerts = [await reader.next(), await reader.next()]
        assert [alert["data"]["text"] for alert in alerts] == ["A dog, 0.", "A dog, 3."]
        assert alerts[0]["data"]["media_time_ms"] == 0
        assert alerts[0]["data"]["record"]["prompt_tokens"] > 0


async def test_nothing_but_what_is_public(tmp_path: Path) -> None:
    """What the model said before it was checked, prompt texts and keys stay in the log."""
    script = ["secret thoughts</response> hello"]
    async with FakeEngine(script) as engine, Served(engine, tmp_path, family="joyvl", **UNGATED) as served:
        await served.see(0)
        async with follow(served) as reader:
            events = await reader.until(await newest(served))
        shown = orjson.dumps(events).decode()
        assert "hello" in shown
        assert "secret thoughts" not in shown
        persona = served.pack.persona("default", "en")
        assert persona[:60] not in shown
        assert "said" not in {key for event in events for key in event["data"]}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"params": {"after": -1}}, "after"),
        ({"params": {"after": "x"}}, "after"),
        ({"params": {"kinds": "tick_answered,nonsense"}}, "kinds"),
        ({"headers": {"last-event-id": "x1"}}, "last-event-id"),
    ],
)
async def test_wrong_wishes_are_refused(tmp_path: Path, more: dict[str, Any], param: str) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        response = await served.client.get("/v1/sessions/cam/events", **more)
        assert response.status_code == 400
        assert error(response)["param"] == param


@pytest.mark.parametrize("end", ["session_closed", "deleted", "shutdown"])
async def test_the_end_is_told(tmp_path: Path, end: str) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        async with follow(served) as reader:
            await reader.until(await newest(served))
            if end == "session_closed":
                await served.client.post("/reset", headers={"x-session-id": "cam"})
            elif end == "deleted":
                await served.client.delete("/v1/sessions/cam")
            else:
                assert served.core.records is not None
                served.core.records.stop_readers()
            rest = await reader.rest()
        assert reader.ended == end
        if end == "session_closed":
            assert rest[-1]["kind"] == "session_ended"
            assert rest[-1]["data"] == {"reason": "reset"}


async def test_a_session_that_is_over_is_told_to_its_end(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        found = (await served.client.get("/v1/sessions/cam")).json()["id"]
        await served.client.post("/reset", headers={"x-session-id": "cam"})
        async with follow(served, found) as reader:
            events = await reader.rest()
        assert numbers(events) == list(range(1, len(events) + 1))
        assert (events[-1]["kind"], reader.ended) == ("session_ended", "session_closed")


async def test_a_reader_waits_for_a_kept_session_to_go_on(tmp_path: Path) -> None:
    """Contract: after a restart the numbers go on, and who followed the session misses nothing."""
    async with FakeEngine(every_third) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served:
            await served.see(0)
            async with follow(served) as reader:
                seen = numbers(await reader.until(await newest(served)))
        last = {"headers": {"last-event-id": str(seen[-1])}}
        async with Served(engine, tmp_path, **UNGATED) as served, follow(served, **last) as reader:
            closing = await reader.next()
            assert closing["seq"] == seen[-1] + 1
            await served.see(1)
            more = await reader.until(await newest(served))
        seen += [closing["seq"], *numbers(more)]
        assert seen == list(range(1, len(seen) + 1))
        assert sum(event["kind"] == "session_opened" for event in more) == 1


async def test_a_quiet_stream_stays_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_events, "KEEP_ALIVE_S", 0.02)
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        async with follow(served, params={"kinds": "query_set"}) as reader:
            waiting = asyncio.create_task(reader.next())
            await reader.quiet.wait()
            await served.client.put("/v1/sessions/cam/query", json={"text": "who?"})
            assert (await waiting)["data"]["text"] == "who?"


async def test_readers_of_one_session_are_counted(tmp_path: Path) -> None:
    limits = {"event_streams": 2}
    async with FakeEngine() as engine, Served(engine, tmp_path, limits=limits, **UNGATED) as served:
        await served.see(0)
        async with follow(served) as one, follow(served) as two:
            await one.next(), await two.next()
            refused = await served.client.get("/v1/sessions/cam/events")
            assert (refused.status_code, error(refused)["code"]) == (429, "too_many_readers")
            assert "retry-after" in refused.headers
        async with asyncio.timeout(60):
            while True:  # the server notices that they left
                async with served.client.stream("GET", "/v1/sessions/cam/events") as response:
                    if response.status_code == 200:
                        break


async def test_a_slow_reader_is_sent_away_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Contract: nothing queues for it; it is told why, and its next stream goes on where this one ended."""
    monkeypatch.setattr(routes_events, "BEHIND_MAX", 500)
    monkeypatch.setattr(routes_events, "KEEP_ALIVE_S", 0.05)
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        log = log_of(served)
        async with follow(served) as reader:
            before = await reader.until(await newest(served))
            await reader.idle()  # one that still reads what was there is no slow one
            text = "x" * 8000
            for _ in range(40):  # more than the buffers of both sockets hold
                for _ in range(50):
                    log.append("persona_set", {"persona": "default", "instructions": text})
                await log.flush()
            events = before + await reader.rest()
            assert reader.ended == "slow_reader"
        last = await newest(served)
        assert events[-1]["seq"] < last
        async with follow(served, headers={"last-event-id": str(events[-1]["seq"])}) as reader:
            events += await reader.until(last)
        assert numbers(events) == list(range(1, last + 1))
