"""What is played, and how what can't be played is told."""

from __future__ import annotations

import pytest
from PIL import Image

from evals.clips import clip
from evals.replay.options import ReplayError
from evals.replay.source import Video
from orchestrator.exits import Exit
from tests.evals.drives import SAMPLING


async def frames_of(video: Video) -> list[int]:
    return [frame.media_time_ms async for frame in video.frames(SAMPLING)]


async def test_a_real_clip_played_twice():
    video = Video(str(clip("bikes.mp4")), loop=2)
    expected = video.expected(SAMPLING)
    times = await frames_of(video)
    assert times == [1000 * n for n in range(20)]
    assert expected == 20
    assert video.info() == {
        "name": "bikes.mp4",
        "kind": "video",
        "duration_s": 20.0,
        "width": 640,
        "height": 272,
    }
    assert (video.live, video.dropped(), video.warnings()) == (False, 0, [])


def test_no_such_file():
    with pytest.raises(ReplayError, match=r"nothing\.mp4") as caught:
        Video("/no/such/nothing.mp4")
    assert caught.value.exit_code is Exit.NO_SOURCE


def test_no_video_in_it(tmp_path):
    text = tmp_path / "notes.mp4"
    text.write_text("this is no video")
    with pytest.raises(ReplayError) as caught:
        Video(str(text))
    assert caught.value.exit_code is Exit.NO_VIDEO


def test_an_empty_folder(tmp_path):
    with pytest.raises(ReplayError) as caught:
        Video(str(tmp_path))
    assert caught.value.exit_code is Exit.NO_SOURCE


async def test_a_folder_of_pictures(tmp_path):
    for n in range(3):
        Image.new("RGB", (64, 48), (n * 80, 0, 0)).save(tmp_path / f"{n}.png")
    assert await frames_of(Video(str(tmp_path))) == [0, 1000, 2000]


async def test_a_stream_that_cannot_be_reached_hides_its_password():
    video = Video("rtsp://user:secret@127.0.0.1:9/cam")
    assert video.live
    assert "secret" not in str(video.info())
    with pytest.raises(ReplayError) as caught:
        await frames_of(video)
    assert caught.value.exit_code is Exit.NO_SOURCE
    assert "secret" not in caught.value.message


def test_a_live_stream_plays_once():
    with pytest.raises(ReplayError, match="--loop") as caught:
        Video("rtsp://127.0.0.1:9/cam", loop=2)
    assert caught.value.exit_code is Exit.USAGE
