"""Recordings played to a running service, as ``vigil talk --audio`` and ``vigil replay --audio`` do it."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import orjson

from bridges.answers import answered
from bridges.media import MediaError
from orchestrator.client import ClientError
from orchestrator.exits import Exit, exit_of_session, exit_of_source
from orchestrator.offline.drive import Played, PlayOptions, play
from orchestrator.offline.files import UnusableFile, data_url_of, recording_of, write, written
from orchestrator.offline.timeline import Recording
from orchestrator.wire.audio import Codec

_ANSWER_S, _MOST = 10.0, 4 * 2**20
_HINTS = {"ref_audio_required": " (--ref-audio VOICE.wav gives it one)"}


@dataclass(frozen=True, slots=True)
class Offline:
    """:param clips: one for each of ``audio``, as far as there are any
    :param reference: a WAV file whose voice the model takes on
    """

    audio: tuple[Path, ...]
    out: Path
    play: PlayOptions
    clips: tuple[str, ...] = ()
    reference: Path | None = None


def tail_ms(seconds: float | None, asks: bool) -> int:
    """The silence behind a recording: a second where the model has to notice by itself that it is over."""
    return round(1000 * (seconds if seconds is not None else 0.0 if asks else 1.0))


def run(offline: Offline) -> Exit:
    """Blocks until everything was played and heard, or until Ctrl-C; what came back is then written."""
    if held := next((path for path in written(offline.out) if path.exists()), None):
        _tell(f"{held} is there already, of an earlier run; name another place with --out")
        return Exit.USAGE
    stop = Stop()
    try:
        played = asyncio.run(_run(offline, stop))
    except ClientError as error:
        _tell(error.message + _HINTS.get(error.code, ""))
        return exit_of_session(error.code)
    except MediaError as error:
        _tell(error.message)
        return exit_of_source(error.code)
    except UnusableFile as error:
        _tell(error.message)
        return Exit.NO_SOURCE
    try:
        write(offline.out, played)
    except OSError as error:
        _tell(f"can't write {offline.out}: {error.strerror}")
        return Exit.FAILED
    _report(offline, played)
    return stop.code or (Exit.OK if played.ok else Exit.FAILED)


@dataclass(slots=True)
class Stop:
    """The first signal ends the playing, and says how the command ends."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    code: Exit | None = None

    def on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        with suppress(RuntimeError):  # signals are those of the main thread
            loop.add_signal_handler(signal.SIGINT, self._ask, Exit.INTERRUPTED)
            loop.add_signal_handler(signal.SIGTERM, self._ask, Exit.TERMINATED)

    def _ask(self, code: Exit) -> None:
        self.code = self.code or code
        self.asked.set()


async def _run(offline: Offline, stop: Stop) -> Played:
    stop.on_signals()
    clips = (*offline.clips, *(None for _ in offline.audio))
    recordings: list[Recording] = [
        await recording_of(audio, clip) for audio, clip in zip(offline.audio, clips, strict=False)
    ]
    session: dict[str, Any] = dict(offline.play.session)
    if offline.reference is not None:
        session["ref_audio"] = data_url_of(offline.reference)
    codec, rate = await _wanted(offline.play)
    options = replace(offline.play, session=session, codec=codec, rate_hz=rate)
    return await play(recordings, options, stop=stop.asked)


async def _wanted(options: PlayOptions) -> tuple[Codec, int]:
    """What the service says its model hears; without a word about that, what most do.

    :raises ClientError: it hears nothing
    """
    headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
    try:
        async with httpx.AsyncClient(base_url=options.server, headers=headers, trust_env=False) as http:
            _, told = await answered(http, "GET", "/v1/models", within_s=_ANSWER_S, most=_MOST)
        served = orjson.loads(told)["data"][0]
        if (heard := served["audio_input"]) is None:
            deaf = f"{served['id']} does not hear; vigil serve --ears-model gives it ears"
            raise ClientError("invalid_input_modality", deaf)
        return Codec(heard["format"]), int(heard["rate_hz"])
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        return options.codec, options.rate_hz  # who opens the session is told what is wrong


def _report(offline: Offline, played: Played) -> None:
    """Words to standard output, everything else to standard error."""
    for answer in played.record.answers.values():
        print(_plain(answer.transcript or answer.text))
    said = len(played.record.answers)
    heard_s = played.heard.size / played.heard_rate_hz
    _tell(f"session {played.session_id}: {said} responses, {heard_s:.1f} s in {offline.out}")
    if not played.drained:
        _tell("not everything had been said when the session was closed")
    for reason in played.against:
        _tell(reason)


def _plain(text: str) -> str:
    """Words without anything that would steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def _tell(line: str) -> None:
    sys.stderr.write(f"vigil: {line}\n")
    sys.stderr.flush()
