"""The replay track's engines as an operator sees and changes them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from orchestrator.checks import Busy
from orchestrator.engine_address import checked
from orchestrator.engine_setup import prepare_engine
from orchestrator.exits import Exit, SetupError
from orchestrator.replay_hosts import Hosts
from orchestrator.settings import Settings
from orchestrator.wire.errors import Conflict, EngineUnavailable, InvalidRequest, ResourceExhausted

_log = logging.getLogger(__name__)

RETRY_S = 10.0


class EnginesDoor:
    """``Engines`` of the API."""

    def __init__(self, hosts: Hosts, settings: Settings) -> None:
        self._hosts = hosts
        self._settings = settings

    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        return {str(told["name"]): told for told in self._hosts.about()}

    def drain(self, name: str, draining: bool = True) -> None:
        self._hosts.fleet.drain(name, draining)

    async def add(self, url: str) -> str:
        """Checked with real requests, as at the start."""
        try:
            if not checked(url).startswith(("http://", "https://")):
                raise ValueError("name the engine by its address: http://host:port")
        except ValueError as wrong:
            raise InvalidRequest(str(wrong), param="url") from wrong
        settings = self._settings.model_copy(update={"engine": url})
        try:
            engine = await self._hosts.checks.run(lambda: prepare_engine(settings, _log.info))
            return await self._hosts.add(engine)
        except SetupError as refused:
            kind = EngineUnavailable if refused.exit_code is Exit.ENGINE_UNREACHABLE else InvalidRequest
            raise kind(refused.message, code=refused.code) from refused
        except Busy as busy:
            raise ResourceExhausted(f"{busy}; try again later", retry_after_s=RETRY_S) from busy
        except ValueError as known:
            raise Conflict(str(known), code="engine_known") from known

    async def remove(self, name: str) -> None:
        try:
            await self._hosts.remove(name)
        except ValueError as needed:
            raise Conflict(str(needed), code="engine_needed") from needed
