"""The context as the engine counts it, read from the figures of one of its stages. Sans-IO.

An engine tells figures with each decision: a unit's own with a listen, and within a response the sums over
the response's units so far. Of such a sum its growth counts, and where that is of several units, what at
least the last of them held.
"""

from __future__ import annotations

from bridges.duplex_client.decode import whole
from bridges.duplex_client.link import StageMetrics
from prompts.native import Counted


class EngineCount:
    """One session's. ``counted``: which figures count; ``None``: nothing is ever known."""

    def __init__(self, counted: Counted | None) -> None:
        self._counted = counted
        self._apart = False
        """What was said is told unit by unit, and not in all: the engine's settings decide that."""
        self.begin()

    def begin(self) -> None:
        """Figures are those of another engine session from here on."""
        self._prompt = 0
        self._response: str | None = None
        self._sums = (0, 0)
        self._said, self._said_last = 0, 0

    def take(self, figures: StageMetrics) -> int | None:
        """Tokens of the whole context, where these figures tell them anew."""
        counted = self._counted
        stage = figures.stages.get(counted.stage) if counted is not None else None
        if counted is None or stage is None:
            return None
        prompt, said = whole(stage.get(counted.prompt)), whole(stage.get(counted.output))
        if not prompt:
            return None
        if not counted.streamed:
            return prompt + (said or 0)
        if figures.response_id is not None:
            prompt, said = self._growth(figures.response_id, prompt, said or 0)
            if prompt <= 0:
                return None  # told before
        return self._unit(prompt, said or 0)

    def _growth(self, response_id: str, prompt: int, said: int) -> tuple[int, int]:
        before = self._sums if response_id == self._response else (0, 0)
        self._response, self._sums = response_id, (prompt, said)
        return prompt - before[0], said - before[1]

    def _unit(self, prompt: int, said: int) -> int:
        """``prompt``: of one unit, or the sum of several, none of which is less than what was known."""
        if prompt < self._prompt:
            # The engine began a request anew, as some do after a cancel.
            self._said = self._said_last = 0
        units = max(1, prompt // self._prompt) if self._prompt else 1
        last = said // units
        # What was said in all only grows.
        self._apart = self._apart or bool(0 < last <= self._said_last)
        self._prompt, self._said_last = prompt // units, last
        self._said += said
        return self._prompt + (self._said if self._apart else last)
