"""The ears that the settings name."""

from __future__ import annotations

from pathlib import Path

from bridges.asr import AsrError, Transcriber
from bridges.asr_http import HttpTranscriber
from bridges.asr_whisper import WhisperTranscriber, worker_command
from bridges.vad import VadError
from bridges.vad_silero import Silero
from orchestrator.backends.ears import Ears, EarsOptions
from orchestrator.exits import Exit, SetupError
from orchestrator.settings import Settings


async def open_ears(settings: Settings, *, hears: bool) -> Ears | None:
    """One pair for all sessions; ``None``: they get none.

    :param hears: the model does so by itself
    :raises SetupError: they can't be had
    """
    named = settings.ears
    if named.model is None:
        return None
    if hears:
        told = "ears.model: a full-duplex model hears by itself; leave it out"
        raise SetupError(told, "ears_refused", Exit.USAGE)
    try:
        detector = Silero().detector
        transcriber = await _transcriber(settings)
    except VadError as error:
        raise SetupError(f"ears: {error}", "server_vad_unavailable", Exit.USAGE) from error
    except AsrError as error:
        raise SetupError(f"ears.model: {error.message}", error.code, Exit.USAGE) from error
    options = EarsOptions(
        named.language,
        named.cough_ms,
        named.partial_s,
        named.deadline_s,
        min(named.verdict_s, named.deadline_s),
    )
    return Ears(detector, transcriber, options)


async def _transcriber(settings: Settings) -> Transcriber:
    named = settings.ears
    assert named.model is not None
    if named.url is not None:
        key = named.api_key
        return HttpTranscriber(named.url, named.model, api_key=key.get_secret_value() if key else None)
    if not (Path(named.model) / "model.bin").is_file():
        raise AsrError(
            "asr_failed", f"there is no model.bin of a CTranslate2 model in the folder {named.model}"
        )
    whisper = WhisperTranscriber(worker_command(named.model, named.threads), load_s=named.load_s)
    await whisper.start()
    return whisper
