"""An engine that was away is checked again before prompts go to it as token ids."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from bridges.circuit import EngineState
from bridges.token_path import TokenPath
from bridges.token_route import TokenRoute
from orchestrator.checks import Checks
from orchestrator.session.backend import Clock

_log = logging.getLogger(__name__)

Learn = Callable[[], TokenRoute | None]
"""A self-check of the engine's token route; blocks for seconds. Raises ``Away`` and ``Changed``."""


class Away(Exception):
    """The engine did not answer the self-check."""


class Changed(Exception):
    """What is there now is another engine: sessions' prompts and marks mean something else to it."""


class ByIds(Protocol):
    """What the watch needs of an engine bridge. ``statistics``: ``lost``, times that it went away."""

    unlike: str | None
    """Why nothing may be asked of what is there now."""

    @property
    def tokens(self) -> TokenPath: ...
    @property
    def state(self) -> EngineState: ...
    def statistics(self) -> Mapping[str, Any]: ...


class TokenWatch:
    """:param period_s: how often to look"""

    def __init__(self, engine: ByIds, learn: Learn, clock: Clock, *, period_s: float) -> None:
        self._engine = engine
        self._checks = Checks(1, 0)
        self._learn = learn
        self._clock = clock
        self._period_s = period_s

    async def run(self) -> NoReturn:
        while True:
            await self._clock.sleep(self._period_s)
            engine = self._engine
            if engine.tokens.stale and (engine.state is EngineState.UP or engine.unlike is not None):
                await self._again()

    async def _again(self) -> None:
        engine = self._engine
        lost = engine.statistics()["lost"]
        try:
            route = await self._checks.run(self._learn)
        except Away as away:
            _log.info("the token route can't be checked again: %s", away)
            return
        except Changed as changed:
            if engine.unlike is None:
                _log.error("%s; nothing is asked of it. Restart this service for it", changed)
            engine.unlike = str(changed)
            return
        engine.unlike = None
        if engine.statistics()["lost"] == lost:  # else what was learned may be of the one before
            engine.tokens.renew(route)
            _log.info("the token route was checked again: prompts go by %s", engine.tokens.name)
