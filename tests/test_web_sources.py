"""Files and cameras over HTTP, read into a session by the service: only from where it may be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.clips import make_clip
from tests.fakes.engine import FakeEngine, Seen
from tests.fakes.pictures import jpeg
from tests.fakes.web import Web
from tests.realtime.serving import eventually

URL = "/v1/sessions/cam/sources"


def says(seen: Seen) -> str:
    return f"<response> Seen {len(seen.images)}."


def allowing(*sites: Web) -> dict[str, Any]:
    return {
        "decision": {"gate": False},
        "sources": {"allow_hosts": tuple(f"127.0.0.1:{site.port}" for site in sites)},
    }


async def test_a_file_is_shown_to_its_end(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 2200, 100))
    async with Web() as site, FakeEngine(says) as engine:
        site.files["/clip.mp4"] = (tmp_path / "clip.mp4").read_bytes()
        site.redirects["/moved.mp4"] = "/clip.mp4"
        async with Served(engine, tmp_path, **allowing(site)) as served:
            for path in ("/clip.mp4?token=s3cret", "/moved.mp4"):
                added = await served.client.post(URL, json={"source": site.url + path})
                assert added.status_code == 201, added.text
                (session,) = served.core.registry.sessions()
                sources = served.core.sources
                await eventually(lambda: sources.of(session)[-1]["state"] == "ended")  # noqa: B023
                told = sources.of(session)[-1]
                assert told["frames"] == 3 and not told["live"] and told["error"] is None
                assert "s3cret" not in str(told)


async def test_a_camera_breaks_and_comes_back(tmp_path: Path) -> None:
    async with Web() as site, FakeEngine(says) as engine:
        site.live = [jpeg(number, 64, 64) for number in range(50)]
        site.break_live_after = 25
        async with Served(engine, tmp_path, **allowing(site)) as served:
            added = await served.client.post(URL, json={"source": f"{site.url}/live"})
            assert added.status_code == 201 and added.json()["live"], added.text
            place = f"{URL}/{added.json()['id']}"

            async def back() -> dict[str, Any]:
                while True:
                    told: dict[str, Any] = (await served.client.get(place)).json()
                    if told["reconnects"] and told["state"] == "playing":
                        return told

            told = await back()
            assert told["frames"] >= 2 and told["media_time_ms"] >= 1000
            assert (await served.client.delete(place)).status_code == 200


async def test_nothing_is_asked_that_is_not_listed(tmp_path: Path) -> None:
    """Directly, by another port of a listed host, or by way of one that may be asked."""
    make_clip(tmp_path / "clip.mp4")
    async with Web() as site, Web() as inner, FakeEngine(says) as engine:
        inner.files["/clip.mp4"] = (tmp_path / "clip.mp4").read_bytes()
        site.redirects["/away"] = f"{inner.url}/clip.mp4"
        site.redirects["/metadata"] = "http://169.254.169.254/latest"
        async with Served(engine, tmp_path, **allowing(site)) as served:
            for wanted in (
                f"{inner.url}/clip.mp4",
                "http://127.0.0.1/clip.mp4",
                f"{site.url}/away",
                f"{site.url}/metadata",
            ):
                refused = await served.client.post(URL, json={"source": wanted})
                assert (refused.status_code, error(refused)["code"]) == (403, "source_not_allowed"), wanted
        assert not inner.asked
