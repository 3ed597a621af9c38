"""Files of an offline run: recordings and clips read, and what came back written."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bridges.frames import FrameBounds
from bridges.media import MediaOptions, MediaSound, open_media
from orchestrator.files import write_whole
from orchestrator.offline.drive import Played
from orchestrator.offline.timeline import FRAME_MS, Recording
from orchestrator.wire.audio import Samples, read_wav, write_wav
from orchestrator.wire.errors import InvalidRequest

DECISIONS, TIMELINE = "decisions.jsonl", "input_timeline.json"
_BOUNDS = FrameBounds(28 * 28, 1920 * 1920)


class UnusableFile(Exception):
    """:param message: which file, and what is wrong with it"""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


async def recording_of(audio: Path, clip: str | None = None) -> Recording:
    """A WAV file, and one picture a second of a clip for as long as the sound lasts.

    :raises UnusableFile: the WAV file can't be read
    :raises bridges.media.MediaError: the clip can't be
    """
    samples, rate = await asyncio.to_thread(lambda: read_wav(_wav(audio)))
    if not samples.size:
        raise UnusableFile(f"{audio} holds no sound")
    pictures: tuple[bytes, ...] = ()
    if clip is not None:
        pictures = (await film_of(clip, samples.size / rate)).pictures
    return Recording(str(audio), samples, rate, pictures)


@dataclass(frozen=True, slots=True)
class Film:
    """What is to be seen and heard in a clip.

    :param pictures: encoded, one a second
    :param sound: mono, at the rate that was asked for, from the first picture on; ``None``: it has none
    """

    pictures: tuple[bytes, ...]
    sound: Samples | None


async def film_of(clip: str, most_s: float | None = None, sound_rate_hz: int | None = None) -> Film:
    """A clip, or so many seconds of it. ``sound_rate_hz``: ``None``: its sound is not wanted.

    :raises bridges.media.MediaError: it can't be read
    """
    most = None if most_s is None else math.ceil(most_s * 1000 / FRAME_MS) + 1
    pictures: list[bytes] = []
    sound: list[tuple[int, Samples]] = []
    options = MediaOptions(_BOUNDS, sound_rate_hz=sound_rate_hz)
    async with aclosing((await asyncio.to_thread(open_media, clip, options)).feed()) as pieces:
        async for piece in pieces:
            if isinstance(piece, MediaSound):
                start = piece.media_time_ms * piece.rate // 1000
                sound.append((start, np.frombuffer(piece.pcm, "<f4")))
                continue
            while pictures and len(pictures) < piece.media_time_ms // FRAME_MS:
                pictures.append(pictures[-1])  # a still picture is to be seen until the next one
            if most is not None and len(pictures) >= most:
                break
            pictures.append(piece.data)
    return Film(tuple(pictures[:most]), laid(sound) if sound else None)


def laid(pieces: Sequence[tuple[int, Samples]]) -> Samples:
    """One track of samples, each beginning at its place; where they meet they are added, and what lies before
    the beginning is cut off."""
    whole = np.zeros(max([0, *(start + samples.size for start, samples in pieces)]), np.float32)
    for start, samples in pieces:
        heard = samples[max(0, -start) :]
        whole[max(0, start) : max(0, start) + heard.size] += heard
    return whole


def data_url_of(audio: Path) -> str:
    """A WAV file as it is put into a session's ``ref_audio``. Raises ``UnusableFile``."""
    return "data:audio/wav;base64," + base64.b64encode(_wav(audio)).decode()


def written(out: Path) -> tuple[Path, Path, Path]:
    """The files that ``write`` writes."""
    return out, out.with_name(DECISIONS), out.with_name(TIMELINE)


def write(out: Path, played: Played) -> None:
    """``out`` (WAV), and beside it ``decisions.jsonl`` and ``input_timeline.json``. Raises ``OSError``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    sound, decisions, timeline = written(out)
    write_whole(sound, write_wav(played.heard, played.heard_rate_hz))
    write_whole(decisions, b"".join(orjson.dumps(row) + b"\n" for row in played.rows))
    write_whole(timeline, _pretty(played.timeline))


def _wav(audio: Path) -> bytes:
    """The bytes of a file that can be read as WAV."""
    try:
        data = audio.read_bytes()
        read_wav(data)
    except OSError as error:
        raise UnusableFile(f"can't read {audio}: {error.strerror}") from error
    except InvalidRequest as wrong:
        raise UnusableFile(f"{audio}: {wrong.message} Convert it to 16-bit PCM.") from wrong
    return data


def _pretty(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
