"""``Transcriber``: words of a stretch of speech; and what of a recogniser's output counts as words.

A recogniser made to find words finds some in silence too: polite formulas, the same syllable again and again,
remarks on noises in brackets. Its own figures tell most of these.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bridges.timing import Durations

Samples = npt.NDArray[np.float32]
RATE_HZ = 16000

NO_SPEECH, LOGPROB, LOWEST_LOGPROB, COMPRESSION = 0.6, -1.0, -1.5, 2.4
"""Bounds of a segment that counts: probability of no speech (with a doubtful text), mean log probability of
its tokens (alone), and how well its text compresses."""

MAX_CHARS = 4000
_REMARK = re.compile(r"\[[^\]]*\]|\([^)]*\)|\*[^*]*\*|[♪♫]+")


class AsrError(Exception):
    """There will be no transcript.

    :param code: ``asr_timeout``, ``asr_overloaded``, ``asr_worker_lost`` or ``asr_failed``
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class Segment:
    """What a recogniser says of a piece; ``None``: it does not say."""

    text: str
    no_speech: float | None = None
    avg_logprob: float | None = None
    compression: float | None = None

    @classmethod
    def of(cls, plain: Any) -> Segment:
        """From the JSON of an OpenAI-compatible ``verbose_json`` answer, or of the worker."""
        return cls(
            str(plain.get("text") or ""),
            plain.get("no_speech_prob"),
            plain.get("avg_logprob"),
            plain.get("compression_ratio"),
        )

    @property
    def counts(self) -> bool:
        """It is speech, as far as the recogniser's figures tell."""
        sure = 0.0 if self.avg_logprob is None else self.avg_logprob
        if (self.no_speech or 0.0) > NO_SPEECH and sure < LOGPROB:
            return False
        return sure >= LOWEST_LOGPROB and (self.compression or 0.0) <= COMPRESSION


def words_of(segments: Sequence[Segment]) -> str:
    """The words in one line; empty when there are none."""
    text = " ".join(_REMARK.sub(" ", each.text) for each in segments if each.counts)
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_CHARS]
    return text if any(c.isalnum() for c in text) else ""


class Transcriber(Protocol):
    """One for all sessions."""

    async def transcribe(
        self, samples: Samples, stream: str, *, language: str | None, final: bool, deadline_s: float
    ) -> str:
        """Words in 16 kHz samples; empty: none were said. Cancelling it gives its place up.

        :param stream: whose speech it is: no stream waits longer because another has much to say
        :param final: otherwise it gives way: it may be refused, or dropped, while others wait
        :param deadline_s: waiting included
        :raises AsrError: see there
        """

    def statistics(self) -> dict[str, int]: ...

    @property
    def took(self) -> Durations:
        """The recognition of each, waiting apart."""

    async def aclose(self) -> None: ...
