"""The core of a run: the service's own registry, actors and backends, with its sessions on tape."""

from __future__ import annotations

from evals.runs.keeper import RunKeeper, Watched
from evals.runs.recorder import recorded
from orchestrator.app import Core
from orchestrator.engine_setup import Engine
from orchestrator.replay_engines import Engines
from orchestrator.replay_track import Outside, replay_track
from orchestrator.runtime.clock import SystemClock, system_ids
from orchestrator.settings import Settings


class Watchlist:
    """The clips that are being watched, by the names of their sessions."""

    def __init__(self) -> None:
        self._by_name: dict[str, Watched] = {}

    def add(self, watched: Watched) -> None:
        self._by_name[watched.name] = watched

    def remove(self, watched: Watched) -> None:
        del self._by_name[watched.name]

    def named(self, name: str) -> Watched:
        return self._by_name[name]

    def taped(self, session_id: str, outside: Outside) -> Outside:
        """Whom a session asks, followed by its tape."""
        watched = next(each for each in self._by_name.values() if each.session_id == session_id)
        return recorded(outside, watched.tape)


async def open_run_core(
    settings: Settings, engine: Engine, key: bytes, watchlist: Watchlist, clock: SystemClock
) -> Core:
    """Lives as long as the run; ``aclose`` it. Raises ``SetupError``.

    :param key: see ``RunKeeper``
    """
    keeper = RunKeeper(key, watchlist.named, clock.wall_ms)
    track = await replay_track(
        settings, Engines.of(engine), clock, system_ids, keeper.salt, through=watchlist.taped
    )
    return Core(settings, track, keeper, clock)
