"""``DuplexLink``: the socket around ``DuplexProtocol``. One writer; a lost socket is taken up again."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import uuid4

from websockets.exceptions import ConnectionClosed

from bridges.circuit import Clock, RealClock
from bridges.duplex_client.address import session_url
from bridges.duplex_client.link import (
    AudioChunk,
    EngineEvent,
    EngineUnit,
    Heard,
    LinkCode,
    LinkEnded,
    LinkError,
    LinkOptions,
    OpenedSession,
    SpokenText,
    ToolCall,
)
from bridges.duplex_client.outgoing import Phase
from bridges.duplex_client.protocol import DuplexProtocol
from bridges.duplex_client.reaping import reap
from bridges.duplex_client.sockets import Dial, EngineSocket, dial, within

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.25, 4.0
MAX_WAITING_BYTES = 16 * 2**20
"""Of audio and words that wait for the reader; then the socket is not read on."""


def system_event_ids() -> str:
    return f"evt_{uuid4().hex}"


def _weight(event: EngineEvent) -> int:
    """Bytes of what can be large in an event."""
    match event:
        case AudioChunk(pcm=pcm):
            return len(pcm)
        case SpokenText(text=text) | Heard(transcript=text) | ToolCall(arguments=text):
            return len(text)
        case _:
            return 0


class DuplexLink:
    """Implements ``EngineLink`` over one WebSocket at a time.

    :param jitter: random number in [0, 1) for the waits between attempts to resume
    """

    def __init__(
        self,
        options: LinkOptions,
        *,
        clock: Clock | None = None,
        jitter: Callable[[], float] = random.random,
        ids: Callable[[], str] = system_event_ids,
        dial: Dial = dial,
    ) -> None:
        self._options, self._clock, self._jitter, self._dial = options, clock or RealClock(), jitter, dial
        self._protocol = DuplexProtocol(options, ids)
        self._futures: dict[str, asyncio.Future[Any]] = {}
        self._events: deque[EngineEvent] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._drained = asyncio.Event()
        self._wake_writer = asyncio.Event()
        self._wake_timer = asyncio.Event()
        self._timer_at: float | None = None
        self._ended = asyncio.Event()
        self._closing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._most_waiting = 0

    # --- commands -------------------------------------------------------------------------------------

    async def open(self, session: Mapping[str, Any]) -> OpenedSession:
        if self._task is not None or self._protocol.phase is not Phase.NEW:
            raise LinkError(LinkCode.LINK_CLOSED, "a link opens one session, once")
        url = session_url(self._options.url, self._options.model)
        event_id = self._protocol.open(session)
        self._task = asyncio.create_task(self._run(url), name="duplex link")
        opened: OpenedSession = await self._settled(event_id)
        return opened

    async def append(self, unit: EngineUnit) -> str:
        return str(await self._settled(self._protocol.append(unit)))

    async def commit(self, *, create_response: bool) -> None:
        await self._settled(self._protocol.commit(create_response))

    async def create_response(self, options: Mapping[str, Any]) -> None:
        await self._settled(self._protocol.create_response(options))

    async def clear(self) -> None:
        await self._settled(self._protocol.clear())

    async def add_item(self, item: Mapping[str, Any]) -> None:
        await self._settled(self._protocol.add_item(item))

    async def update(self, session: Mapping[str, Any]) -> Mapping[str, Any]:
        updated: Mapping[str, Any] = await self._settled(self._protocol.update(session))
        return updated

    async def cancel(self, response_id: str | None) -> None:
        await self._settled(self._protocol.cancel(response_id))

    async def playback(self, response_id: str, played_ms: int, committed_ms: int) -> None:
        self._protocol.playback(response_id, played_ms, committed_ms)
        self._flush()

    async def close(self, reason: str) -> bool:
        async with self._closing:
            protocol = self._protocol
            if self._task is None:
                protocol.end(LinkCode.LINK_CLOSED, "the link was never opened", True)
            elif protocol.phase is not Phase.ENDED:
                await self._close_here(reason)
            elif not protocol.confirmed:
                protocol.confirmed, protocol.token = await reap(
                    self._options, self._clock, self._dial, protocol, reason
                )
            await self._stop()
            return bool(protocol.confirmed)

    async def _close_here(self, reason: str) -> None:
        """Say it on the socket that is there, or comes back, and wait for the engine's word."""
        self._protocol.close(reason)
        self._drained.set()
        self._flush()
        try:
            await within(self._clock, self._options.close_s, self._ended.wait())
        except TimeoutError:
            told = f"the engine did not say that it closed within {self._options.close_s:g} s"
            self._protocol.end(LinkCode.TIMEOUT, told, not self._protocol.reached)

    async def events(self) -> AsyncIterator[EngineEvent]:
        while True:
            while self._events:
                event = self._events.popleft()
                self._bytes -= _weight(event)
                self._drained.set()
                yield event
                if isinstance(event, LinkEnded):
                    return
            if self._ended.is_set():
                return
            self._arrived.clear()
            await self._arrived.wait()

    def statistics(self) -> Mapping[str, Any]:
        protocol = self._protocol
        return {
            "phase": protocol.phase.name.lower(),
            "events_waiting": len(self._events),
            "events_waiting_bytes": self._bytes,
            "events_waiting_most": self._most_waiting,
            "frames_unwritten": protocol.unwritten_frames,
            "appends_unconfirmed": protocol.confirming.unconfirmed,
            "replies_waiting": len(protocol.replies),
            "replies_late": protocol.replies.late,
            "seen": protocol.sequence.seen,
            **{f"events_{kind}": count for kind, count in sorted(protocol.counts.items())},
        }

    # --- inside ---------------------------------------------------------------------------------------

    async def _settled(self, event_id: str) -> Any:
        """What became of a command; if its caller goes away first, an unwritten one is never written."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._futures[event_id] = future
        self._flush()
        try:
            return await future
        finally:
            if self._futures.pop(event_id, None) is not None:
                self._protocol.leave(event_id)

    def _flush(self) -> None:
        """Hand out what the protocol has to say, and wake whoever has to act on it."""
        protocol = self._protocol
        while protocol.events:
            event = protocol.events.popleft()
            if self._full and protocol.closing and not isinstance(event, LinkEnded):
                # A close waits for nobody who has stopped to read.
                protocol.counts["unread"] += 1
                continue
            self._events.append(event)
            self._bytes += _weight(event)
            self._most_waiting = max(self._most_waiting, len(self._events))
            self._arrived.set()
        if protocol.replies.settled:
            settled, protocol.replies.settled = protocol.replies.settled, []
            for event_id, result in settled:
                future = self._futures.pop(event_id, None)
                if future is None or future.done():
                    continue
                if isinstance(result, LinkError):
                    future.set_exception(result)
                else:
                    future.set_result(result)
        if protocol.phase is Phase.ENDED:
            self._ended.set()
        self._wake_writer.set()
        due = protocol.due()
        if due is not None and (self._timer_at is None or due < self._timer_at):
            self._wake_timer.set()

    async def _run(self, url: str) -> None:
        """The link's whole life: the first socket, and those that take it up again."""
        try:
            await self._first(url)
            while self._protocol.phase is Phase.LOST:
                await self._resume(url)
        except LinkError as error:
            self._protocol.end(error.code, error.message, True)
        finally:
            self._protocol.end(LinkCode.LINK_CLOSED, "the link was closed", not self._protocol.reached)
            self._flush()

    async def _first(self, url: str) -> None:
        await self._serve(await self._dial(url, self._options, self._clock, self._options.open_s))

    async def _resume(self, url: str) -> None:
        """Try until a socket carries the session again and is lost anew, or the time for it is over."""
        by = self._lost_at + self._options.resume_s
        attempt = 0
        reason = "it stayed away"
        while self._protocol.phase is Phase.LOST:
            most = min(BACKOFF_MAX_S, BACKOFF_MIN_S * 2**attempt)
            # The first attempt is early: most losses are one socket's, not the engine's.
            least = BACKOFF_MIN_S if attempt else 0.0
            wait = least + self._jitter() * (most - least)
            attempt += 1
            left = by - self._clock.now()
            await self._clock.sleep(max(0.0, min(wait, left)))
            left = by - self._clock.now()
            if left <= 0:
                told = f"the session was not taken up again within {self._options.resume_s:g} s: {reason}"
                self._protocol.end(LinkCode.LINK_LOST, told, False)
                return
            try:
                socket = await self._dial(url, self._options, self._clock, min(left, self._options.reply_s))
            except LinkError as error:
                reason = error.message
                continue
            resumed = self._protocol.counts["resumed"]
            await self._serve(socket, min(by, self._clock.now() + self._options.reply_s))
            if self._protocol.counts["resumed"] != resumed:
                return

    async def _serve(self, socket: EngineSocket, resume_by: float | None = None) -> None:
        """One socket to its end. Afterwards the protocol knows what of each frame was written."""
        protocol = self._protocol
        protocol.connected(self._clock.now(), resume_by)
        self._flush()
        writer = asyncio.create_task(self._write(socket), name="duplex writer")
        reader = asyncio.create_task(self._read(socket), name="duplex reader")
        timer = asyncio.create_task(self._time(), name="duplex timer")
        try:
            # Not the writer: when nothing can be written any more, there may still be something to read.
            await asyncio.wait({reader, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # A write that is under way breaks off here, or was whole before: the writer tells which.
            socket.transport.abort()
            timer.cancel()
            reader.cancel()
            self._wake_writer.set()
            await asyncio.gather(writer, reader, timer, return_exceptions=True)
            self._timer_at = None
            self._lost_at = self._clock.now()
            protocol.lost(protocol.broken or "the connection broke")
            self._flush()
        for task in (writer, reader, timer):
            if not task.cancelled():
                task.result()

    async def _write(self, socket: EngineSocket) -> None:
        while not socket.transport.is_closing():
            frame = self._protocol.next_frame(self._clock.now())
            if frame is None:
                self._wake_writer.clear()
                await self._wake_writer.wait()
            elif await socket.put(frame.text):
                self._protocol.written(frame, self._clock.now())
                self._flush()
            else:
                self._protocol.unwritten(frame)
                return

    async def _read(self, socket: EngineSocket) -> None:
        protocol = self._protocol
        with suppress(ConnectionClosed):
            while protocol.broken is None and protocol.phase is not Phase.ENDED:
                protocol.receive(await socket.recv(), self._clock.now())
                self._flush()
                await self._room()

    @property
    def _full(self) -> bool:
        return len(self._events) >= self._options.event_queue or self._bytes >= MAX_WAITING_BYTES

    async def _room(self) -> None:
        """Wait until the reader of the events has caught up; nothing is read from the socket meanwhile."""
        if not self._full:
            return
        self._protocol.pause()
        while self._full and not self._protocol.closing:
            self._drained.clear()
            await self._drained.wait()
        self._protocol.unpause(self._clock.now())

    async def _time(self) -> None:
        protocol = self._protocol
        while protocol.broken is None and protocol.phase is not Phase.ENDED:
            self._wake_timer.clear()
            self._timer_at = protocol.due()
            if self._timer_at is None:
                await self._wake_timer.wait()
            else:
                with suppress(TimeoutError):
                    await within(self._clock, self._timer_at - self._clock.now(), self._wake_timer.wait())
            self._timer_at = None
            protocol.poll(self._clock.now())
            self._flush()

    async def _stop(self) -> None:
        self._protocol.end(LinkCode.LINK_CLOSED, "the link was closed", not self._protocol.reached)
        self._flush()
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
