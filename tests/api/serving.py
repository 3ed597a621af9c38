"""The whole service on a real socket, in front of a scripted engine."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import httpx

from bridges.speech import Speaker
from memory.fold import Memory
from orchestrator.app import open_core
from orchestrator.backends.ears import Ears
from orchestrator.replay_engines import Engines, prepare_engines
from orchestrator.settings import Settings
from prompts.pack import Pack
from tests.fakes.listening import Listening
from tests.fakes.pictures import jpeg


class Addressed(Protocol):
    """An engine, or what stands in front of some."""

    @property
    def url(self) -> str: ...


class Served(Listening):
    """``async with Served(engine, folder) as served``: ``served.client`` speaks to it.

    ``edit``: what somebody did to the prompt pack's files.
    """

    def __init__(
        self,
        engine: Addressed,
        data: Path,
        *,
        edit: Callable[[Pack], Pack] | None = None,
        speaker: Speaker | None = None,
        ears: Ears | None = None,
        also: Sequence[Addressed] = (),
        **settings: Any,
    ) -> None:
        defaults: dict[str, Any] = {
            "engine": ",".join(each.url for each in (engine, *also)),
            "data": data,
            "port": 0,
            "auth": {"required": False},
        }
        self.settings = Settings(**{**defaults, **settings})
        self.edit = edit
        self.speaker, self.ears = speaker, ears
        self.pack: Pack
        self.told: list[str] = []

    async def __aenter__(self) -> Served:
        engines = await asyncio.to_thread(prepare_engines, self.settings, self.told.append)
        if self.edit is not None:
            engines = Engines.of(*(replace(each, pack=self.edit(each.pack)) for each in engines.each))
        self.pack = engines.pack
        self.core = await open_core(
            self.settings, engines, durable=True, speaker=self.speaker, ears=self.ears
        )
        await self.listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.leave()

    def memory(self, session_id: str) -> Memory:
        """Of a session that lives."""
        memory = self.core._parts[session_id].built.memory()
        assert isinstance(memory, Memory)
        return memory

    async def see(self, number: int, text: str | None = None, **more: Any) -> httpx.Response:
        """Show frame ``number``, taken at that second, to session ``cam``."""
        headers = {"x-session-id": "cam", **more.pop("headers", {})}
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        url = "data:image/jpeg;base64," + base64.b64encode(jpeg(number, 224, 224)).decode()
        content.append({"type": "image_url", "image_url": {"url": url}})
        body = {"messages": [{"role": "user", "content": content}], "frame_time_range": number, **more}
        return await self.client.post("/v1/chat/completions", json=body, headers=headers)
