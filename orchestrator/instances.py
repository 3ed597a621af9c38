"""Which instance of an engine runs, told by the start time of its process."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from bridges.answers import answered
from bridges.engine import EngineUnreachable
from bridges.tls import trusted

_START = "process_start_time_seconds"
_TIMEOUT_S = 5.0
_MAX_BYTES = 4 * 2**20


class EngineInstances:
    """:param urls: root of each engine, by its name"""

    def __init__(self, urls: Mapping[str, str], api_key: str | None) -> None:
        self._urls = dict(urls)
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._http = httpx.AsyncClient(timeout=_TIMEOUT_S, headers=headers, trust_env=False, verify=trusted())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._urls)

    async def of(self, name: str) -> str | None:
        """``None``: the engine does not say.

        :raises EngineUnreachable: nothing listens there
        """
        try:
            status, told = await answered(
                self._http, "GET", f"{self._urls[name]}/metrics", within_s=_TIMEOUT_S, most=_MAX_BYTES
            )
        except httpx.ConnectError as away:
            raise EngineUnreachable(f"no metrics of {name}: {str(away) or type(away).__name__}") from away
        except httpx.HTTPError:
            return None  # it is busy, or speaks otherwise; openings say more
        return _start_time(told.decode("utf-8", "replace")) if status == 200 else None

    async def aclose(self) -> None:
        await self._http.aclose()


def _start_time(text: str) -> str | None:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.partition("{")[0] == _START:
            return value.strip()
    return None
