"""A session's stream of sound on its way to words: cut into windows, windows into utterances.

No waiting here. Times are ms on the input's own clock: it counts samples, and jumps forward where a client
says that sound is missing. It never goes back, and a reset does not set it anew.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bridges.vad import Samples, SpeechDetector
from bridges.vad_endpoint import Began, Ended, Endpointer, EndpointRules

MAX_UTTERANCE_MS = 60_000.0
"""Of one utterance that is kept; of a longer one what came last."""

GAP_MS = 100.0
"""Sound that is missing for longer is a gap; less is a clock that wavers."""

FORGET_MS = 30_000.0
"""Silence after which the detector begins anew: what it remembers of long silence does it no good."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """:param samples: with what goes before it and the silence that ended it"""

    samples: Samples
    start_ms: float
    end_ms: float
    voiced_ms: float

    def joined(self, later: Utterance, most: int) -> Utterance:
        """Both, one after the other; at most that many samples, the last ones."""
        return Utterance(
            np.concatenate((self.samples, later.samples))[-most:],
            self.start_ms,
            later.end_ms,
            self.voiced_ms + later.voiced_ms,
        )


class Listener:
    """:param detector: of this stream alone"""

    def __init__(self, detector: SpeechDetector, rules: EndpointRules) -> None:
        self._detector = detector
        self._window_ms = detector.window * 1000 / detector.rate_hz
        self._endpoints = Endpointer(rules)
        self._rest = np.zeros(0, np.float32)
        self._now_ms: float | None = None  # where the rest begins
        self._kept: deque[tuple[float, Samples]] = deque()
        self._start_ms = 0.0
        self._quiet_ms = 0.0

    @property
    def speaking(self) -> bool:
        return self._endpoints.speaking

    @property
    def voiced_ms(self) -> float:
        """Of the utterance that is going on."""
        return self._endpoints.voiced_ms

    @property
    def silent_ms(self) -> float:
        """Silence at the end of the utterance that is going on."""
        since = self._endpoints.silent_since
        return 0.0 if since is None else (self._now_ms or 0.0) - since

    @property
    def suspected_ms(self) -> float:
        """What may be the beginning of an utterance."""
        return self._endpoints.suspected_ms

    def retune(self, rules: EndpointRules) -> None:
        """Go on by other rules; an utterance that is going on goes on."""
        self._endpoints.rules = rules

    def hear(self, samples: Samples, start_ms: float | None = None) -> Iterator[Began | Utterance]:
        """What the next samples of the stream bring; read it to the end.

        :param start_ms: where they begin, if anybody knows
        :raises VadError: the detector broke
        """
        if (ended := self._place(start_ms)) is not None:
            yield ended
        self._rest = np.concatenate((self._rest, samples))
        size = self._detector.window
        while self._rest.size >= size:
            window, self._rest = self._rest[:size], self._rest[size:]
            if (found := self._take(window)) is not None:
                yield found

    def so_far(self) -> Utterance | None:
        """The utterance that is going on."""
        return self._cut(self._now_ms or 0.0) if self.speaking else None

    def finish(self) -> Utterance | None:
        """End the utterance that is going on, if any, with every sample there is; the clock goes on."""
        now = self._now_ms or 0.0
        if self.speaking and self._rest.size:
            self._kept.append((now, self._rest))
        now += self._rest.size * 1000 / self._detector.rate_hz
        return self._reset(now)

    # --- windows ------------------------------------------------------------------------------------------

    def _place(self, start_ms: float | None) -> Utterance | None:
        if self._now_ms is None:
            self._now_ms = max(start_ms or 0.0, 0.0)
        if start_ms is None:
            return None
        expected = self._now_ms + self._rest.size * 1000 / self._detector.rate_hz
        return self._reset(start_ms) if start_ms - expected > GAP_MS else None

    def _reset(self, at_ms: float) -> Utterance | None:
        ended_at = self._now_ms or 0.0
        voiced = self._endpoints.voiced_ms
        ended = self._endpoints.reset(at_ms)
        utterance = self._cut(ended_at, voiced) if ended is not None else None
        self._kept.clear()
        self._rest = self._rest[:0]
        self._now_ms = at_ms
        self._forget()
        return utterance

    def _take(self, window: Samples) -> Began | Utterance | None:
        start = self._now_ms or 0.0
        end = self._now_ms = start + self._window_ms
        probability = self._detector.probability(window)
        self._kept.append((start, window))
        match self._endpoints.push(probability, start, end):
            case Began() as began:
                self._start_ms = began.start_ms
                self._drop_before(began.start_ms)
                return began
            case Ended(end_ms=end_ms):
                utterance = self._cut(end_ms)
                self._drop_before(end_ms)
                self._forget()
                return utterance
        if self.speaking:
            self._drop_before(end - MAX_UTTERANCE_MS)
        else:
            rules = self._endpoints.rules
            self._drop_before(end - rules.padding_ms - rules.min_speech_ms - 2 * self._window_ms)
            self._quiet_ms = 0.0 if probability >= rules.closing else self._quiet_ms + self._window_ms
            if self._quiet_ms >= FORGET_MS:
                self._forget()
        return None

    def _drop_before(self, time_ms: float) -> None:
        while self._kept and self._kept[0][0] + self._window_ms <= time_ms:
            self._kept.popleft()

    def _cut(self, end_ms: float, voiced_ms: float | None = None) -> Utterance:
        voiced = self._endpoints.voiced_ms if voiced_ms is None else voiced_ms
        samples = np.concatenate([window for _, window in self._kept])
        return Utterance(samples, self._start_ms, end_ms, voiced)

    def _forget(self) -> None:
        self._detector.reset()
        self._quiet_ms = 0.0
