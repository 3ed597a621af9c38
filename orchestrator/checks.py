"""``Checks``: self-checks of engines, which block for as long as an engine pleases, in threads of their own.

The threads that everybody shares also look up hosts' names: a few engines that hang would take them all.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


class Busy(Exception):
    """Too many wait already."""


class Checks:
    """:param most: at a time; ``waiting``: beside these

    One that nobody waits for any more counts until it has ended. None keeps the process from ending.
    """

    def __init__(self, most: int, waiting: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._bound = most + waiting
        self.asked = 0
        """Running or waiting."""

    async def run(self, work: Callable[[], T]) -> T:
        """What ``work`` returns or raises; :raises Busy:"""
        if self.asked >= self._bound:
            raise Busy(f"{self.asked} engines are being checked")
        self.asked += 1
        try:
            await self._places.acquire()
        except BaseException:
            self.asked -= 1
            raise
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()

        def ended(answer: Callable[[asyncio.Future[T]], None]) -> None:
            self.asked -= 1
            self._places.release()
            if not told.done():
                answer(told)

        def body() -> None:
            try:
                result = work()
            except BaseException as error:
                fault = error
                answer: Callable[[asyncio.Future[T]], None] = lambda future: future.set_exception(fault)  # noqa: E731
            else:
                answer = lambda future: future.set_result(result)  # noqa: E731
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(ended, answer)

        threading.Thread(target=body, name="engine-check", daemon=True).start()
        return await told
