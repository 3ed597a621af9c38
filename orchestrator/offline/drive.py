"""Plays a timeline to a session through the public client, and hears it out to its end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from orchestrator.client import ClientError, VigilClient
from orchestrator.offline.record import Record
from orchestrator.offline.timeline import Packet, Recording, Timeline
from orchestrator.wire.audio import Codec, Samples

LOOK_S = 0.1
"""How often, while nothing is sent, it is looked whether all was said and heard."""


class Clock(Protocol):
    def now(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


@dataclass(frozen=True, slots=True)
class PlayOptions:
    """
    :param session: what the session is opened with besides its formats
    :param asks: each recording ends with a commit that asks for a response (turn mode); otherwise the model
        decides by itself when to speak, and nothing is committed
    :param tail_ms: silence behind each recording
    :param quiet_s: how long nothing more must come once all was said and heard
    :param drain_s: how long, after a recording, the end of its responses is waited for at most
    """

    server: str
    api_key: str | None = None
    model: str | None = None
    session: Mapping[str, Any] = field(default_factory=dict)
    asks: bool = False
    rate_hz: int = 16000
    codec: Codec = Codec.PCM16
    tail_ms: int = 1000
    quiet_s: float = 2.0
    drain_s: float = 60.0

    @property
    def opening(self) -> dict[str, Any]:
        session = dict(self.session)
        extra = {"auto_response": not self.asks, **(session.pop("extra_body", None) or {})}
        return {
            "modalities": ["audio", "text"],
            "input_audio_format": self.codec.value,
            "sample_rate_hz": self.rate_hz,
            "include": ["vigil.tick"],
            **session,
            "extra_body": extra,
        }


@dataclass(frozen=True, slots=True)
class Played:
    """What is to be written. ``heard``: everything that was said, on the clock of the stream.

    :param drained: every response ended by itself, and was heard, before the session was closed
    """

    ok: bool
    drained: bool
    against: list[str]
    session_id: str
    timeline: dict[str, Any]
    rows: list[dict[str, Any]]
    heard: Samples
    heard_rate_hz: int
    record: Record


async def play(
    recordings: list[Recording],
    options: PlayOptions,
    clock: Clock | None = None,
    stop: asyncio.Event | None = None,
) -> Played:
    """:param stop: set from outside to end it early: the session is closed, and what came so far returned
    :raises ClientError: the session could not be opened; of one that is lost later, what came is returned
    """
    return await _Play(recordings, options, clock or WallClock(), stop or asyncio.Event()).run()


class _Play:
    def __init__(
        self, recordings: list[Recording], options: PlayOptions, clock: Clock, stop: asyncio.Event
    ) -> None:
        self._recordings, self._options, self._clock, self._stop = recordings, options, clock, stop
        self._acked: dict[str, int] = {}
        self._sent_at: dict[int, float] = {}
        self._waited = 0.0
        self._record: Record

    async def run(self) -> Played:
        options, opening = self._options, self._options.opening
        client = VigilClient(options.server, model=options.model, session=opening, api_key=options.api_key)
        async with client:
            session = dict(client.protocol.session)
            timeline = self._timeline(session)
            self._record = Record(self._clock.now())
            listening = asyncio.create_task(self._listen(client))
            drained = False
            try:
                drained = await self._speak(client, timeline, listening)
                await client.close()
                await listening
            except (ClientError, TimeoutError) as error:
                # Who listens knows more than who could not send.
                known = listening.exception() if listening.done() and not listening.cancelled() else None
                self._record.lost = str(known or error) or "nothing could be sent any more"
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
        record = self._record
        ok, against = record.verdict()
        written = timeline.record(session, opening["extra_body"])
        rate = next((a.rate_hz for a in record.answers.values() if a.rate_hz), 24000)
        return Played(
            ok,
            drained,
            against,
            str(client.session_id),
            written,
            record.rows(written, self._sent_at),
            record.player.heard(rate),
            rate,
            record,
        )

    def _timeline(self, session: Mapping[str, Any]) -> Timeline:
        period = (session.get("capabilities") or {}).get("chunk_period_ms")
        return Timeline(
            self._recordings,
            rate_hz=self._options.rate_hz,
            codec=self._options.codec,
            tail_ms=self._options.tail_ms,
            unit_ms=period if isinstance(period, int) and period > 0 else 1000,
        )

    async def _listen(self, client: VigilClient) -> None:
        async for event in client.events():
            self._record.take(event, self._clock.now())

    # --- sending --------------------------------------------------------------------------------------------

    async def _speak(self, client: VigilClient, timeline: Timeline, listening: asyncio.Task[None]) -> bool:
        drained = True
        for number, turn in enumerate(timeline.turns):
            for packet in turn:
                await self._until(client, self._record.began + self._waited + packet.end_ms / 1000)
                if listening.done() or self._stop.is_set():
                    return False  # the session is over; the listener knows why
                await self._send(client, packet, timeline)
            wanted = len(self._record.answers) + 1 if self._options.asks else 0
            if self._options.asks:
                self._record.timings.committed(self._clock.now())
                await client.send({"type": "input_audio_buffer.commit", "response_create": True})
            if self._options.asks or number == len(timeline.turns) - 1:
                drained = await self._drain(client, listening, wanted) and drained
        return drained

    async def _send(self, client: VigilClient, packet: Packet, timeline: Timeline) -> None:
        hints: dict[str, Any] = {"duration_ms": packet.end_ms - packet.start_ms}
        await client.append(
            pcm=packet.data,
            frames=packet.pictures,
            frame_times_ms=packet.picture_times_ms or None,
            audio_end_ms=packet.end_ms,
            **hints,
        )
        at = self._clock.now() - self._record.began
        first, last = int(packet.start_ms) // timeline.unit_ms, int(packet.end_ms) // timeline.unit_ms
        for unit in range(first, last):
            self._sent_at[unit] = at
        if packet.end_ms >= timeline.duration_ms:
            self._sent_at.setdefault(last, at)

    async def _until(self, client: VigilClient, due: float) -> None:
        """Sleep until that time of the clock, whatever sending took; meanwhile tell what was heard."""
        await self._acknowledge(client)
        await self._clock.sleep(due - self._clock.now())

    async def _acknowledge(self, client: VigilClient) -> None:
        now, record = self._clock.now(), self._record
        for name, answer in record.answers.items():
            played = record.player.played_ms(name, now)
            if record.player.idle(now) and answer.status == "completed":
                played = answer.audio_ms  # to the ms that the server counts
            if played > self._acked.get(name, 0):
                self._acked[name] = played
                await client.ack(name, played)

    async def _drain(self, client: VigilClient, listening: asyncio.Task[None], wanted: int) -> bool:
        """Hear out what is being said, then wait for a moment of quiet. False: it did not end in time.

        :param wanted: responses that there must be by then
        """
        options, clock, record = self._options, self._clock, self._record
        began = clock.now()
        while clock.now() < began + options.drain_s and not (listening.done() or self._stop.is_set()):
            await self._acknowledge(client)
            now = clock.now()
            still = record.open or not record.player.idle(now)
            if (
                not still
                and len(record.answers) >= wanted
                and now >= max(record.moved_at, began) + options.quiet_s
            ):
                self._waited += now - began
                return True
            await clock.sleep(LOOK_S)
        self._waited += clock.now() - began
        return False
