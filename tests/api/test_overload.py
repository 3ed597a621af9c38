"""More is asked of an engine than it can do, over real sockets: who is in goes on, the rest is refused with a
time to come back, nothing queues without bound, and soon after all is as it was.

Nothing is timed: the engine holds its answers until a test lets go of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from orchestrator import replay_hosts
from orchestrator.engines.room import ENOUGH
from orchestrator.replay_track import ReplayTrack
from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.serving import eventually

FRAMES_A_TICK = 4
"""Of one session that may wait: what its pack lets ride a tick."""
RECOVERY_TICKS = 10
SETTINGS: dict[str, Any] = {"decision": {"gate": False}, "limits": {"frame_pixels": 224 * 224}}
"""Ungated; pictures are as large as they may be, so that counted turns leave the room that was thought."""


class Held(FakeEngine):
    """Answers no decision while ``hold`` is set."""

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self.free = asyncio.Event()
        self.free.set()
        self.decided = 0

    async def _answer(self, seen: Seen, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if b"image_url" in seen.body and b'"max_tokens":1,' not in seen.body:
            self.decided += 1
            await self.free.wait()
        await super()._answer(seen, scope, receive, send)


@asynccontextmanager
async def overloadable(folder: Path, **facts: Any) -> AsyncIterator[tuple[Held, Served]]:
    async with Held(**facts) as engine, Served(engine, folder, **SETTINGS) as served:
        yield engine, served


async def see(served: Served, session: str, number: int) -> httpx.Response:
    return await served.see(number, headers={"x-session-id": session})


def figure(text: str, name: str, **labels: str) -> float:
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    lines = [line for line in text.splitlines() if line.startswith(f"vigil_{name}")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(each in line for each in wanted))


def track(served: Served) -> ReplayTrack:
    assert isinstance(served.core.track, ReplayTrack)
    return served.core.track


async def scraped(served: Served) -> str:
    return (await served.client.get("/metrics")).text


def hinted(reply: httpx.Response, status: int, code: str) -> bool:
    assert (reply.status_code, error(reply)["code"]) == (status, code)
    return int(reply.headers["retry-after"]) >= 1 and error(reply)["retryable"]


async def test_twice_what_its_cache_carries_is_offered(tmp_path: Path) -> None:
    async with overloadable(tmp_path, kv_tokens=80_000) as (engine, served):
        (host,) = track(served).hosts.fleet.hosts
        most = host.room.most
        assert most is not None and 2 <= most <= 20
        names = [f"cam-{number}" for number in range(2 * most)]
        first = {name: await see(served, name, 0) for name in names}
        there = [name for name, reply in first.items() if reply.status_code == 200]
        assert len(there) == most
        assert all(hinted(first[name], 429, "resource_exhausted") for name in names if name not in there)
        for tick in range(1, RECOVERY_TICKS):
            replies = await asyncio.gather(*(see(served, name, tick) for name in names))
            for name, reply in zip(names, replies, strict=True):
                if name in there:
                    assert reply.status_code == 200 and reply.json()["interaction"]["frames"] == 1
                else:
                    assert hinted(reply, 429, "resource_exhausted")
        assert engine.decided == most * RECOVERY_TICKS
        assert figure(await scraped(served), "sessions_refused_total") == most * RECOVERY_TICKS
        assert (await served.client.delete(f"/v1/sessions/{there[0]}")).status_code == 200
        late = next(name for name in names if name not in there)
        again = await see(served, late, 20)
        assert again.status_code == 200, f"a place that is free again is given out: {again.text}"


async def test_a_hundred_come_at_once_for_a_few_places(tmp_path: Path) -> None:
    async with overloadable(tmp_path, kv_tokens=80_000) as (_, served):
        (host,) = track(served).hosts.fleet.hosts
        most = host.room.most
        assert most is not None and 2 <= most <= 20
        replies = await asyncio.gather(*(see(served, f"cam-{number}", 0) for number in range(100)))
        there = [reply for reply in replies if reply.status_code == 200]
        assert len(there) == most == len(host.homes)
        assert all(hinted(each, 429, "resource_exhausted") for each in replies if each not in there)
        recorded = (await served.client.get("/v1/sessions?limit=100")).json()["data"]
        assert len(recorded) == most == served.core.registry.statistics()["slots"]


@pytest.mark.usefixtures("admits_as_shipped")
async def test_an_engine_that_is_late_takes_nobody_more_and_keeps_those_who_are_in(tmp_path: Path) -> None:
    async with overloadable(tmp_path) as (engine, served):
        names = [f"cam-{number}" for number in range(ENOUGH)]
        engine.free.clear()
        asked = [asyncio.create_task(see(served, name, 0)) for name in names]
        await eventually(lambda: engine.decided == ENOUGH)
        begun = served.core.clock.now()
        await eventually(lambda: served.core.clock.now() > begun + 1.1)  # the model's period, and a little
        engine.free.set()
        assert [reply.status_code for reply in await asyncio.gather(*asked)] == [200] * ENOUGH
        refused = await see(served, "one-more", 0)
        assert hinted(refused, 429, "resource_exhausted") and "period" in error(refused)["message"]
        text = await scraped(served)
        assert figure(text, "engine_ticks_total", outcome="late") == ENOUGH
        for tick in range(1, 4):
            for name in names:
                reply = await see(served, name, tick)
                assert reply.status_code == 200 and reply.json()["interaction"]["frames"] == 1


async def test_who_gets_no_turn_is_told_so_and_the_newest_is_shown_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's only turn is somebody else's: whoever asks is refused, and no session is lost."""
    monkeypatch.setattr(replay_hosts, "LIVE_TICKS", 1)
    names = [f"cam-{number}" for number in range(6)]
    async with overloadable(tmp_path) as (engine, served):
        for name in names:
            assert (await see(served, name, 0)).status_code == 200
        (host,) = track(served).hosts.fleet.hosts
        await host.permits.live("somebody")
        waiting = [see(served, name, tick) for tick in range(1, 9) for name in names]
        replies = await asyncio.gather(*waiting)
        assert all(hinted(reply, 503, "engine_overloaded") for reply in replies)
        text = await scraped(served)
        assert figure(text, "frames_waiting") <= FRAMES_A_TICK * len(names)
        assert figure(text, "mailbox_commands") == 0 and engine.decided == len(names)
        assert figure(text, "engine_ticks_total", outcome="refused") >= len(names)
        assert figure(text, "engine_longest_wait_seconds", kind="live") >= 0
        host.permits.done("somebody")
        last = {}
        for tick in range(10, 10 + RECOVERY_TICKS):
            replies = await asyncio.gather(*(see(served, name, tick) for name in names))
            assert [reply.status_code for reply in replies] == [200] * len(names)
            last = {name: reply.json() for name, reply in zip(names, replies, strict=True)}
        assert all(reply["interaction"]["frames"] == 1 for reply in last.values()), (
            "each in a tick of its own"
        )
        text = await scraped(served)
        assert figure(text, "frames_waiting") == 0
        assert figure(text, "engine_ticks_total", outcome="coalesced") >= len(names)
        assert re.search(r'vigil_engine_wait_seconds_count\{engine="[^"]+",kind="live"\}', text)
        assert figure(text, "sessions", state="open") == len(names)
