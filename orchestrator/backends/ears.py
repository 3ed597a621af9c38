"""``Ears``: what all sessions of a service hear with, where its model only reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from bridges.asr import Transcriber
from bridges.timing import Durations
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


COUNTED = ("utterances", "empty", "failed", "lost", "held", "resumed", "detectors_broken")
"""Utterances, of them without words, without a transcript, too many; answers held, of them for nothing."""


class EarsTally:
    """What the ears of all sessions have done so far.

    ``words``: from an utterance's end to its words; ``detecting``: the detector's work for a piece of sound.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
        self.words = Durations()
        self.detecting = Durations((0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5))


@dataclass(frozen=True, slots=True)
class Ears:
    """What all sessions hear with."""

    detector: DetectorFactory
    transcriber: Transcriber
    options: EarsOptions = EarsOptions()
    tally: EarsTally = field(default_factory=EarsTally)


def hearing_capabilities(capabilities: Capabilities) -> Capabilities:
    """The same with ears."""
    inputs = tuple(dict.fromkeys((*capabilities.optional_input_modalities, "audio")))
    return replace(
        capabilities,
        optional_input_modalities=inputs,
        transcribes=True,
        target_barge_in_latency_ms=TARGET_MS,
    )
