"""``vigil voice``: whether the voice that the settings name speaks, and how quickly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bridges.clause_speaker import ClauseSpeaker
from bridges.speech import SpeechError
from orchestrator.exits import Exit, SetupError
from orchestrator.runtime.clock import SystemClock
from orchestrator.setting_groups import VoiceGroup
from orchestrator.settings import SettingsError, load_settings
from orchestrator.voice_setup import speaker_of
from orchestrator.wire.audio import pcm16_to_float, write_wav

SENTENCE = "This is a check of the voice. When the red car reaches the bridge, I will tell you."
_CHECK_S = 60.0

app = typer.Typer(
    name="voice", help="The voice of the service: check.", no_args_is_help=True, add_completion=False
)


@app.callback()
def voice() -> None:
    """The voice of the service."""


@app.command()
def check(
    text: Annotated[str, typer.Argument(help="What to say.")] = SENTENCE,
    bridge: Annotated[
        str | None, typer.Option(help="system, openai or piper; default: the settings', else system.")
    ] = None,
    language: Annotated[str, typer.Option(help="Language of the text.")] = "en",
    out: Annotated[Path | None, typer.Option(metavar="OUT.wav", help="Keep what was said.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TOML file of settings; default: $VIGIL_CONFIG.")
    ] = None,
) -> None:
    """Have a text spoken by the voice that the settings name, and tell how quickly that went."""
    try:
        settings = load_settings({"voice": {"bridge": bridge}} if bridge else {}, config)
        named = settings.voice
        if named.bridge in ("none", "auto"):
            named = named.model_copy(update={"bridge": "system"})
        said = asyncio.run(_say(_speaker(named), text, named.name, language))
    except SettingsError as error:
        _fail(str(error), Exit.USAGE)
    except SetupError as error:
        _fail(error.message, error.exit_code)
    except (SpeechError, TimeoutError) as error:
        _fail(f"the voice does not speak: {str(error) or 'it took too long'}", Exit.FAILED)
    if out is not None:
        try:
            out.write_bytes(write_wav(pcm16_to_float(said.pcm), said.rate_hz))
        except OSError as error:
            _fail(f"can't write {out}: {error.strerror}", Exit.USAGE)
    seconds = said.seconds
    if not seconds:
        _fail("the voice gave no sound for this text", Exit.FAILED)
    typer.echo(
        f"{named.bridge} speaks: {seconds:.2f} s at {said.rate_hz} Hz, first sound after"
        f" {said.first_s * 1000:.0f} ms, real-time factor {said.took_s / seconds:.3f}"
    )


@dataclass(frozen=True, slots=True)
class Said:
    pcm: bytes
    rate_hz: int
    first_s: float
    took_s: float

    @property
    def seconds(self) -> float:
        return len(self.pcm) / 2 / self.rate_hz


def _speaker(named: VoiceGroup) -> ClauseSpeaker:
    speaker = speaker_of(named, SystemClock())
    assert speaker is not None
    return speaker


async def _say(speaker: ClauseSpeaker, text: str, name: str | None, language: str) -> Said:
    async def words() -> AsyncIterator[str]:
        yield text

    began, first, pcm = time.monotonic(), 0.0, b""
    try:
        async with asyncio.timeout(_CHECK_S):
            async for chunk in speaker.speak(words(), name, language):
                if chunk.pcm and not first:
                    first = time.monotonic() - began
                pcm += chunk.pcm
    finally:
        await speaker.aclose()
    return Said(pcm, speaker.rate_hz, first, time.monotonic() - began)


def _fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        typer.echo(f"vigil: {line}", err=True)
    raise typer.Exit(code)
