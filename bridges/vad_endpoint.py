"""Where speech begins and ends, from the probabilities of its windows. No network, no clock, no waiting."""

from __future__ import annotations

from dataclasses import dataclass

CLOSING_MARGIN = 0.15
SUSPICION = 0.6
"""Of the threshold: what may become speech. Noise stays far below."""
LOWEST_CLOSING = 0.01
_EPS = 1e-6
"""Windows of a whole number of ms may add up to a hair less."""


@dataclass(frozen=True, slots=True)
class EndpointRules:
    """:param threshold: probability from which a window counts as speech
    :param padding_ms: of what goes before speech that belongs to it
    :param silence_ms: that ends it
    :param min_speech_ms: of windows in a row that begin it
    """

    threshold: float = 0.5
    padding_ms: float = 300.0
    silence_ms: float = 500.0
    min_speech_ms: float = 96.0

    @property
    def closing(self) -> float:
        """Only windows below this can end speech: a voice that wavers goes on."""
        return max(self.threshold - CLOSING_MARGIN, LOWEST_CLOSING)

    @property
    def suspicious(self) -> float:
        """From this on a window may be the beginning of speech."""
        return self.threshold * SUSPICION


@dataclass(frozen=True, slots=True)
class Began:
    """``start_ms``: where speech starts, with what goes before it."""

    start_ms: float


@dataclass(frozen=True, slots=True)
class Ended:
    """``end_ms``: where the silence that told so ends."""

    end_ms: float


class Endpointer:
    """Fed window by window, in order. Times are the caller's own, in ms; they never go back.

    Speech never starts before the last reset, nor before the end of the speech before it.
    """

    def __init__(self, rules: EndpointRules) -> None:
        self.rules = rules
        self.speaking = False
        self.voiced_ms = 0.0
        """Of the speech that is going on, or that ended last: windows above the threshold."""
        self._floor_ms: float | None = None
        self._first_ms: float | None = None
        self._run_ms = 0.0
        self.suspected_ms = 0.0
        """Of windows in a row that may be the beginning of speech, while there is none."""
        self.silent_since: float | None = None
        """Where a silence began that may end the speech that is going on."""

    def reset(self, at_ms: float) -> Ended | None:
        """What follows is another stream. Speech that was going on ends here."""
        ended = Ended(at_ms) if self.speaking else None
        self.speaking = False
        self._floor_ms, self._first_ms, self.silent_since = at_ms, None, None
        self._run_ms = self.suspected_ms = 0.0
        return ended

    def push(self, probability: float, start_ms: float, end_ms: float) -> Began | Ended | None:
        if self._floor_ms is None:
            self._floor_ms = start_ms
        if self.speaking:
            return self._go_on(probability, start_ms, end_ms)
        suspicious = probability >= self.rules.suspicious
        self.suspected_ms = self.suspected_ms + end_ms - start_ms if suspicious else 0.0
        if probability < self.rules.threshold:
            self._first_ms, self._run_ms = None, 0.0
            return None
        if self._first_ms is None:
            self._first_ms = start_ms
        self._run_ms += end_ms - start_ms
        if self._run_ms + _EPS < self.rules.min_speech_ms:
            return None
        began = Began(max(self._first_ms - self.rules.padding_ms, self._floor_ms))
        self.speaking, self.voiced_ms = True, self._run_ms
        self._first_ms, self._run_ms, self.silent_since = None, 0.0, None
        self.suspected_ms = 0.0
        return began

    def _go_on(self, probability: float, start_ms: float, end_ms: float) -> Ended | None:
        if probability >= self.rules.threshold:
            self.voiced_ms += end_ms - start_ms
            self.silent_since = None
            return None
        if probability >= self.rules.closing:
            return None
        if self.silent_since is None:
            self.silent_since = start_ms
        if end_ms - self.silent_since + _EPS < self.rules.silence_ms:
            return None
        self.speaking, self.silent_since, self._floor_ms = False, None, end_ms
        return Ended(end_ms)
