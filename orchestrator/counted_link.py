"""A link to an engine whose losses are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

from bridges.circuit import Clock
from bridges.duplex_client.client import DuplexLink
from bridges.duplex_client.link import EngineEvent, LinkEnded, LinkLost, LinkOptions, LinkResumed


class LinkCounts:
    """By engine address: sockets ``lost``, of these ``resumed``, and links that ended ``unconfirmed``."""

    def __init__(self) -> None:
        self.lost: Counter[str] = Counter()
        self.resumed: Counter[str] = Counter()
        self.unconfirmed: Counter[str] = Counter()

    def count(self, url: str, event: EngineEvent) -> None:
        match event:
            case LinkLost():
                self.lost[url] += 1
            case LinkResumed():
                self.resumed[url] += 1
            case LinkEnded(confirmed=False):
                self.unconfirmed[url] += 1
            case _:
                pass


class CountedLink(DuplexLink):
    """:param counts: of all links of a service"""

    def __init__(self, options: LinkOptions, counts: LinkCounts, clock: Clock) -> None:
        super().__init__(options, clock=clock)
        self._url = options.url
        self._counts = counts

    async def events(self) -> AsyncIterator[EngineEvent]:
        async for event in super().events():
            self._counts.count(self._url, event)
            yield event
