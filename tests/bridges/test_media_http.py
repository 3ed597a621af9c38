"""Files and streams over HTTP: ranges, breaks, logins; every address is asked for, playlists lead nowhere."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
from pathlib import Path

import pytest

from bridges.frames import FrameBounds
from bridges.media import MediaError, MediaFrame, MediaOptions, MediaSource, open_media
from bridges.media_http import REDIRECTS, HttpBody
from tests.fakes.clips import make_clip, make_talking_clip
from tests.fakes.pictures import jpeg
from tests.fakes.web import Web

BOUNDS = FrameBounds(32 * 32, 512 * 512, 16)
OPTIONS = MediaOptions(BOUNDS, period_ms=100, sound_rate_hz=16000)
DATA = random.Random(1).randbytes(900_000)


async def body(site: Web, path: str = "/data") -> HttpBody:
    return await asyncio.to_thread(HttpBody, site.url + path, str, wait_s=5.0)


def whole(file: HttpBody) -> bytes:
    parts = []
    while part := file.read(70_000):
        parts.append(part)
    return b"".join(parts)


async def opened(url: str, placed: list[str] | None = None) -> MediaSource:
    def place(url: str) -> str:
        if placed is not None:
            placed.append(url)
        if "//elsewhere" in url:
            raise MediaError("source_not_allowed", "it is not listed")
        return url

    return await asyncio.to_thread(open_media, url, OPTIONS, place)


async def refused(url: str) -> MediaError:
    with pytest.raises(MediaError) as error:
        await opened(url)
    return error.value


@pytest.mark.parametrize("ranges", [True, False])
async def test_a_body_is_read_to_its_end(ranges: bool) -> None:
    async with Web(ranges=ranges) as site:
        site.files["/data"] = DATA
        file = await body(site)
        assert file.size == len(DATA) and file.seekable() is ranges and not file.endless
        assert await asyncio.to_thread(whole, file) == DATA
        assert len(site.asked) == 1 and file.read(10) == b""
        file.close()


async def test_a_file_that_knows_ranges_is_read_from_anywhere() -> None:
    def anywhere(file: HttpBody) -> None:
        chance = random.Random(2)
        for _ in range(40):
            start = chance.randrange(len(DATA))
            assert file.seek(start) == start == file.tell()
            got = file.read(1000)
            assert got and got == DATA[start : start + len(got)]
        assert file.seek(-10, os.SEEK_END) == len(DATA) - 10
        assert whole(file) == DATA[-10:]
        file.seek(100)
        assert file.read(5) == DATA[100:105] and file.seek(5, os.SEEK_CUR) == 110
        file.close()

    async with Web() as site:
        site.files["/data"] = DATA
        await asyncio.to_thread(anywhere, await body(site))
        assert len(site.asked) < 45


async def test_what_breaks_off_ends_there() -> None:
    async with Web() as site:
        site.files["/data"] = DATA
        site.break_after = 100_000
        file = await body(site)
        got = await asyncio.to_thread(whole, file)
        assert got and DATA.startswith(got) and len(got) <= 100_000
        file.close()


async def test_a_login_goes_with_the_address_and_to_nobody_else() -> None:
    async with Web() as site, Web() as other:
        site.files["/data"] = other.files["/data"] = DATA
        site.login = "Basic bWU6czNjcmV0"
        url = site.url.replace("//", "//me:s3cret@") + "/data"
        file = await asyncio.to_thread(HttpBody, url, str, wait_s=5.0)
        assert file.size == len(DATA)
        file.close()
        other.login = "none at all"
        site.redirects["/data"] = f"{other.url}/data"
        assert (await refused(url)).code == "login_refused"
        told = await refused(url.replace("s3cret", "wr0ng"))
        assert told.code == "login_refused" and "wr0ng" not in told.message


async def test_a_clip_plays_at_its_own_times_with_its_sound(tmp_path: Path) -> None:
    clip = make_talking_clip(tmp_path / "clip.webm", seconds=2).read_bytes()
    async with Web() as site:
        site.files["/clip.webm"] = clip
        source = await opened(f"{site.url}/clip.webm?token=s3cret")
        assert source.info.kind == "video" and "s3cret" not in source.info.name
        pieces = [piece async for piece in source.feed()]
        frames = [piece for piece in pieces if isinstance(piece, MediaFrame)]
        assert [frame.media_time_ms for frame in frames] == list(range(0, 2000, 100))
        assert not any("s3cret" in frame.name for frame in frames)
        assert len(pieces) > len(frames) and source.statistics()["sound"] == "playing"


async def test_an_index_at_the_end_is_read_first(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4")
    async with Web() as site:
        site.files["/clip.mp4"] = (tmp_path / "clip.mp4").read_bytes()
        source = await opened(f"{site.url}/clip.mp4")
        assert len([frame async for frame in source.play()]) == 30


async def test_a_camera_without_end_is_live_and_connected_again() -> None:
    async with Web() as site:
        site.live = [jpeg(number, 64, 64) for number in range(50)]
        site.break_live_after = 20
        placed: list[str] = []
        source = await opened(f"{site.url}/live", placed)
        assert source.info.kind == "live"
        frames = []
        async for frame in source.play():
            frames.append(frame.media_time_ms)
            if len(frames) >= 6 and source.statistics()["reconnects"]:
                break
        assert frames == sorted(set(frames))
        steps = [after - before for before, after in itertools.pairwise(frames)]
        assert 80 <= sorted(steps)[len(steps) // 2] <= 250, "times are those of their coming"
        assert len(placed) >= 3, "each connection asks anew"


async def test_redirects_are_asked_for_and_do_not_go_on_for_ever(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4")
    async with Web() as site:
        site.files["/clip.mp4"] = (tmp_path / "clip.mp4").read_bytes()
        site.redirects |= {
            "/moved": "/clip.mp4",
            "/round": "/round",
            "/away": "http://elsewhere/clip.mp4",
            "/file": "file:///etc/passwd",
        }
        placed: list[str] = []
        source = await opened(f"{site.url}/moved", placed)
        assert len([frame async for frame in source.play()]) == 30
        assert f"{site.url}/clip.mp4" in placed
        assert (await refused(f"{site.url}/away")).code == "source_not_allowed"
        assert (await refused(f"{site.url}/file")).code == "unsupported"
        before = len(site.asked)
        assert (await refused(f"{site.url}/round")).code == "unreachable"
        assert len(site.asked) == before + REDIRECTS + 1


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{target}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{target}'\n",
    ],
)
async def test_a_playlist_leads_nowhere(tmp_path: Path, playlist: str) -> None:
    make_clip(tmp_path / "clip.mp4")
    async with Web() as site, Web() as inner:
        inner.files["/secret.ts"] = (tmp_path / "clip.mp4").read_bytes()
        for target in (f"{inner.url}/secret.ts", f"file://{tmp_path}/clip.mp4", "/secret.ts"):
            site.files["/list.m3u8"] = playlist.format(target=target).encode()
            assert (await refused(f"{site.url}/list.m3u8")).code in ("unreadable", "unsupported", "no_video")
        assert not inner.asked and {path for path, _, _ in site.asked} == {"/list.m3u8"}


async def test_what_is_not_there_is_told_by_code() -> None:
    async with Web() as site:
        site.files["/noise"] = DATA
        assert (await refused(f"{site.url}/none.mp4")).code == "not_found"
        assert (await refused(f"{site.url}/noise")).code == "unreadable"
        port = site.port
    assert (await refused(f"http://127.0.0.1:{port}/clip.mp4")).code == "unreachable"
