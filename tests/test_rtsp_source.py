"""Sources from a real RTSP server: outages, true times, sound in step, refusals, nothing left behind."""

from __future__ import annotations

import asyncio
import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridges import media_video
from bridges.frames import FrameBounds
from bridges.media import MediaFrame, MediaOptions, MediaSound, open_media
from orchestrator.backends.ears import Ears
from orchestrator.session.commands import AppendInput
from orchestrator.session.units import FrameInput
from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.cameras import RtspCamera, descriptors, number_of, wedged
from tests.fakes.ears import LoudnessDetector, ScriptedTranscriber
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.serving import eventually

URL = "/v1/sessions/cam/sources"
BOUNDS = FrameBounds(32 * 32, 512 * 512, 16)
NEAR_MS = 130
"""A picture every 100 ms, and what a server's clock rounds."""


def says(seen: Seen) -> str:
    return f"<response> Seen {len(seen.images)}."


def settings(*hosts: str, **more: Any) -> dict[str, Any]:
    return {"decision": {"gate": False}, "sources": {"allow_hosts": hosts or ("127.0.0.1",), **more}}


def true(frames: list[tuple[int, int]]) -> None:
    """(media time, number) pairs rise, none twice, and time passes as the camera's numbers do."""
    numbers = [number for _, number in frames]
    assert numbers == sorted(set(numbers))
    zero = frames[0][0] - frames[0][1] * 100
    assert all(abs(time_ms - number * 100 - zero) <= NEAR_MS for time_ms, number in frames), frames


async def test_an_outage_leaves_a_gap_of_its_real_length_and_no_picture_twice() -> None:
    async with RtspCamera() as camera:
        source = open_media(camera.url, MediaOptions(BOUNDS, period_ms=100))
        frames: list[tuple[int, int]] = []
        connections: dict[object, list[tuple[int, int]]] = {}
        late: list[float] = []
        async for frame in source.play():
            frames.append((frame.media_time_ms, number_of(frame.data)))
            late.append(camera.age_ms - frames[-1][1] * 100)
            connection = connections.setdefault(source.statistics()["reconnects"], [])
            connection.append(frames[-1])
            if len(frames) == 12:
                await camera.kill()
                await camera.start()
            if len(connections) > 1 and len(connection) > 15:
                break
    steps = [after[1] - before[1] for before, after in itertools.pairwise(frames)]
    assert max(steps) >= 5, "there was no outage"
    # Across an outage the clock is that of arrival: what the way from the camera takes counts as well.
    zero = frames[0][0] - frames[0][1] * 100
    assert all(abs(time_ms - number * 100 - zero) <= 300 + max(late) for time_ms, number in frames), frames
    for pictures in connections.values():
        true(pictures)
    times = [time_ms for time_ms, _ in frames]
    assert times == sorted(set(times))


async def test_pictures_and_sound_of_one_moment_have_one_time() -> None:
    """Each tenth picture is white below and has a click beside it."""
    async with RtspCamera() as camera:
        source = open_media(camera.url, MediaOptions(BOUNDS, period_ms=100, sound_rate_hz=16000))
        flashes: list[int] = []
        loud: list[float] = []
        async for piece in source.feed():
            if isinstance(piece, MediaFrame):
                if number_of(piece.data) % 10 == 0:
                    flashes.append(piece.media_time_ms)
                if len(flashes) == 4:
                    break
            else:
                assert isinstance(piece, MediaSound)
                samples = np.abs(np.frombuffer(piece.pcm, "<f4"))
                places = np.flatnonzero(samples > 0.2)
                loud += [piece.media_time_ms + place / 16 for place in places]
    assert source.statistics()["sound"] == "playing"
    for flash in flashes[1:-1]:
        near = [time_ms for time_ms in loud if abs(time_ms - flash) < 400]
        assert near and abs(min(near) - flash) <= 60, (flash, min(near, default=None))


async def test_a_camera_in_a_session(tmp_path: Path) -> None:
    """True times reach the session; a model without ears sees the pictures alone, and the source says so."""
    async with (
        RtspCamera() as camera,
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **settings()) as served,
    ):
        added = await served.client.post(URL, json={"source": camera.url})
        assert added.status_code == 201, added.text
        (session,) = served.core.registry.sessions()
        shown: list[FrameInput] = []
        submit = session.submit

        async def watched(command: Any) -> None:
            assert isinstance(command, AppendInput)
            shown.extend(command.unit.frames)
            await submit(command)

        session.submit = watched  # type: ignore[method-assign]
        await eventually(lambda: len(shown) >= 4)
        told = (await served.client.get(f"{URL}/{added.json()['id']}")).json()
        assert told["state"] == "playing" and told["live"] and told["sound"] == "not_taken"
        assert told["frames"] >= 4 and told["lag_ms"] < 60_000 and told["media_time_ms"] >= 2500
        true([(frame.media_time_ms, number_of(frame.data)) for frame in shown])
        metrics = (await served.client.get("/metrics")).text
        assert 'vigil_sources{state="playing"} 1.0' in metrics
        assert (await served.client.delete("/v1/sessions/cam")).status_code == 200
        await eventually(lambda: not served.core.sources._rooms and not served.core.sources._leaving)


async def test_a_session_with_ears_gets_pictures_with_the_sound_of_their_time(tmp_path: Path) -> None:
    """A flash and its click ride the same unit, or the one beside it."""
    ears = Ears(LoudnessDetector, ScriptedTranscriber(*["hello"] * 9))
    async with (
        RtspCamera() as camera,
        FakeEngine(says) as engine,
        Served(engine, tmp_path, ears=ears, **settings()) as served,
    ):
        added = await served.client.post(URL, json={"source": camera.url})
        (session,) = served.core.registry.sessions()
        commands: list[AppendInput] = []
        submit = session.submit

        async def watched(command: Any) -> None:
            commands.append(command)
            await submit(command)

        session.submit = watched  # type: ignore[method-assign]
        await eventually(lambda: sum(len(command.unit.frames) for command in commands) >= 4)
        told = (await served.client.get(f"{URL}/{added.json()['id']}")).json()
        assert told["sound"] == "playing" and told["sound_ms"] >= 2000 and not told["sound_dropped"]
    spoken = [command for command in commands if command.unit.pcm]
    starts = [command.start_ms for command in spoken]
    assert starts == [starts[0] + 200 * place for place in range(len(starts))]
    assert all(command.unit.start_ms == command.start_ms for command in spoken)
    riding = [(command, frame) for command in spoken for frame in command.unit.frames]
    assert len(riding) >= 3
    true([(frame.media_time_ms, number_of(frame.data)) for _, frame in riding])
    # A machine that stands still holds up the one or the other; most of them tell.
    apart = sorted(abs(frame.media_time_ms - command.start_ms) for command, frame in riding)
    assert apart[len(apart) // 2] <= 200, apart
    # Clicks are where the numbers of the pictures say that they are.
    zero = riding[0][1].media_time_ms - 100 * number_of(riding[0][1].data)
    loud = [
        command.start_ms + place / 16
        for command in spoken
        for place in np.flatnonzero(np.abs(np.frombuffer(command.unit.pcm or b"", "<f4")) > 0.2)
    ]
    assert loud and all((time_ms - zero + 60) % 1000 <= 220 for time_ms in loud)


async def test_a_login_is_needed_and_never_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with (
        RtspCamera(login="me:s3cret") as camera,
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **settings()) as served,
    ):
        await served.see(0)  # a session that is there stays, and shows what became of the source

        async def ended(login: str, path: str = "cam") -> dict[str, Any]:
            url = f"rtsp://{login}127.0.0.1:{camera.port}/{path}?token=s3cret"
            added = await served.client.post(URL, json={"source": url})
            assert added.status_code == 201, added.text
            place = f"{URL}/{added.json()['id']}"
            (session,) = served.core.registry.sessions()
            await eventually(
                lambda: served.core.sources.of(session)[-1]["state"] in ("failed", "ended", "playing")
            )
            told: dict[str, Any] = (await served.client.get(place)).json()
            await served.client.delete(place)
            return told

        refused = await ended("me:s3cretx@")
        assert (refused["state"], refused["error"]) == ("failed", "login_refused")
        assert (await ended(""))["error"] == "login_refused"
        assert (await ended("me:s3cret@", "nowhere"))["error"] == "not_found"
        let_in = await ended("me:s3cret@")
        assert (let_in["state"], let_in["error"]) == ("playing", None)
        views = [refused, let_in, (await served.client.get("/v1/sessions/cam")).json()]
        views += [(await served.client.get("/metrics")).text]
    assert "s3cret" not in str(views) and "s3cret" not in caplog.text


async def test_a_server_that_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_video, "OPEN_S", 0.5)
    with wedged() as url:
        async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings()) as served:
            refused = await served.client.post(URL, json={"source": url})
            assert (refused.status_code, error(refused)["code"]) == (400, "unreachable")
            assert not served.core.registry.sessions()
            assert (await served.see(9)).status_code == 200
            assert (await served.client.post(URL, json={"source": url})).status_code == 201
            (session,) = served.core.registry.sessions()
            await eventually(lambda: served.core.sources.of(session)[0]["state"] == "failed")
            assert served.core.sources.of(session)[0]["error"] == "unreachable"
            # The session goes on.
            assert (await served.see(10)).status_code == 200


async def test_twenty_cameras_come_and_go_and_leave_nothing(tmp_path: Path) -> None:
    async with (
        RtspCamera() as camera,
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **settings()) as served,
    ):
        counts: list[tuple[int, int]] = []
        for cycle in range(21):
            added = (await served.client.post(URL, json={"source": camera.url})).json()
            if cycle % 5 == 0:
                await eventually(lambda: served.core.sources.readings()["sources"].value["playing"] == 1)  # type: ignore[index]
            assert (await served.client.delete(f"{URL}/{added['id']}")).status_code == 200
            await eventually(lambda: not served.core.sources._leaving)
            media = [thread for thread in threading.enumerate() if thread.name == "media"]
            assert not media
            counts.append((threading.active_count(), descriptors()))
        assert counts[-1][0] <= counts[5][0] + 12, counts  # the pool of the event loop grows to its bound
        assert counts[-1][1] <= counts[5][1] + 3, counts


async def test_drain_stops_sources_and_admits_none(tmp_path: Path) -> None:
    async with (
        RtspCamera() as camera,
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **settings()) as served,
    ):
        assert (await served.client.post(URL, json={"source": camera.url})).status_code == 201
        (session,) = served.core.registry.sessions()
        await served.core.sources.aclose()
        assert served.core.sources.of(session)[0]["state"] == "ended"
        refused = await served.client.post(URL, json={"source": camera.url})
        assert (refused.status_code, error(refused)["code"]) == (503, "draining")


async def test_sources_are_limited_and_two_requests_at_once_do_not_both_pass(tmp_path: Path) -> None:
    async with (
        RtspCamera() as camera,
        FakeEngine(says) as engine,
        Served(engine, tmp_path, **settings(per_tenant=1)) as served,
    ):
        body = {"source": camera.url}
        both = await asyncio.gather(*(served.client.post(URL, json=body) for _ in range(2)))
        assert sorted(answer.status_code for answer in both) == [201, 400]
        other = await served.client.post("/v1/sessions/other/sources", json=body)
        assert (other.status_code, error(other)["code"]) == (429, "source_limit_reached")
