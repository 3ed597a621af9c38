"""Files of an offline run: recordings and clips read, and what came back written."""

from __future__ import annotations

import asyncio
import base64
import math
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson

from bridges.frames import FrameBounds
from bridges.media import MediaOptions, open_media
from orchestrator.offline.drive import Played
from orchestrator.offline.timeline import FRAME_MS, Recording
from orchestrator.wire.audio import read_wav, write_wav
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
    pictures: list[bytes] = []
    if clip is not None:
        most = math.ceil(samples.size * 1000 / rate / FRAME_MS) + 1
        async with aclosing(open_media(clip, MediaOptions(_BOUNDS)).play()) as frames:
            async for frame in frames:
                pictures.append(frame.data)
                if len(pictures) >= most:
                    break
    return Recording(str(audio), samples, rate, tuple(pictures))


def data_url_of(audio: Path) -> str:
    """A WAV file as it is put into a session's ``ref_audio``. Raises ``UnusableFile``."""
    return "data:audio/wav;base64," + base64.b64encode(_wav(audio)).decode()


def write(out: Path, played: Played) -> None:
    """``out`` (WAV), and beside it ``decisions.jsonl`` and ``input_timeline.json``. Raises ``OSError``."""
    out.parent.mkdir(parents=True, exist_ok=True)
    _replace(out, write_wav(played.heard, played.heard_rate_hz))
    _replace(out.with_name(DECISIONS), b"".join(orjson.dumps(row) + b"\n" for row in played.rows))
    _replace(out.with_name(TIMELINE), _pretty(played.timeline))


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


def _replace(path: Path, content: bytes) -> None:
    """Write a file so that it is never seen half written."""
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)
