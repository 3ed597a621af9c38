"""Who writes summaries, and whether a text that came back is fit to be one. Both kinds of backend use it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bridges.engine import ImageBytes

CHARS_PER_TOKEN = 6  # generous for any script: a longer text did not keep to its length
_SENTENCE = re.compile(r"[^.!?\n。！？]+")
_MIN_SENTENCE = 8
_MAX_SAME = 3
_MAX_RUN = 5
_MAX_PERIOD = 40


class Written(Protocol):
    @property
    def text(self) -> str: ...
    @property
    def finish_reason(self) -> str: ...


class Summarizer(Protocol):
    """Another engine that writes texts. ``images``: it takes pictures; ``ready``: it may be asked now."""

    @property
    def images(self) -> bool: ...
    @property
    def ready(self) -> bool: ...

    async def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        max_tokens: int,
        images: ImageBytes,
    ) -> Written:
        """One text, inside a deadline of its own. Raises ``EngineError``."""


def runs_away(text: str) -> bool:
    """True when a sentence comes back again and again, or the text ends in a loop."""
    sentences = Counter(s.strip().casefold() for s in _SENTENCE.findall(text))
    if any(n > _MAX_SAME for s, n in sentences.items() if len(s) >= _MIN_SENTENCE):
        return True
    tail = text.rstrip()
    for period in range(1, _MAX_PERIOD + 1):
        unit = tail[-period:]
        times = _MAX_RUN if period > 1 else 4 * _MAX_RUN  # rows of dots or dashes are not a loop
        if len(unit) == period and tail.endswith(unit * times):
            return True
    return False


def shortened(text: str, max_chars: int) -> str:
    """The whole sentences at the beginning of a text that was cut off; empty when there is none."""
    head = text.strip()[:max_chars]
    ends = [m.end() for m in re.finditer(r"[.!?](?=\s)|[。！？\n]", head)]
    return head[: ends[-1]].strip() if ends else ""
