"""Several engines behind one service, over real sockets: where sessions go, and how they go on elsewhere.

A session's frames are never lost by a move: every one of them is shown, in order, on one engine or another.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.engine_setup import prepare_engine
from orchestrator.engines.placement import ranked
from orchestrator.exits import SetupError
from orchestrator.replay_engines import prepare_engines
from orchestrator.replay_track import ReplayTrack
from orchestrator.settings import Settings
from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.endless import Endless
from tests.fakes.engine import FakeEngine, Fault
from tests.fakes.engine_tokens import Tokenizer
from tests.realtime.serving import eventually

UNGATED: dict[str, Any] = {"decision": {"gate": False}, "memory": {"chunk_frames": 12, "overlap_frames": 2}}


@asynccontextmanager
async def two_engines(folder: Path, **settings: Any) -> AsyncIterator[tuple[Served, FakeEngine, FakeEngine]]:
    """A service before two engines, and these: first the one that session ``cam`` is on."""
    async with (
        FakeEngine() as one,
        FakeEngine() as other,
        Served(one, folder, also=[other], **UNGATED, **settings) as served,
    ):
        await served.see(0)
        first, second = (one, other) if shown(one) else (other, one)
        yield served, first, second


def shown(engine: FakeEngine) -> list[int]:
    """Pictures of each decision that the engine was asked for."""
    return [len(seen.images) for seen in engine.chats if seen.kind == "decide"]


def name(engine: FakeEngine) -> str:
    return engine.url.removeprefix("http://")


def track(served: Served) -> ReplayTrack:
    assert isinstance(served.core.track, ReplayTrack)
    return served.core.track


async def test_a_session_stays_on_the_engine_that_its_name_gives(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (served, home, other):
        for number in range(1, 6):
            reply = (await served.see(number)).json()
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
        session = served.core.registry.sessions()[0].id
        assert name(home) == ranked(session, [name(home), name(other)])[0]
        assert len(shown(home)) == 6 and not shown(other)
        text = (await served.client.get("/metrics")).text
        assert re.search(rf'vigil_engine_sessions\{{engine="{name(home)}"\}} 1\.0', text)
        assert re.search(rf'vigil_engine_sessions\{{engine="{name(other)}"\}} 0\.0', text)


async def test_a_drained_engine_is_left_at_a_window_that_comes_early_and_is_warm(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (served, home, other):
        for number in range(1, 5):
            await served.see(number)
        track(served).engines.drain(name(home), True)
        rows = []
        for number in range(5, 20):
            rows.append((await served.see(number)).json())
            if shown(other):
                break
        assert len(rows) <= 8, "it does not wait for the chunk to be full"
        warmed = [seen.kind for seen in other.chats]
        assert "probe" in warmed[: warmed.index("decide")], "the window was warmed before it was switched to"
        usage = rows[-1]["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] >= 0.5 * usage["prompt_tokens"]
        before = len(shown(home))
        for number in range(40, 44):
            await served.see(number)
        assert len(shown(home)) == before
        assert track(served).hosts.fleet.moves["drained"] == 1
        text = (await served.client.get("/metrics")).text
        assert 'vigil_sessions_moved_total{reason="drained"} 1.0' in text


async def test_an_engine_that_dies_costs_no_session_and_no_frame(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (served, home, other):
        for number in range(1, 5):
            await served.see(number)
        home.kill()
        replies = await asyncio.gather(*(served.see(number) for number in range(5, 8)))
        assert [reply.status_code for reply in replies] == [200, 200, 200]
        assert shown(other)[-1] == 8, "every frame is in the window that the other engine read anew"
        assert (await served.client.get("/ready")).status_code == 200
        assert track(served).hosts.fleet.moves["died"] == 1
        for number in range(8, 11):
            reply = (await served.see(number)).json()
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize(
    "fault",
    [Fault(status=404, message="The model `m` does not exist."), Fault(status=401), Fault(status=503)],
    ids=["another model", "another key", "no engine behind it"],
)
async def test_an_engine_that_takes_nothing_of_ours_is_left_with_every_frame(
    tmp_path: Path, fault: Fault
) -> None:
    """It is there and says so: nobody's frames are thrown away for that, and nobody is sent there."""
    async with two_engines(tmp_path) as (served, home, other):
        for number in range(1, 4):
            await served.see(number)
        home.faults.append(replace(fault, times=None))
        for number in range(4, 7):
            assert (await served.see(number)).status_code == 200
        assert shown(other)[-1] == 7 and track(served).hosts.fleet.moves["died"] == 1
        before = shown(home)
        for number in range(4):
            reply = await served.see(0, headers={"x-session-id": f"new-{number}"})
            assert reply.status_code == 200
        assert shown(home) == before, "new sessions go where somebody is answered"
        home.faults.clear()
        host = next(h for h in track(served).hosts.fleet.hosts if h.name == name(home))
        assert await host.chat.ping(5.0) and not host.down


async def test_a_session_of_one_engine_waits_while_another_model_is_served_there(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        for number in range(3):
            await served.see(number)
        engine.model = "another"
        waits = await served.see(3)
        assert (waits.status_code, error(waits)["code"]) == (503, "engine_unavailable")
        assert waits.headers["retry-after"]
        ready = await served.client.get("/ready")
        assert (ready.status_code, error(ready)["code"]) == (503, "engine_dead")
        assert "another model or key" in error(ready)["message"]
        engine.model = served.core.track.offer.model
        await eventually(lambda: shown(engine)[-1] == 4)
        assert (await served.see(4)).status_code == 200 and shown(engine)[-1] == 5


async def test_what_came_back_in_an_engines_place_under_its_models_name_is_asked_nothing(
    tmp_path: Path,
) -> None:
    """Its tags are other tokens: what sessions send would mean something else to it. The watch looks on."""
    quick = {"watch_s": 0.05, "ping_s": 1.0}
    async with two_engines(tmp_path, timeouts=quick) as (served, home, away):
        (host,) = (h for h in track(served).hosts.fleet.hosts if h.name == name(home))
        home.kill()
        assert (await served.see(1)).status_code == 200 and shown(away) == [2]
        known, home.tokenizer = home.tokenizer, Tokenizer(4, ("<silence>", "<response>"))
        await home.restart()
        await eventually(lambda: host.chat.statistics()["denied"])
        before = shown(home)
        for number in range(4):
            assert (await served.see(0, headers={"x-session-id": f"new-{number}"})).status_code == 200
        assert host.down and shown(home) == before
        (told,) = (e for e in track(served).hosts.about() if e["name"] == name(home))
        assert told["state"] == "dead" and "another model" in told["reason"]
        home.tokenizer = known
        await eventually(lambda: not host.down)


async def test_an_engine_that_comes_back_with_less_memory_takes_fewer(tmp_path: Path) -> None:
    quick: dict[str, Any] = {"timeouts": {"watch_s": 0.05}, **UNGATED}
    async with FakeEngine(kv_tokens=400_000) as engine, Served(engine, tmp_path, **quick) as served:
        (host,) = track(served).hosts.fleet.hosts
        before = host.room.most
        engine.kv_tokens = 40_000
        await eventually(lambda: host.room.most != before)
        assert before is not None and host.room.most is not None and host.room.most < before / 4


async def test_new_sessions_pass_over_an_engine_that_is_drained_or_gone(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (served, home, other):
        track(served).engines.drain(name(home), True)
        for number in range(6):
            reply = await served.see(0, headers={"x-session-id": f"new-{number}"})
            assert reply.status_code == 200
        assert len(shown(home)) == 1 and len(shown(other)) == 6
        track(served).engines.drain(name(other), True)
        refused = await served.see(0, headers={"x-session-id": "one-more"})
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "engine_unavailable"
        assert refused.headers["retry-after"]


async def test_engines_come_and_go_while_sessions_run(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (served, home, other), FakeEngine() as third:
        for number in range(1, 4):
            await served.see(number)
        settings = served.settings.model_copy(update={"engine": third.url})
        added = await track(served).hosts.add(
            await asyncio.to_thread(prepare_engine, settings, lambda _: None)
        )
        assert added == name(third)
        with pytest.raises(ValueError, match="already"):
            await track(served).hosts.add(await asyncio.to_thread(prepare_engine, settings, lambda _: None))
        await track(served).hosts.remove(name(home))
        await track(served).hosts.remove(name(other))
        reply = await served.see(4)
        assert reply.status_code == 200 and shown(third)[-1] == 5
        with pytest.raises(ValueError, match="only engine"):
            await track(served).hosts.remove(name(third))


async def test_a_session_goes_on_where_its_window_is_after_a_restart(tmp_path: Path) -> None:
    """Also where its name would give another engine: it had left that one."""
    async with FakeEngine() as one, FakeEngine() as other:
        async with Served(one, tmp_path, also=[other], **UNGATED) as served:
            await served.see(0)
            first, second = (one, other) if shown(one) else (other, one)
            first.kill()
            assert (await served.see(1)).status_code == 200 and shown(second) == [2]
            await first.restart()
        async with Served(one, tmp_path, also=[other], **UNGATED) as served:
            usage = (await served.see(2)).json()["usage"]
            assert len(shown(first)) == 1 and shown(second) == [2, 3]
            assert usage["prompt_tokens_details"]["cached_tokens"] > 0
        second.kill()
        async with Served(first, tmp_path, **UNGATED) as served:
            assert (await served.see(3)).status_code == 200 and shown(first)[-1] == 4


async def test_an_operator_sees_drains_adds_and_removes_engines(tmp_path: Path) -> None:
    async with two_engines(tmp_path) as (served, home, other), FakeEngine(max_images=8) as small:
        door = served.client
        listed = {each["id"]: each for each in (await door.get("/v1/engines")).json()["data"]}
        assert listed[name(home)]["sessions"] == 1 and listed[name(other)]["sessions"] == 0
        drained = (await door.post(f"/v1/engines/{name(home)}/drain")).json()
        assert drained["draining"] is True
        assert (await door.post(f"/v1/engines/{name(home)}/admit")).json()["draining"] is False
        known = await door.post("/v1/engines", json={"url": home.url})
        assert (known.status_code, error(known)["code"]) == (409, "engine_known")
        alias = {"url": home.url.replace("127.0.0.1", "localhost")}
        known = await door.post("/v1/engines", json=alias)
        assert (known.status_code, error(known)["code"]) == (409, "engine_known")
        unfit = await door.post("/v1/engines", json={"url": small.url})
        assert (unfit.status_code, error(unfit)["code"]) == (400, "engine_unfit")
        gone = await door.post("/v1/engines", json={"url": "http://127.0.0.1:9"})
        assert gone.status_code == 503
        several = f"{home.url},{other.url}"
        for body in (
            {},
            {"url": 7},
            {"url": "file:///etc/passwd"},
            {"url": several},
            {"url": "http://u:p@h"},
        ):
            assert (await door.post("/v1/engines", json=body)).status_code == 400
        assert (await door.delete(f"/v1/engines/{name(home)}")).json()["deleted"] is True
        last = await door.delete(f"/v1/engines/{name(other)}")
        assert (last.status_code, error(last)["code"]) == (409, "engine_needed")
        assert (await served.see(1)).status_code == 200 and shown(other) == [2]
        assert (await door.delete(f"/v1/engines/{name(home)}")).status_code == 404


async def test_of_operators_who_do_the_same_at_once_one_does_it(tmp_path: Path) -> None:
    """While the session is shown pictures, which it is from wherever it is just then."""
    async with two_engines(tmp_path) as (served, home, _), FakeEngine() as third:
        door = served.client
        urls = (third.url, third.url.replace("127.0.0.1", "localhost"), third.url)
        *added, seen = await asyncio.gather(
            *(door.post("/v1/engines", json={"url": url}) for url in urls), served.see(1)
        )
        assert sorted(reply.status_code for reply in added) == [201, 409, 409] and seen.status_code == 200
        listed = [each["id"] for each in (await door.get("/v1/engines")).json()["data"]]
        assert len(listed) == 3
        await door.post(f"/v1/engines/{name(home)}/drain")
        *removed, seen = await asyncio.gather(
            *(door.delete(f"/v1/engines/{name(home)}") for _ in range(3)), served.see(2)
        )
        assert sorted(reply.status_code for reply in removed) == [200, 404, 404] and seen.status_code == 200
        assert [reply.status_code for reply in [await served.see(number) for number in (3, 4)]] == [200, 200]
        assert sum(len(host.homes) for host in track(served).hosts.fleet.hosts) == 1


async def test_engines_with_and_without_priorities_serve_side_by_side(tmp_path: Path) -> None:
    """Each is told what it takes: one that schedules by other means refuses every request with a priority."""
    async with (
        FakeEngine() as one,
        FakeEngine(priority_scheduling=False) as other,
        Served(one, tmp_path, also=[other], **UNGATED) as served,
    ):
        for number in range(8):
            reply = await served.see(number, headers={"x-session-id": f"cam-{number}"})
            assert reply.status_code == 200
        asked = [seen.json for seen in one.chats if seen.session]
        assert shown(other) and asked and all("priority" in each for each in asked)


async def test_engines_that_hang_while_they_are_checked_hold_nobody_up(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        with Endless(60.0) as url:
            adds = [
                asyncio.create_task(served.client.post("/v1/engines", json={"url": url})) for _ in range(6)
            ]
            await eventually(lambda: track(served).hosts.checks.asked == 6)
            refused = await served.client.post("/v1/engines", json={"url": url})
            assert (refused.status_code, error(refused)["code"]) == (429, "resource_exhausted")
            assert refused.headers["retry-after"] == "10"
            assert await asyncio.to_thread(lambda: 1) == 1
            assert (await served.see(0)).status_code == 200
        assert [reply.status_code for reply in await asyncio.gather(*adds)] == [503] * 6


async def test_engines_that_differ_in_what_sessions_carry_over_are_refused() -> None:
    async with FakeEngine(tags=("<silence>", "<response>")) as one, FakeEngine() as other:
        settings = Settings(engine=f"{one.url},{other.url}")
        with pytest.raises(SetupError) as refused:
            await asyncio.to_thread(prepare_engines, settings, lambda _: None)
        assert refused.value.code == "engines_differ" and one.url in str(refused.value)


async def test_an_engine_that_is_named_twice_is_refused() -> None:
    async with FakeEngine() as one:
        for again in (one.url, one.url + "/v1", one.url.replace("127.0.0.1", "localhost")):
            with pytest.raises(SetupError) as refused:
                await asyncio.to_thread(
                    prepare_engines, Settings(engine=f"{one.url},{again}"), lambda _: None
                )
            assert refused.value.code == "engine_twice"


async def test_the_smallest_limits_hold_for_all_and_an_engine_that_is_away_is_left_out() -> None:
    told: list[str] = []
    async with FakeEngine(context_tokens=16384) as one, FakeEngine(max_images=64) as other:
        gone = FakeEngine()
        async with gone:
            url = gone.url
        settings = Settings(engine=f"{one.url},{url},{other.url}")
        engines = await asyncio.to_thread(prepare_engines, settings, told.append)
        assert (engines.facts.context_tokens, engines.facts.max_images) == (16384, 64)
        assert len(engines.each) == 2
        assert any(url in line and "without it" in line for line in told)
