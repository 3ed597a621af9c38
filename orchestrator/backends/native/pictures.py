"""What was to be seen in a native session, as text: key frames of its units, summarised chunk by chunk.

An engine session forgets its pictures with its context, so a fresh one is told of them in words. Key frames
are held here until their chunk is told or given up; nothing waits for that, and what no text tells of is
remembered as a count.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NoReturn

from memory.chunks import Chunks, sample
from memory.facts import AnyFact, FramesDescribed
from memory.plan import FrameRef, WantSummary
from memory.spoken import SpokenMemory
from memory.spoken_requests import picture_messages
from orchestrator.backends.native.notes import RETRY_MAX_S, backoff_s, written
from orchestrator.backends.summaries import Summarizer
from orchestrator.backends.waiting import set_within
from orchestrator.session.backend import Clock, Ids

PERIOD_MS = 8000
"""Between two key frames."""
KEY_FRAMES = 8
"""Of one chunk, which so is about a minute."""
CHUNK_S = KEY_FRAMES * PERIOD_MS / 1000
"""Pictures that come rarely are told after it all the same."""
MAX_BYTES = 8 * 1024 * 1024
"""Of key frames that wait; one that finds no room is only counted."""
SPANS = 64
"""Of which it is known how many pictures each had; the pictures of older ones stay counted besides."""


class Pictures:
    """Run ``run`` as a task; call ``saw`` with the pictures of every unit.

    :param write: logs a fact and folds it into ``memory``
    :param summarizer: takes pictures
    """

    def __init__(
        self,
        memory: SpokenMemory,
        write: Callable[[AnyFact], None],
        summarizer: Summarizer,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._memory = memory
        self._write = write
        self._summarizer = summarizer
        self._clock = clock
        self._ids = ids
        self._chunks = Chunks()
        self._images: dict[str, bytes] = {}
        self._bytes = 0
        self._seq = 0
        self._kept_at: int | None = None
        self._last_ms = 0
        self._due: float | None = None
        self._shown = 0
        self._counts: deque[tuple[int, int, int]] = deque(maxlen=SPANS)  # start, end in ms; pictures
        self._news = asyncio.Event()
        self._numbers = {"told": 0, "failed": 0, "no_room": 0}

    def saw(self, frames: Sequence[bytes], media_time_ms: int) -> None:
        """A unit showed these, the picture itself first."""
        self._shown += len(frames)
        self._last_ms = media_time_ms
        if self._kept_at is not None and media_time_ms - self._kept_at < PERIOD_MS:
            return
        self._kept_at = media_time_ms
        if self._bytes + len(frames[0]) > MAX_BYTES:
            self._numbers["no_room"] += 1
            return
        uuid = self._ids("pic")
        self._images[uuid] = frames[0]
        self._bytes += len(frames[0])
        self._seq += 1
        self._chunks.take(self._seq, [FrameRef(uuid, uuid, media_time_ms, 0, 0)])
        if self._due is None:
            self._due = self._clock.now() + CHUNK_S
            self._news.set()
        if self._chunks.open.fresh >= KEY_FRAMES:
            self._close()

    async def run(self) -> NoReturn:
        while True:
            self._news.clear()
            if self._due is not None and self._clock.now() >= self._due:
                self._close()
            want = next(iter(self._chunks.wants(KEY_FRAMES)), None)
            if want is None:
                await self._until_due()
            elif not self._summarizer.ready:
                await self._clock.sleep(RETRY_MAX_S)
            else:
                await self._clock.sleep(backoff_s(want.attempt))
                await self._carry(want)

    def statistics(self) -> dict[str, int]:
        return {
            "key_frames": len(self._images),
            "bytes": self._bytes,
            "max_bytes": MAX_BYTES,
            **self._numbers,
        }

    # --- parts ----------------------------------------------------------------------------------------

    async def _until_due(self) -> None:
        if self._due is None:
            await self._news.wait()
        else:
            await set_within(self._news, self._clock.sleep(self._due - self._clock.now()))

    def _close(self) -> None:
        """The open chunk is full, or its time is over."""
        end_ms = self._last_ms + 1
        self._due = None
        self._chunks.close(self._seq + 1, end_ms)
        for chunk in self._chunks.closed:
            chunk.frames = sample(chunk.frames, KEY_FRAMES)  # of chunks that became one
        newest = self._chunks.closed[-1]
        self._counts.append((newest.frames[0].media_time_ms, end_ms, self._shown))
        self._shown = 0
        self._prune()
        self._news.set()

    async def _carry(self, want: WantSummary) -> None:
        target = max(16, self._memory.sizes.line // 2)
        start_ms, end_ms = want.frames[0].media_time_ms, want.end_ms
        asked = replace(want, start_ms=start_ms)
        messages = picture_messages(asked, self._memory.spoken.telling, target)
        text, fault = await written(self._summarizer, messages, target, self._images.__getitem__)
        if fault is not None:
            self._numbers["failed"] += 1
            self._chunks.failed(want.chunk, want.attempt, final=False)
        elif self._chunks.landed(want.chunk) is not None:
            self._numbers["told"] += 1
            count = self._count(start_ms, end_ms)
            self._write(FramesDescribed(text=text, count=count, start_ms=start_ms, end_ms=end_ms))
        self._prune()

    def _count(self, start_ms: int, end_ms: int) -> int:
        """Pictures shown meanwhile."""
        inside = [each for each in self._counts if start_ms <= each[0] and each[1] <= end_ms]
        for each in inside:
            self._counts.remove(each)
        return sum(shown for _, _, shown in inside)

    def _prune(self) -> None:
        """Forget the pictures that no chunk needs any more."""
        needed = {frame.uuid for chunk in self._chunks.closed for frame in chunk.frames}
        needed |= {frame.uuid for _, frame in self._chunks.open.frames}
        self._images = {uuid: data for uuid, data in self._images.items() if uuid in needed}
        self._bytes = sum(map(len, self._images.values()))
