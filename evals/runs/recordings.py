"""What a clip plays to a model that listens: its sound, its questions as they are spoken, its pictures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from bridges.frames import FrameBounds
from bridges.media import MediaError
from evals.readers.clip import Clip
from evals.replay.drive import Sampling
from evals.replay.options import ReplayError
from evals.runs.sources import NO_VIDEO, SceneFrames
from orchestrator.exits import Exit
from orchestrator.offline.files import Film, film_of, laid
from orchestrator.offline.timeline import FRAME_MS, Recording, resampled
from orchestrator.wire.audio import Samples

_SCENE = Sampling(FRAME_MS, FrameBounds(28 * 28, 448 * 448))
"""A scene that is no file is drawn as large as ``vigil eval scenes --video`` writes it."""


def sounds_of(clip: Clip) -> list[str]:
    """The files of sound that a clip names, each once."""
    named = [clip.audio, *(q.audio for q in clip.queries), *(s.audio for s in clip.speech)]
    return list(dict.fromkeys(name for name in named if name))


def unspoken(clip: Clip) -> list[str]:
    """The questions of a clip that nobody speaks: a model that listens would never hear of them."""
    said = {speech.text.strip() for speech in clip.speech}
    return [query.id for query in clip.queries if query.audio is None and query.text.strip() not in said]


@dataclass(frozen=True, slots=True)
class Heard:
    """When the words of a question are heard, in seconds of the recording."""

    query: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class ClipRecording:
    """What a clip plays. ``asked``: its questions that are files of their own, in order."""

    recording: Recording
    asked: tuple[Heard, ...]


async def clip_recording(
    clip: Clip,
    video: Path | None,
    sounds: Mapping[str, Path],
    rate_hz: int,
    questions: Mapping[str, Recording],
) -> ClipRecording:
    """All of it on one clock. The words of a question end as it counts as asked, or as soon after as there is
    room for them. Silence follows where the clip is longer than its sound.

    :param video: its file; ``None``: it has none, and is drawn, or heard alone
    :param sounds: files by the names that the clip gives
    :param questions: by query, those that a data set only writes; see ``unspoken``
    :raises ReplayError: a file is missing or can't be read, or a question is still being asked when its last
        answer was due
    """
    film = await _film(clip, video, rate_hz)
    tracks: list[tuple[int, Samples]] = [] if film.sound is None else [(0, film.sound)]
    if clip.audio is not None:
        tracks.append((0, await _sound(clip.audio, sounds, rate_hz)))
    for speech in clip.speech:
        if speech.audio is not None:
            tracks.append((round(speech.start_s * rate_hz), await _sound(speech.audio, sounds, rate_hz)))
    asked: list[Heard] = []
    free = 0
    for query in sorted(clip.queries, key=lambda one: one.at_s):
        if query.audio is not None:
            words = await _sound(query.audio, sounds, rate_hz)
        elif (spoken := questions.get(query.id)) is not None:
            words = resampled(spoken, rate_hz)
        else:
            continue  # it is in the sound already
        start = max(round(query.at_s * rate_hz) - words.size, free)
        tracks.append((start, words))
        free = start + words.size
        asked.append(Heard(query.id, round(start / rate_hz, 3), round(free / rate_hz, 3)))
        _in_time(clip, asked[-1])
    heard = laid(tracks)
    # Whatever a data set says of its length: nothing comes after what there is of it.
    there_s = max(heard.size / rate_hz, len(film.pictures) * FRAME_MS / 1000)
    length_s = min(clip.duration_s or there_s, there_s)
    samples = np.zeros(round(length_s * rate_hz), np.float32)
    samples[: heard.size] = heard[: samples.size]
    if not samples.size:
        raise ReplayError(Exit.NO_SOURCE, "empty", "there is nothing in it to be heard or seen")
    return ClipRecording(Recording(clip.id, samples, rate_hz, film.pictures), tuple(asked))


def _in_time(clip: Clip, asked: Heard) -> None:
    """Raises ``ReplayError``."""
    due = max((slot.end_s for slot in clip.slots_of(asked.query)), default=None)
    if due is not None and asked.end_s >= due:
        raise ReplayError(
            Exit.NO_SOURCE,
            "no_time",
            f"its question {asked.query} takes until {asked.end_s:.1f} s to be asked aloud,"
            f" and its last answer is due by {due:.1f} s",
        )


async def _film(clip: Clip, video: Path | None, rate_hz: int) -> Film:
    if video is not None:
        try:
            # A sound that is a file of its own takes the place of the video's.
            return await film_of(str(video), clip.duration_s, None if clip.audio else rate_hz)
        except MediaError as error:
            raise ReplayError(Exit.NO_VIDEO, error.code, error.message) from error
    if clip.video is not None and clip.scene is None:
        raise ReplayError(Exit.NO_SOURCE, "no_video", NO_VIDEO.format(clip.video))
    if clip.scene is None:
        return Film((), None)
    try:
        drawn = SceneFrames(clip.id, clip.scene)
    except ValueError as wrong:
        raise ReplayError(Exit.NO_SOURCE, "bad_scene", str(wrong)) from wrong
    return Film(tuple([frame.data async for frame in drawn.frames(_SCENE)]), None)


async def _sound(name: str, sounds: Mapping[str, Path], rate_hz: int) -> Samples:
    path = sounds.get(name)
    if path is None:
        raise ReplayError(Exit.NO_SOURCE, "no_sound", f"the sound {name} was not found")
    try:
        return await asyncio.to_thread(read_sound, path, rate_hz)
    except (OSError, ValueError) as error:
        raise ReplayError(Exit.NO_SOURCE, "unreadable", f"the sound {name} can't be read: {error}") from error


def read_sound(path: Path, rate_hz: int) -> Samples:
    """The first track of a file, mono at that rate; shape ``(samples,)``. Blocks.

    :raises OSError, ValueError: there is no sound in it, or it can't be read
    """
    resampler = av.AudioResampler(format="flt", layout="mono", rate=rate_hz)
    pieces: list[Samples] = []
    with av.open(str(path)) as file:
        if not file.streams.audio:
            raise ValueError("there is no sound in it")
        for frame in file.decode(audio=0):
            pieces += [piece.to_ndarray()[0] for piece in resampler.resample(frame)]
        pieces += [piece.to_ndarray()[0] for piece in resampler.resample(None)]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
