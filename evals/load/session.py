"""How a load speaks to one session of a server, whatever protocol that has.

::

    LoadError       code: the server did not do its part
    |- Refused      it took no session
    `- Lost         a session that it had taken is gone
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol


class LoadError(Exception):
    def __init__(self, code: str, message: str = "") -> None:
        super().__init__(f"{code}: {message}" if message else code)
        self.code = code


class Refused(LoadError):
    pass


class Lost(LoadError):
    pass


class Hears(Protocol):
    """Who drives a session, as the session tells it."""

    def decided(self, media_ms: int) -> None:
        """Every frame up to this media time has been decided, or never will be."""

    def faulted(self, code: str) -> None:
        """The server told of a fault; the session goes on."""

    def lost(self, code: str) -> None:
        """The session is over and nobody had asked for it."""


class LoadSession(Protocol):
    """One session. Methods but ``show`` raise ``LoadError``."""

    async def open(self) -> None: ...

    @property
    def busy(self) -> bool:
        """A client of this kind would not send a frame now."""

    @property
    def waits(self) -> bool:
        """An answer may still come."""

    async def show(self, picture: bytes, media_ms: int, sound: bytes | None = None) -> None:
        """Send a frame, and the sound since the last one; does not wait for what is decided.

        :raises Lost: the session is over
        """

    async def ask(self, query: str) -> None:
        """Set the standing query, at the latest with the next frame."""

    async def close(self) -> None: ...


class RequestSession(ABC):
    """A session of single requests: one at a time, a frame each; while it waits its client is busy.

    Subclasses make the request. It raises ``LoadError``; ``Refused`` before the first answer alone.
    """

    def __init__(self, hears: Hears) -> None:
        self._hears = hears
        self._task: asyncio.Task[None] | None = None
        self.query: str | None = None

    @abstractmethod
    async def _request(self, picture: bytes, media_ms: int) -> None: ...

    async def open(self) -> None:
        """Nothing is to be done: the first frame opens it."""
        return

    @property
    def busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def waits(self) -> bool:
        return self.busy

    async def show(self, picture: bytes, media_ms: int, sound: bytes | None = None) -> None:
        self._task = asyncio.create_task(self._one(picture, media_ms))

    async def ask(self, query: str) -> None:
        self.query = query

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _one(self, picture: bytes, media_ms: int) -> None:
        try:
            await self._request(picture, media_ms)
        except Refused as refused:
            self._hears.lost(refused.code)
        except LoadError as failed:
            self._hears.faulted(failed.code)
        else:
            self._hears.decided(media_ms)


Opener = Callable[[int, Hears], LoadSession]
"""Makes the session of a number."""
