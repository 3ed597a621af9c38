"""What a clip plays to a model that listens: everything on one clock, nothing of it lost or moved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals.readers.clip import Clip
from evals.replay.options import ReplayError
from evals.runs.recordings import ClipRecording, clip_recording, unspoken
from evals.scenes.datasets import Recipe
from orchestrator.offline.files import film_of, laid
from orchestrator.offline.timeline import Recording
from orchestrator.wire.audio import write_wav
from tests.fakes.clips import make_clip, make_talking_clip

RATE = 16000


def clip(**more: Any) -> Clip:
    return Clip.model_validate({"id": "one", "video": "one.mp4", "duration_s": 4, **more})


def beep(path: Path, seconds: float, level: float = 0.5) -> Path:
    path.write_bytes(write_wav(np.full(round(RATE * seconds), level, np.float32), RATE))
    return path


async def whole(
    one: Clip, video: Path | None, *sounds: Path, questions: Mapping[str, Recording] | None = None
) -> ClipRecording:
    return await clip_recording(one, video, {path.name: path for path in sounds}, RATE, questions or {})


async def recorded(one: Clip, video: Path | None = None, *sounds: Path) -> Recording:
    return (await whole(one, video, *sounds)).recording


def level(made: Recording, at_s: float) -> float:
    """Mean of a tenth of a second."""
    start = round(at_s * RATE)
    return float(np.abs(made.samples[start : start + RATE // 10]).mean())


async def test_a_questions_words_end_when_it_counts_as_asked_and_never_overlap(tmp_path: Path) -> None:
    words = beep(tmp_path / "words.wav", 1.0)
    asked = [
        {"id": "a", "at_s": 0, "text": "First?", "audio": "words.wav"},
        {"id": "b", "at_s": 1.5, "text": "Second?", "audio": "words.wav"},
        {"id": "c", "at_s": 3.5, "text": "Third?", "audio": "words.wav"},
    ]
    made = await recorded(
        clip(queries=asked), make_clip(tmp_path / "one.mp4", times_ms=range(0, 4000, 500)), words
    )
    assert made.samples.size == 4 * RATE
    assert [round(level(made, at), 2) for at in (0.0, 0.9, 1.0, 1.8, 2.1, 2.6, 3.3, 3.6)] == [
        *(0.5, 0.5, 0.5, 0.5, 0.0, 0.5, 0.5, 0.0)
    ]


async def test_a_question_that_is_spoken_for_the_run_is_told_with_its_times(tmp_path: Path) -> None:
    asked = [{"id": "a", "at_s": 2.5, "text": "First?"}, {"id": "b", "at_s": 2.9, "text": "Second?"}]
    slots = [{"id": "s", "query": "b", "kind": "answer", "start_s": 3.0, "end_s": 3.9}]
    video = make_clip(tmp_path / "one.mp4", times_ms=range(0, 4000, 500))
    words = {name: Recording(name, np.full(24000, 0.5, np.float32), 24000) for name in "ab"}
    made = await whole(clip(queries=asked, slots=slots), video, questions=words)
    assert [(one.query, one.start_s, one.end_s) for one in made.asked] == [("a", 1.5, 2.5), ("b", 2.5, 3.5)]
    assert [round(level(made.recording, at), 1) for at in (1.2, 1.7, 3.2, 3.6)] == [0.0, 0.5, 0.5, 0.0]
    longer = words | {"b": Recording("b", np.full(36000, 0.5, np.float32), 24000)}
    with pytest.raises(ReplayError, match=r"question b takes until 4\.0 s .* due by 3\.9 s"):
        await whole(clip(queries=asked, slots=slots), video, questions=longer)


async def test_a_videos_own_sound_is_heard_unless_a_file_takes_its_place(tmp_path: Path) -> None:
    video = make_talking_clip(tmp_path / "one.webm", seconds=4)
    other = beep(tmp_path / "other.wav", 1.0, 0.25)
    own = await recorded(clip(), video)
    assert level(own, 1.0) > 0.1 and level(own, 3.0) > 0.1 and len(own.pictures) == 4
    replaced = await recorded(clip(audio="other.wav"), video, other)
    assert level(replaced, 0.5) == pytest.approx(0.25, abs=0.01) and level(replaced, 3.0) == 0.0
    said = {"id": "s", "start_s": 3.0, "end_s": 4.0, "audio": "other.wav", "expects": "stop"}
    both = await recorded(clip(speech=[said]), video, other)
    assert level(both, 3.3) > level(own, 3.3) + 0.05


async def test_a_scene_without_a_file_is_drawn(tmp_path: Path) -> None:
    scene = next(Recipe("short", 9000, 1, 0.5, ("alert",), chunk_s=10.0).clips())
    assert unspoken(scene)
    silent = await recorded(scene)
    assert silent.samples.size == 30 * RATE and not silent.samples.any()
    assert len(silent.pictures) == 30 and len(set(silent.pictures)) > 1


async def test_a_picture_that_stands_still_is_shown_on_its_second(tmp_path: Path) -> None:
    """A camera gave nothing between the first and the fifth second: the fifth is not shown as the second."""
    sparse = make_clip(tmp_path / "one.mp4", times_ms=(0, 4000, 5000))
    film = await film_of(str(sparse))
    assert len(film.pictures) == 6
    assert len(set(film.pictures[:4])) == 1 and film.pictures[4] != film.pictures[3]
    assert len((await film_of(str(sparse), 2.0)).pictures) <= 3


def test_pieces_are_laid_where_they_belong() -> None:
    ones = np.ones(3, np.float32)
    assert laid([(-1, ones), (1, ones)]).tolist() == [1, 2, 1, 1]
    assert laid([(2, ones)]).tolist() == [0, 0, 1, 1, 1]
    assert laid([]).size == 0 and laid([(-5, ones)]).size == 0
