"""A summarizer in this process, scripted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridges.engine import EngineError, ImageBytes
from bridges.summarizer import Written


@dataclass
class Writer:
    """Says what it is told to, or raises it, the last one for ever."""

    says: Sequence[str | EngineError] = ("From the other engine.",)
    images: bool = True
    ready: bool = True
    finish: str = "stop"
    asked: list[Sequence[Mapping[str, Any]]] = field(default_factory=list)
    took: list[list[bytes]] = field(default_factory=list)
    """Pictures of each request."""

    async def write(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Mapping[str, Any],
        max_tokens: int,
        images: ImageBytes,
    ) -> Written:
        self.asked.append(messages)
        self.took.append([images(part["uuid"]) for part in _images(messages)])
        said = self.says[min(len(self.asked), len(self.says)) - 1]
        if isinstance(said, EngineError):
            raise said
        return Written(said, self.finish)

    @property
    def pictures(self) -> list[int]:
        """How many pictures each request had."""
        return [len(pictures) for pictures in self.took]


def _images(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    content = messages[-1]["content"]
    return [part for part in content if isinstance(part, Mapping) and part["type"] == "image_url"]
