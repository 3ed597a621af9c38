"""``Ears``: what all sessions of a service hear with, where its model only reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bridges.asr import Transcriber
from bridges.vad import DetectorFactory
from orchestrator.session.backend import Capabilities

TARGET_MS = 300
"""From the beginning of speech to silence, for a client that pauses when it is told to."""


@dataclass(frozen=True, slots=True)
class EarsOptions:
    """
    :param language: of speech, where the session names none; ``None``: the recogniser finds out
    :param cough_ms: speech over an answer that is no longer than this stops it only if it holds words
    :param partial_s: seconds between two looks at the words so far; 0: only whole utterances
    :param deadline_s: of a transcript; ``verdict_s``: of what an answer is held for
    """

    language: str | None = None
    cough_ms: float = 300.0
    partial_s: float = 1.0
    deadline_s: float = 10.0
    verdict_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Ears:
    """What all sessions hear with."""

    detector: DetectorFactory
    transcriber: Transcriber
    options: EarsOptions = EarsOptions()


def hearing_capabilities(capabilities: Capabilities) -> Capabilities:
    """The same with ears."""
    inputs = tuple(dict.fromkeys((*capabilities.optional_input_modalities, "audio")))
    return replace(
        capabilities,
        optional_input_modalities=inputs,
        transcribes=True,
        target_barge_in_latency_ms=TARGET_MS,
    )
