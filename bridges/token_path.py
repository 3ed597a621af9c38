"""Whether an engine's prompts go as token ids, and what went wrong when they did."""

from __future__ import annotations

from collections import Counter

from bridges.circuit import Clock
from bridges.engine import ChatRequest
from bridges.token_prompt import TokenPrompts, images_of
from bridges.token_route import TokenRoute, Untranslatable

FAULTS = 3
"""In a row, and the path is left alone until the engine has been checked again."""
PAUSE_S = 300.0
"""From then on until it is worth a check."""


class TokenPath:
    """The path of one engine: open with a route, closed without one, after faults, or once it was lost.

    :param route: what the self-check learned; ``None``: nothing that could be used
    """

    def __init__(self, route: TokenRoute | None, clock: Clock) -> None:
        self._clock = clock
        self._faults: Counter[str] = Counter()
        self._in_a_row = 0
        self._closed: str | None = None
        self._closed_at = 0.0
        self._prompts: TokenPrompts | None = None
        self.renew(route)

    @property
    def name(self) -> str:
        """``content_parts`` or ``features`` while it is open; else ``none``, ``faults`` or ``lost``."""
        if self._prompts is None:
            return "none"
        return self._closed or self._prompts.route.kind

    @property
    def stale(self) -> bool:
        """What is known of the engine may not be so any more: a self-check is due."""
        if self._closed == "faults":
            return self._clock.now() - self._closed_at >= PAUSE_S
        return self._closed == "lost"

    def renew(self, route: TokenRoute | None) -> None:
        """A self-check has just learned this."""
        self._prompts = TokenPrompts(route) if route is not None else None
        self._in_a_row, self._closed = 0, None

    def lost(self) -> None:
        """The engine went away. What comes back may be another one, started in another way."""
        self._closed = "lost"

    def prompts(self, request: ChatRequest) -> TokenPrompts | None:
        """Where the request's prompt is kept, if it may go as ids.

        :raises Untranslatable: it could, but for one of its parameters
        """
        if self._prompts is None or self._closed or request.window is None or not images_of(request.messages):
            return None
        try:
            self._prompts.route.params(request.params)
        except Untranslatable:
            self.fault("untranslatable", counts=False)
            raise
        return self._prompts

    def answered(self) -> None:
        self._in_a_row = 0

    def fault(self, reason: str, *, counts: bool = True) -> None:
        """A request went another way. ``counts``: the path is to blame; the third in a row closes it."""
        self._faults[reason] += 1
        if not counts:
            return
        self._in_a_row += 1
        if self._in_a_row >= FAULTS and self._closed is None:
            self._closed, self._closed_at = "faults", self._clock.now()

    def statistics(self) -> dict[str, object]:
        """``path``, ``windows`` kept, and ``fallbacks`` by reason since the start."""
        return {
            "path": self.name,
            "windows": len(self._prompts) if self._prompts else 0,
            "fallbacks": dict(self._faults),
        }
