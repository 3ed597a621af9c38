"""The engine's plain chat and image fetching as the API takes them: the bridges' errors made the client's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

from bridges.engine import (
    BadImage,
    ContextOverflow,
    EngineDenied,
    EngineError,
    EngineRefused,
    EngineTimeout,
    EngineUnreachable,
    TooManyImages,
)
from bridges.image_fetch import FetchError, ImageFetcher
from bridges.text_engine import TextEngine
from orchestrator.wire.errors import (
    EngineFault,
    EngineUnavailable,
    InvalidRequest,
    ResourceExhausted,
    TooLarge,
    VigilError,
)

_CLIENTS = (BadImage, ContextOverflow, TooManyImages, EngineRefused)


def client_error(error: EngineError) -> VigilError:
    """What an engine's error means for the client whose request it was."""
    if isinstance(error, EngineUnreachable | EngineTimeout):
        return EngineUnavailable(
            f"the engine does not answer: {error.message}", code=error.code, retry_after_s=1.0
        )
    if isinstance(error, _CLIENTS) and not isinstance(error, EngineDenied):
        return InvalidRequest(f"the engine refuses this: {error.message}", code=error.code)
    return EngineFault(f"the engine failed: {error.message}", code=error.code)


class TextAccess:
    """``TextEngine`` of the API.

    :param engine_of: the engine that serves a tenant's plain requests now
    :param salt_of: the engine's ``cache_salt`` of a tenant
    :param in_work: requests at a time; more are refused
    """

    def __init__(
        self,
        engine_of: Callable[[str], TextEngine],
        salt_of: Callable[[str], Awaitable[str]],
        in_work: int = 64,
    ) -> None:
        self._engine_of = engine_of
        self._salt_of = salt_of
        self._limit = in_work
        self._in_work = 0

    async def complete(self, body: Mapping[str, Any], tenant: str) -> Mapping[str, Any]:
        with self._place():
            return await self._engine_of(tenant).complete(await self._salted(body, tenant))

    async def stream(self, body: Mapping[str, Any], tenant: str) -> AsyncGenerator[bytes, None]:
        with self._place():
            salted = await self._salted(body, tenant)
            async with aclosing(self._engine_of(tenant).stream(salted)) as payloads:
                async for payload in payloads:
                    yield b"data: " + payload + b"\n\n"

    async def _salted(self, body: Mapping[str, Any], tenant: str) -> dict[str, Any]:
        return {**body, "cache_salt": await self._salt_of(tenant)}

    @contextmanager
    def _place(self) -> Iterator[None]:
        if self._in_work >= self._limit:
            raise ResourceExhausted(
                f"{self._in_work} plain requests are in work; try again", retry_after_s=1.0
            )
        self._in_work += 1
        try:
            yield
        except EngineError as error:
            raise client_error(error) from error
        finally:
            self._in_work -= 1


class ImageAccess:
    """``FetchImage`` of the API."""

    def __init__(self, fetcher: ImageFetcher) -> None:
        self._fetcher = fetcher

    async def __call__(self, url: str) -> bytes:
        try:
            return await self._fetcher.fetch(url)
        except FetchError as error:
            kind = TooLarge if error.code == "image_too_large" else InvalidRequest
            raise kind(error.message, code=error.code, param="image_url") from error
