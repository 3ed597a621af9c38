"""The command writes what a run reads: clips, videos of the scene's own frames, questions that are spoken."""

from __future__ import annotations

import io
import shutil
import wave
from itertools import pairwise

import av
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from evals.command import app
from evals.readers import open_dataset
from evals.scenes.datasets import Recipe
from evals.scenes.files import Written, write
from evals.scenes.frames import scene_of
from evals.scenes.render import render
from evals.scenes.sheet import contact_sheet
from evals.scenes.video import write_video

needs_voice = pytest.mark.skipif(
    not (shutil.which("flite") or shutil.which("espeak-ng")), reason="no speech program: make system"
)
SHORT = Recipe("short", 3, 2, 0.5, ("alert", "count"), level="varied")


def run(*arguments):
    return CliRunner().invoke(app, ["scenes", *map(str, arguments)])


def test_a_data_set_is_written_and_read_again(tmp_path):
    out = tmp_path / "set"
    result = run(out, "--count", 3, "--minutes", 1, "--skills", "alert, count", "--seed", 5)
    assert result.exit_code == 0, result.output
    read = open_dataset(out)
    assert [clip.id for clip in read.clips] == [f"scene-plain-held_out-{seed}" for seed in (5, 6, 7)]
    assert "3 clips" in result.output and not read.missing
    refused = run(out, "--count", 3, "--minutes", 1)
    assert refused.exit_code == 2 and "already" in refused.output
    again = tmp_path / "again"
    run(again, "--count", 3, "--minutes", 1, "--skills", "alert,count", "--seed", 5)
    assert (again / "clips.jsonl").read_bytes() == (out / "clips.jsonl").read_bytes()


@pytest.mark.parametrize(
    "wrong", [("--skills", "juggle"), ("--minutes", "1"), ("--level", "easy"), ("--set", "x")]
)
def test_what_can_not_be_made_is_said(tmp_path, wrong):
    result = run(tmp_path / "set", *wrong)
    assert result.exit_code == 2
    assert not (tmp_path / "set" / "clips.jsonl").exists()


def test_a_video_has_the_cameras_frames_at_their_times(tmp_path):
    (clip, _) = write(tmp_path, [SHORT], Written((128, 96), speech=False))
    scene = scene_of(clip.scene)
    read = open_dataset(tmp_path)
    assert not read.missing
    with av.open(str(read.video(read.clips[0]))) as file:
        seen = [(frame.time, frame.to_ndarray(format="rgb24")) for frame in file.decode(video=0)]
    assert [at for at, _ in seen] == pytest.approx(scene.frame_times(), abs=1e-3)
    for at, picture in seen[::10]:
        assert np.abs(picture.astype(int) - render(scene, at, (128, 96))).mean() < 8


def test_an_odd_size_is_refused(tmp_path):
    take = next(SHORT.takes())
    with pytest.raises(ValueError):
        write_video(tmp_path / "x.mp4", take.scene, (127, 128))


@needs_voice
def test_each_question_is_spoken_and_ends_as_it_counts_as_asked(tmp_path):
    clips = write(tmp_path, [SHORT], Written(None, speech=True))
    assert not open_dataset(tmp_path).missing
    for clip in clips:
        with wave.open(str(tmp_path / clip.audio)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
            track = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
        assert len(track) == clip.duration_s * 16000
        assert [speech.text for speech in clip.speech] == [query.text for query in clip.queries]
        quiet = np.ones(len(track), bool)
        for query, speech in zip(clip.queries, clip.speech, strict=True):
            assert speech.end_s == pytest.approx(query.at_s, abs=0.01)
            start, end = round(speech.start_s * 16000), round(speech.end_s * 16000)
            quiet[start:end] = False
            assert np.abs(track[start:end]).max() > 2000
        assert 5 < track[quiet].std() < 30


@needs_voice
def test_answers_are_spoken_over_where_that_is_wanted(tmp_path):
    recipe = Recipe("asked", 3, 4, 1.0, ("count", "look"))
    clips = write(tmp_path, [recipe], Written(None, speech=True, over=True))
    over = [(clip, speech) for clip in clips for speech in clip.speech if speech.id.startswith("over-")]
    assert {speech.expects.value for _, speech in over} == {"stop", "go_on"}
    for clip, speech in over:
        asked = next(one for one in clip.speech if one.id == f"speech-{speech.id.removeprefix('over-')}")
        assert speech.start_s == pytest.approx(asked.end_s + 2.0, abs=0.01)
    for clip in clips:
        ends = [(one.start_s, one.end_s) for one in clip.speech]
        assert all(end <= start for (_, end), (start, _) in pairwise(ends)), "nobody speaks at one time"
    assert run(tmp_path / "x", "--barge-in").exit_code == 2


@needs_voice
def test_the_sound_of_a_video_is_in_it(tmp_path):
    (clip, _) = write(tmp_path, [SHORT], Written((64, 64), speech=True))
    assert clip.audio is None
    with av.open(str(tmp_path / clip.video)) as file:
        sound = np.concatenate([frame.to_ndarray()[0] for frame in file.decode(audio=0)])
    assert len(sound) / 16000 == pytest.approx(clip.duration_s, abs=0.1)
    spoken = clip.speech[0]
    inside = sound[round(spoken.start_s * 16000) : round(spoken.end_s * 16000)]
    assert np.abs(inside).max() > 0.05


def test_the_contact_sheet_is_a_small_picture():
    sheet = contact_sheet(columns=2)
    assert len(sheet) < 300_000
    assert Image.open(io.BytesIO(sheet)).size[0] > 400
