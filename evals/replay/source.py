"""Where the frames of a replay come from, as the loop sees it, and playing a source several times over."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from evals.replay.drive import Frame


class Source(Protocol):
    """A video to watch.

    ``live``: frames are gone once their time has passed; otherwise the source waits and loses none.
    """

    live: bool

    def info(self) -> Mapping[str, Any]:
        """JSON-ready facts: ``name``, ``width``, ``height`` and the like, as far as known."""

    def warnings(self) -> Sequence[str]:
        """What the decoder complained about up to now."""

    def dropped(self) -> int:
        """Frames of a live source that newer ones replaced before they were asked for."""

    def expected(self, period_ms: int) -> int | None:
        """Frames one pass will give, if the source tells its length."""

    def frames(self, period_ms: int) -> AsyncGenerator[Frame, None]:
        """One pass over the source, one frame a period; media time starts at 0.

        Raises ``ReplayError`` when the source can't be opened or holds no video.
        """


async def looped(source: Source, period_ms: int, times: int) -> AsyncGenerator[Frame, None]:
    """``times`` passes over a source as one stream: media time runs on, one period after the last frame."""
    offset = 0
    for _ in range(times):
        last = None
        async with aclosing(source.frames(period_ms)) as frames:
            async for frame in frames:
                last = frame.media_time_ms + offset
                yield Frame(last, frame.data)
        if last is None:
            return
        offset = last + period_ms
