"""A session that is refused, or given up while it opens, leaves nothing: no record, no lease, no room."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memory.store.errors import StoreError
from memory.store.session import DurableSession
from memory.store.store import Store
from orchestrator.keeping import DurableKeeper
from orchestrator.replay_track import ReplayTrack
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine
from tests.realtime.serving import eventually


async def left_of(served: Served) -> dict[str, object]:
    """Everything that is there of sessions."""
    keeper, track = served.core.keeper, served.core.track
    assert isinstance(keeper, DurableKeeper) and isinstance(track, ReplayTrack)
    await asyncio.gather(*served.core._abandoned)
    return {
        "ours": dict(keeper._ours),
        "open": keeper.store.statistics()["open"],
        "recorded": await keeper.store.sessions("local"),
        "homes": [home.session for host in track.hosts.fleet.hosts for home in host.homes],
        "parts": dict(served.core._parts),
        "slots": served.core.registry.statistics()["slots"],
    }


NOTHING = {"ours": {}, "open": 0, "recorded": [], "homes": [], "parts": {}, "slots": 0}


async def test_one_that_finds_no_room(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path) as served:
        assert isinstance(served.core.track, ReplayTrack)
        fleet = served.core.track.hosts.fleet
        (host,) = fleet.hosts
        fleet.drain(host.name, True)
        for _ in range(3):
            reply = await served.see(0, headers={"x-session-id": "cam"})
            assert reply.status_code == 503 and reply.headers["retry-after"]
        assert await left_of(served) == NOTHING
        fleet.drain(host.name, False)
        assert (await served.see(0, headers={"x-session-id": "cam"})).status_code == 200


async def test_one_that_goes_on_and_finds_no_room_now_is_as_it_was(tmp_path: Path) -> None:
    async with FakeEngine() as engine:
        async with Served(engine, tmp_path, decision={"gate": False}) as served:
            first = await served.see(0, headers={"x-session-id": "cam"})
        async with Served(engine, tmp_path, decision={"gate": False}) as served:
            assert isinstance(served.core.track, ReplayTrack)
            fleet = served.core.track.hosts.fleet
            (host,) = fleet.hosts
            fleet.drain(host.name, True)
            assert (await served.see(1, headers={"x-session-id": "cam"})).status_code == 503
            left = await left_of(served)
            assert left | {"recorded": []} == NOTHING
            fleet.drain(host.name, False)
            again = await served.see(1, headers={"x-session-id": "cam"})
    names = {reply.json()["interaction"]["server_session_id"] for reply in (first, again)}
    assert len(names) == 1


@pytest.mark.parametrize("slow", [(Store, "create"), (Store, "session"), (DurableSession, "keep_pack")])
async def test_one_that_is_given_up_while_the_store_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: tuple[type, str]
) -> None:
    """What the store does then is done all the same, and is undone once it is."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    real = getattr(*slow)

    async def slowly(*args: object, **kwargs: object) -> object:
        begun.set()
        await go_on.wait()
        return await real(*args, **kwargs)

    async with FakeEngine() as engine, Served(engine, tmp_path) as served:
        monkeypatch.setattr(*slow, slowly)
        opening = asyncio.create_task(served.core.open_session(served.core.defaults))
        await begun.wait()
        opening.cancel()
        await asyncio.wait({opening}, timeout=0.1)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await eventually(lambda: served.core.registry.statistics()["slots"] == 0)
        assert await left_of(served) == NOTHING


async def test_one_whose_store_fails_half_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise StoreError("the store did not do it")

    async with FakeEngine() as engine, Served(engine, tmp_path) as served:
        monkeypatch.setattr(DurableSession, "keep_pack", fails)
        assert (await served.see(0)).status_code == 503
        assert await left_of(served) == NOTHING


async def test_one_whose_backend_can_not_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no backend")

    async with FakeEngine() as engine, Served(engine, tmp_path) as served:
        monkeypatch.setattr("orchestrator.replay_track.ReplayBackend", fails)
        assert (await served.see(0)).status_code == 500
        assert await left_of(served) == NOTHING
