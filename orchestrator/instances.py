"""Which instance of an engine runs, told by the start time of its process."""

from __future__ import annotations

from collections.abc import Mapping

import httpx

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
            async with self._http.stream("GET", f"{self._urls[name]}/metrics") as response:
                if not response.is_success:
                    return None
                return _start_time(await _text(response))
        except httpx.ConnectError as away:
            raise EngineUnreachable(f"no metrics of {name}: {str(away) or type(away).__name__}") from away
        except httpx.HTTPError:
            return None  # it is busy, or speaks otherwise; openings say more

    async def aclose(self) -> None:
        await self._http.aclose()


async def _text(response: httpx.Response) -> str:
    """No more than the largest sensible answer."""
    parts, size = [], 0
    async for part in response.aiter_text():
        parts.append(part)
        size += len(part)
        if size > _MAX_BYTES:
            break
    return "".join(parts)


def _start_time(text: str) -> str | None:
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name.partition("{")[0] == _START:
            return value.strip()
    return None
