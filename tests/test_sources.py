"""Sources: the service reads a file or a stream into a session by itself."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from orchestrator.source_rules import SourceRules
from orchestrator.wire.errors import Forbidden, InvalidRequest
from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.clips import make_clip
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

URL = "/v1/sessions/cam/sources"


def says(seen: Seen) -> str:
    return f"<response> Seen {len(seen.images)}."


def settings(folder: Path) -> dict[str, Any]:
    return {"decision": {"gate": False}, "sources": {"folder": folder}}


async def test_a_file_is_shown_to_a_session_at_its_own_speed(tmp_path: Path) -> None:
    """The session begins with it; its frames go on from the newest one, and HTTP and sockets see it."""
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 1200, 100))
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        await served.see(7)
        added = await served.client.post(URL, json={"source": "clip.mp4"})
        assert added.status_code == 201, added.text
        source = added.json()
        assert source["object"] == "session.source" and source["source"] == "clip.mp4"
        refused = await served.client.post(URL, json={"source": "clip.mp4"})
        assert (refused.status_code, error(refused)["code"]) == (400, "unsupported_cameras")
        (session,) = served.core.registry.sessions()
        await eventually(lambda: served.core.sources.of(session)[0]["state"] == "ended")
        (told,) = (await served.client.get(URL)).json()["data"]
        assert told["frames"] == 2 and told["dropped"] == 0 and told["error"] is None
        await eventually(lambda: served.core.memory_of(session.id).frames == 3)
        assert served.core.memory_of(session.id).media_time_ms == 9000
        again = await served.client.post(URL, json={"source": "clip.mp4"})
        assert again.status_code == 201
        removed = await served.client.delete(f"{URL}/{again.json()['id']}")
        assert removed.json()["deleted"] is True
        assert len((await served.client.get(URL)).json()["data"]) == 1
        gone = await served.client.delete(f"{URL}/{again.json()['id']}")
        assert (gone.status_code, error(gone)["code"]) == (404, "unknown_source")


async def test_a_source_plays_beside_a_socket_and_ends_with_its_session(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 9000, 500))
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        async with Talker(served.url, opening={"include": ["vigil.tick"]}) as t:
            added = await served.client.post(
                f"/v1/sessions/{t.session_id}/sources", json={"source": "clip.mp4"}
            )
            assert added.status_code == 201
            tick = await t.until("vigil.tick")
            assert tick["frames"] == 1
            await t.send("session.close")
            await t.closed()
        await eventually(lambda: not served.core.sources._rooms)


async def test_what_sources_counted_never_falls_while_they_are_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape that comes just then would take it for a process that was started anew."""
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 60_000, 100))
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        sources, told = served.core.sources, list[float]()

        def counted() -> float:
            return sources.readings()["source_frames_total"].value["shown"]  # type: ignore[index,return-value]

        stop = sources._stop

        async def slowly(readings: list[Any]) -> None:
            told.append(counted())
            await stop(readings)

        monkeypatch.setattr(sources, "_stop", slowly)
        assert (await served.client.post(URL, json={"source": "clip.mp4"})).status_code == 201
        (session,) = served.core.registry.sessions()
        await eventually(lambda: counted() >= 1)
        before = counted()
        assert (await served.client.delete(f"/v1/sessions/{session.id}")).status_code == 200
        await eventually(lambda: not sources._rooms and not sources._emptied)
        assert told and min(*told, counted()) >= before


async def test_a_source_is_charged_to_the_tenant_that_added_it(tmp_path: Path) -> None:
    """Without this a source would be a way around the quota of decisions."""
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 3200, 100))
    auth = {"required": False, "quota": {"ticks_per_minute": 1}}
    options = {**settings(tmp_path), "auth": auth}
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **options) as served:
        assert (await served.client.post(URL, json={"source": "clip.mp4"})).status_code == 201
        (session,) = served.core.registry.sessions()
        await eventually(lambda: served.core.sources.of(session)[0]["state"] == "ended")
        (told,) = served.core.sources.of(session)
        assert told["frames"] >= 1 and told["dropped"] >= 1 and told["error"] is None
        again = await served.client.post(URL, json={"source": "clip.mp4"})
        assert (again.status_code, error(again)["code"]) == (429, "tick_quota_exceeded")


async def test_a_source_that_delivers_nothing_is_refused_or_says_so(tmp_path: Path) -> None:
    (tmp_path / "broken.mp4").write_bytes(b"no video at all")
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        response = await served.client.post(URL, json={"source": "broken.mp4"})
        assert response.status_code == 400 and error(response)["param"] == "source"
        assert str(tmp_path) not in response.text and "broken.mp4" in response.text
        for body in ({}, {"source": ""}, {"source": 5}):
            response = await served.client.post(URL, json=body)
            assert (response.status_code, error(response)["param"]) == (400, "source")


async def test_a_source_that_cannot_be_had_leaves_no_session_that_was_opened_for_it(tmp_path: Path) -> None:
    """It would hold a place until it has been idle for long enough. One that was there before stays."""
    (tmp_path / "broken.mp4").write_bytes(b"no video at all")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        options = settings(tmp_path)
        options["sources"]["allow_hosts"] = ["127.0.0.1", f"127.0.0.1:{port}"]
        wanted = {
            f"rtsp://127.0.0.1:{port}/cam": "unreachable",
            f"http://127.0.0.1:{port}/cam.mjpg": "unreachable",
            "broken.mp4": "unreadable",
        }
        async with FakeEngine(says) as engine, Served(engine, tmp_path, **options) as served:
            for source, code in wanted.items():
                response = await served.client.post(URL, json={"source": source})
                assert (response.status_code, error(response)["code"]) == (400, code), source
                assert not served.core.registry.sessions(), source
                assert (await served.client.get("/v1/sessions")).json()["data"] == []
            await served.see(0)
            assert (await served.client.post(URL, json={"source": "broken.mp4"})).status_code == 400
            assert (await served.see(1)).json()["interaction"]["window_frames"] == 2


@pytest.mark.parametrize("wanted", ["../vigil.lock", "/etc/hostname", "none.mp4", "rtsp://elsewhere/1"])
async def test_only_what_is_allowed_is_opened(tmp_path: Path, wanted: str) -> None:
    (tmp_path / "videos").mkdir()
    async with (
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **settings(tmp_path / "videos")) as served,
    ):
        response = await served.client.post(URL, json={"source": wanted})
        assert (response.status_code, error(response)["code"]) == (403, "source_not_allowed")
        assert not served.core.registry.sessions(), "none begins with it"


def test_by_default_nothing_is_allowed() -> None:
    for wanted in ("clip.mp4", "rtsp://camera/1"):
        with pytest.raises(Forbidden):
            SourceRules().location(wanted)
    with pytest.raises(InvalidRequest):
        SourceRules(frozenset({"camera"})).location("concat://camera/1")
    assert SourceRules(frozenset({"camera"})).location("rtsp://me:secret@camera/1")
