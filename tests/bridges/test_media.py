"""Media sources: true times, upright pictures, damage survived, typed errors."""

from __future__ import annotations

import asyncio
import io
import threading
from collections.abc import Iterator
from contextlib import aclosing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bridges.frames import FrameBounds, check_frame
from bridges.media import (
    MediaError,
    MediaFrame,
    MediaInfo,
    MediaOptions,
    MediaSource,
    MediaStatistics,
    open_media,
)
from bridges.media_types import Sampler
from tests.fakes.clips import corners, gray, make_clip, make_sound, sample_clip
from tests.fakes.pictures import jpeg, png

BOUNDS = FrameBounds(min_pixels=32 * 32, max_pixels=256 * 256, multiple=16)


def options(**more: Any) -> MediaOptions:
    return MediaOptions(**{"bounds": BOUNDS, **more})


async def played(location: Path | str, **more: Any) -> tuple[list[MediaFrame], dict[str, Any]]:
    source = open_media(str(location), options(**more))
    frames = [frame async for frame in source.play()]
    return frames, source.statistics()


def code(location: Path | str, **more: Any) -> str:
    with pytest.raises(MediaError) as caught:
        open_media(str(location), options(**more))
    return caught.value.code


def times(frames: list[MediaFrame]) -> list[int]:
    return [frame.media_time_ms for frame in frames]


def picture(frame: MediaFrame) -> np.ndarray[Any, Any]:
    image = Image.open(io.BytesIO(frame.data))
    assert image.size == (frame.width, frame.height)
    return np.asarray(image.convert("L"))


def number(frame: MediaFrame, step: int = 8) -> int:
    """Which picture of :func:`gray` this is."""
    return round((float(picture(frame).mean()) - 16) / step)


# --- sampling -----------------------------------------------------------------------------------------


async def test_one_picture_a_period(tmp_path: Path) -> None:
    frames, statistics = await played(make_clip(tmp_path / "a.mp4"))
    assert times(frames) == [0, 1000, 2000]
    assert [number(frame) for frame in frames] == [0, 10, 20]
    assert (statistics["decoded"], statistics["delivered"], statistics["warnings"]) == (30, 3, [])
    for frame in frames:
        assert check_frame(frame.data, BOUNDS).passed_through


async def test_frames_of_a_tick_are_spread_evenly(tmp_path: Path) -> None:
    frames, _ = await played(make_clip(tmp_path / "a.mp4"), frames_per_tick=2)
    assert times(frames) == [0, 500, 1000, 1500, 2000, 2500]
    frames, _ = await played(tmp_path / "a.mp4", frames_per_tick=3)
    assert times(frames) == [0, 400, 700, 1000, 1400, 1700, 2000, 2400, 2700]


async def test_variable_frame_rate_keeps_true_times(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "v.mkv", times_ms=[0, 40, 990, 1010, 1020, 3500, 3600, 4000])
    frames, _ = await played(clip)
    assert times(frames) == [0, 1010, 3500, 4000]
    assert [number(frame) for frame in frames] == [0, 3, 5, 7]


@pytest.mark.parametrize(("suffix", "start"), [("mp4", 5000), ("mkv", -700), ("ts", 5000)])
async def test_times_start_at_the_first_picture(tmp_path: Path, suffix: str, start: int) -> None:
    clip = make_clip(
        tmp_path / f"o.{suffix}",
        times_ms=[start + time for time in range(0, 2500, 100)],
        container_options={"avoid_negative_ts": "disabled"},
        codec="libx264" if suffix == "ts" else "mpeg4",
    )
    frames, _ = await played(clip)
    assert times(frames) == [0, 1000, 2000]
    assert [number(frame) for frame in frames] == [0, 10, 20]


async def test_loop_and_limit(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "a.mp4")
    frames, _ = await played(clip, loop=3)
    assert times(frames) == [second * 1000 for second in range(9)]
    assert [number(frame) for frame in frames] == [0, 10, 20] * 3
    assert open_media(str(clip), options(loop=3)).info == MediaInfo("video", str(clip), 9000)
    frames, _ = await played(clip, loop=3, max_duration_ms=4000)
    assert times(frames) == [0, 1000, 2000, 3000]


@given(
    st.lists(st.integers(0, 700), min_size=1, max_size=60),
    st.integers(1, 1500),
    st.integers(1, 5),
    st.integers(0, 3000),
)
def test_a_sampler_with_its_grid_elsewhere(gaps: list[int], period: int, per_tick: int, offset: int) -> None:
    """The first picture, and then as if the stream had begun where the grid does."""
    sampler, plain = Sampler(period, per_tick), Sampler(period, per_tick)
    sampler.shift(offset)
    assert sampler.wants(0)
    time_ms = 0
    for gap in gaps:
        time_ms += gap
        if 0 < time_ms < offset:
            assert not sampler.wants(time_ms)
        elif time_ms >= offset > 0:
            assert sampler.wants(time_ms) == plain.wants(time_ms - offset)


@given(st.lists(st.integers(0, 700), min_size=1, max_size=60), st.integers(1, 1500), st.integers(1, 5))
def test_sampler(gaps: list[int], period: int, per_tick: int) -> None:
    """At most one sample for each place on the grid, each the first picture at or after its place."""
    sampler = Sampler(period, per_tick)
    time_ms, sampled, all_times = 0, [], []
    for gap in [0, *gaps]:
        time_ms += gap
        all_times.append(time_ms)
        if sampler.wants(time_ms):
            sampled.append(time_ms)
    places = [time * per_tick // period for time in sampled]
    assert places == sorted(set(places))
    for place, time in zip(places, sampled, strict=True):
        assert time == min(one for one in all_times if one * per_tick >= place * period)
    assert {time * per_tick // period for time in all_times} == set(places)


# --- pictures -----------------------------------------------------------------------------------------


def bright_corner(frame: MediaFrame) -> str:
    pixels = picture(frame)
    height, width = pixels.shape
    quarters = {
        "upper left": pixels[: height // 2, : width // 2],
        "upper right": pixels[: height // 2, width // 2 :],
        "lower left": pixels[height // 2 :, : width // 2],
        "lower right": pixels[height // 2 :, width // 2 :],
    }
    return max(quarters, key=lambda name: float(quarters[name].mean()))


@pytest.mark.parametrize(
    ("rotation", "hflip", "corner", "size"),
    [
        (0, False, "upper left", (96, 64)),
        (90, False, "lower left", (64, 96)),
        (-90, False, "upper right", (64, 96)),
        (180, False, "lower right", (96, 64)),
        (0, True, "upper right", (96, 64)),
        (90, True, "lower right", (64, 96)),
    ],
)
async def test_turned_by_the_display_matrix(
    tmp_path: Path, rotation: int, hflip: bool, corner: str, size: tuple[int, int]
) -> None:
    """Counter-clockwise degrees, then mirrored: as players show it."""
    clip = make_clip(tmp_path / "r.mp4", corners(), rotation=rotation, hflip=hflip, times_ms=[0, 100])
    frames, _ = await played(clip)
    assert bright_corner(frames[0]) == corner
    assert (frames[0].width, frames[0].height) == size


async def test_bounded_with_its_shape_kept(tmp_path: Path) -> None:
    frames, _ = await played(make_clip(tmp_path / "l.mp4", gray(640, 360), times_ms=[0]))
    assert (frames[0].width, frames[0].height) == (336, 192)
    frames, _ = await played(make_clip(tmp_path / "s.mp4", gray(64, 64), times_ms=[0], aspect=Fraction(2, 1)))
    assert (frames[0].width, frames[0].height) == (128, 64)


# --- damage and errors --------------------------------------------------------------------------------


async def test_a_truncated_file_plays_to_its_end(tmp_path: Path) -> None:
    whole = make_clip(
        tmp_path / "w.mp4", gray(step=4), times_ms=range(0, 6000, 100),
        container_options={"movflags": "faststart"},
    )  # fmt: skip
    data = whole.read_bytes()
    (tmp_path / "cut.mp4").write_bytes(data[: int(len(data) * 0.7)])
    frames, statistics = await played(tmp_path / "cut.mp4")
    assert 2 <= len(frames) < 6
    assert times(frames) == [second * 1000 for second in range(len(frames))]
    assert statistics["warnings"]


async def test_a_damaged_file_plays_what_decodes(tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "d.ts", gray(160, 96, 2), times_ms=range(0, 6000, 100), codec="libx264")
    data = bytearray(clip.read_bytes())
    random = np.random.default_rng(1)
    for place in random.integers(len(data) // 4, len(data) // 2, 60):
        data[place] ^= 0x5A
    clip.write_bytes(data)
    frames, statistics = await played(clip)
    assert len(frames) >= 3 and times(frames) == sorted(times(frames))
    assert statistics["corrupt"] or statistics["warnings"]


def test_typed_errors(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("not a video")
    (tmp_path / "headless.mp4").write_bytes(make_clip(tmp_path / "a.mp4").read_bytes()[:2000])
    (tmp_path / "empty").mkdir()
    assert code(tmp_path / "nothing.mp4") == "not_found"
    assert code(tmp_path / "empty") == "not_found"
    assert code(tmp_path / "f_%03d.jpg") == "not_found"
    assert code(tmp_path / "text.mp4") == "unreadable"
    assert code(tmp_path / "headless.mp4") == "unreadable"
    assert code(make_sound(tmp_path / "s.wav")) == "no_video"
    assert code("nosuch://host/x") == "unsupported"
    with pytest.raises(MediaError) as caught:
        open_media("http://user:secret@127.0.0.1:9/x.mp4", options())
    assert caught.value.code == "unreachable" and "secret" not in caught.value.message


async def test_nothing_decodes(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"junk")
    (tmp_path / "b.mp4").write_bytes(b"junk")
    with pytest.raises(MediaError) as caught:
        await played(tmp_path / "a.jpg")
    assert caught.value.code == "unreadable"
    (tmp_path / "c.mp4").write_bytes(b"junk")
    with pytest.raises(MediaError) as caught:
        await played(tmp_path)
    assert caught.value.code == "unreadable"


# --- folders and pictures -------------------------------------------------------------------------------


async def test_a_folder_of_videos_is_one_stream(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip10.mp4", times_ms=range(0, 1500, 100))
    make_clip(tmp_path / "clip9.mp4", times_ms=range(0, 2000, 100))
    (tmp_path / "clip9b.mp4").write_bytes(b"junk")
    (tmp_path / "notes.txt").write_text("x")
    frames, statistics = await played(tmp_path)
    assert [frame.name for frame in frames] == ["clip9.mp4", "clip9.mp4", "clip10.mp4", "clip10.mp4"]
    assert times(frames) == [0, 1000, 2000, 3000]
    assert statistics["skipped"] == 1 and "clip9b" in statistics["warnings"][0]


@pytest.mark.parametrize("location", ["", "/f%d.jpg", "/f*.jpg", "/f%02d.jpg"])
async def test_pictures_in_natural_order(tmp_path: Path, location: str) -> None:
    for index in (1, 2, 10):
        (tmp_path / f"f{index}.jpg").write_bytes(jpeg(index, 96, 96))
    (tmp_path / "f3.jpg").write_bytes(jpeg(3)[:50])
    frames, statistics = await played(str(tmp_path) + location, frames_per_tick=2)
    assert [frame.data for frame in frames] == [jpeg(index, 96, 96) for index in (1, 2, 10)]
    assert times(frames) == [0, 500, 1500]
    assert statistics["skipped"] == 1


async def test_one_picture_and_loops(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(1, 640, 480))
    frames, _ = await played(tmp_path / "a.png", loop=3)
    assert times(frames) == [0, 1000, 2000]
    assert (frames[0].width, frames[0].height) == (288, 224)
    assert open_media(str(tmp_path), options(loop=3, max_duration_ms=2000)).info.duration_ms == 2000


@pytest.mark.parametrize("name", ["bikes.mp4", "bigbuckbunny.mp4"])
async def test_real_clips(name: str) -> None:
    frames, statistics = await played(sample_clip(name))
    assert len(frames) >= 5 and statistics["corrupt"] == 0
    assert all(0 <= frame.media_time_ms - 1000 * tick < 50 for tick, frame in enumerate(frames))
    assert all(frame.width * frame.height <= BOUNDS.max_pixels for frame in frames)


# --- playing --------------------------------------------------------------------------------------------


class ScriptedReader:
    """Yields as many frames as it is told to, and notes how far it has got."""

    def __init__(self, kind: str, count: int) -> None:
        self.info = MediaInfo(kind, "scripted")
        self.made = 0
        self.count = count
        self.finished = threading.Event()

    def pieces(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaFrame]:
        try:
            while not stop.is_set() and self.made < self.count:
                self.made += 1
                yield MediaFrame(self.made, b"", 1, 1, "x")
        finally:
            self.finished.set()


async def test_a_file_waits_for_its_consumer_and_stops_with_it() -> None:
    reader = ScriptedReader("video", 1000)
    source = MediaSource(reader)
    async with aclosing(source.play()) as frames:
        async for frame in frames:
            assert reader.made <= frame.media_time_ms + 6
            if frame.media_time_ms == 50:
                break
    assert reader.finished.wait(10)
    assert reader.made < 60


async def test_a_live_stream_does_not_wait() -> None:
    """Contract: whoever is slow gets the newest sample; what nobody took is counted."""
    reader = ScriptedReader("live", 1000)
    source = MediaSource(reader)
    got = []
    async for frame in source.play():
        got.append(frame.media_time_ms)
        if len(got) == 1:
            assert await asyncio.to_thread(reader.finished.wait, 10)
    assert got[-1] == 1000 and got == sorted(got)
    assert source.statistics()["dropped"] == 1000 - len(got) > 900


async def test_a_surprise_in_the_decoder_is_a_typed_error() -> None:
    class Broken(ScriptedReader):
        def pieces(self, stop: threading.Event, statistics: MediaStatistics) -> Iterator[MediaFrame]:
            yield MediaFrame(0, b"", 1, 1, "x")
            raise KeyError("surprise")

    source = MediaSource(Broken("video", 1))
    with pytest.raises(MediaError):
        _ = [frame async for frame in source.play()]
    with pytest.raises(RuntimeError):
        await anext(source.play())
