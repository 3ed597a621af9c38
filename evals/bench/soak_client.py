"""One client of the soak: a session with a mark of its own, and a way to behave.

Ways: ``watch`` shows frames and lets the model decide; ``probe`` shows a frame, later asks for words, and
measures; ``slow`` stops reading for seconds; ``reconnect`` loses its connection; ``cancel`` cancels what it
asked for; ``mutant`` sends what it should not; ``churn`` closes and opens sessions.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from evals.bench.mutants import Mutants
from evals.bench.scripted_engine import SAID

WAYS = (*["watch"] * 8, *["probe"] * 5, "slow", "reconnect", "reconnect", "cancel", "mutant", "churn")
"""Clients take them in turn."""

PERIOD_S = 1.0
ASK_AFTER_S = 0.45
"""From a probe's frame to its request: the frame is decoded and stored by then."""
PATIENCE_S = 10.0
"""After which a probe asks again, whatever became of its last request."""
READ_AHEAD = (16, 4)
RECKONED = frozenset({"commit_aborted", "session_update_aborted"})
"""What follows from an append that was refused."""


@dataclass
class Tally:
    """What all clients of one process saw. Times in seconds.

    :param asked: a probe's request sent to its engine request received
    :param worded: last words left the engine to their event received; ``ended``: ... to ``response.done``
    :param shown: a watcher's frame sent to its engine request received, decoding included
    :param faults: what must not happen
    """

    asked: deque[float] = field(default_factory=lambda: deque(maxlen=200_000))
    worded: deque[float] = field(default_factory=lambda: deque(maxlen=200_000))
    ended: deque[float] = field(default_factory=lambda: deque(maxlen=200_000))
    whole: deque[float] = field(default_factory=lambda: deque(maxlen=200_000))
    shown: deque[float] = field(default_factory=lambda: deque(maxlen=200_000))
    counts: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        self.counts["faults"] += 1
        if len(self.faults) < 50:
            self.faults.append(text)


class Lost(Exception):
    """The session ended and nobody had asked for it."""


class SoakClient:
    """
    :param pictures: encoded frames to show
    :param measuring: set while measurements count
    """

    def __init__(
        self,
        url: str,
        number: int,
        way: str,
        pictures: Sequence[bytes],
        tally: Tally,
        measuring: asyncio.Event,
    ) -> None:
        self.mark = f"s{number}"
        self._url = f"{url}?duplex=1&autostart=0"
        self._way = way
        self._chance = random.Random(number)
        self._pictures = [base64.b64encode(picture).decode() for picture in pictures]
        self._mutants = Mutants(number, pictures[:2], audio=False)
        self._tally = tally
        self._measuring = measuring
        self._frames = 0
        self._socket: ClientConnection
        self._reader: asyncio.Task[None]
        self._reading = asyncio.Event()
        self._reading.set()
        self._session = self._token = ""
        self._seq = 0
        self._over: str | None = None
        self._texts: dict[str, list[tuple[str, float]]] = {}
        self._asked_at: float | None = None
        self._shown_at: deque[float] = deque(maxlen=8)

    async def run(self, until: float) -> None:
        """Behave until then, and close in order."""
        while time.monotonic() < until:
            try:
                await self._one_session(until)
            except (Lost, OSError, TimeoutError, ConnectionClosed) as lost:
                self._tally.fault(
                    f"{self._way} {self.mark}: {type(lost).__name__} {lost}; {self._over or ''}"
                )
                await asyncio.sleep(PERIOD_S)

    async def _one_session(self, until: float) -> None:
        await self._open()
        lasts = self._chance.uniform(10, 40) if self._way == "churn" else float("inf")
        until = min(until, time.monotonic() + lasts)
        try:
            await self._ask_for_mark()
            due = time.monotonic() + self._chance.random() * PERIOD_S
            while due < until:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._beat()
                due += PERIOD_S * (1.0 if self._way == "probe" else self._chance.uniform(0.97, 1.06))
            await self._close()
        finally:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
            self._socket.transport.abort()

    # --- ways -------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        if self._over is not None:
            raise Lost(self._over)
        chance = self._chance.random()
        if self._way == "slow" and self._reading.is_set() and chance < 0.05:
            self._reading.clear()
            asyncio.get_running_loop().call_later(self._chance.uniform(2, 8), self._reading.set)
            self._tally.counts["stalls"] += 1
        elif self._way == "reconnect" and chance < 0.08:
            await self._reconnect()
        elif self._way == "mutant":
            for _ in range(5):
                await self._socket.send(self._mutants.frame())
            self._tally.counts["mutants"] += 5
        await self._show()
        if self._way in ("probe", "cancel"):
            await asyncio.sleep(ASK_AFTER_S)
            if self._asked_at is not None and time.monotonic() - self._asked_at < PATIENCE_S:
                self._tally.counts["late"] += 1  # its last answer is not there yet
                return
            self._asked_at = time.monotonic()
            await self._send({"type": "input_audio_buffer.commit", "response_create": True})
            if self._way == "cancel" and chance < 0.5:
                await self._send({"type": "response.cancel"})
        await self._send({"type": "session.event_ack", "server_event_seq": self._seq})

    async def _show(self) -> None:
        self._frames += 1
        self._shown_at.append(time.monotonic())
        picture = self._pictures[self._frames % len(self._pictures)]
        await self._send(
            {
                "type": "input_audio_buffer.append",
                "video_frames": [picture],
                "frame_times_ms": [round(self._frames * PERIOD_S * 1000)],
            }
        )

    async def _ask_for_mark(self) -> None:
        content = [{"type": "input_text", "text": f"Tell me when [[{self.mark}]] comes."}]
        item = {"type": "message", "role": "user", "content": content}
        await self._send({"type": "conversation.item.create", "item": item})

    # --- the connection ---------------------------------------------------------------------------------

    async def _open(self) -> None:
        self._seq, self._over, self._frames = 0, None, 0
        auto = self._way not in ("probe", "cancel")
        session = {"extra_body": {"auto_response": auto}, "instructions": f"You watch for {self.mark}."}
        await self._join({"type": "session.update", "session": session}, "session.created")
        self._tally.counts["sessions"] += 1

    async def _reconnect(self) -> None:
        self._socket.transport.abort()
        await asyncio.wait([self._reader])
        if self._over is not None:
            raise Lost(self._over)
        first = {
            "type": "session.resume",
            "session_id": self._session,
            "resume_token": self._token,
            "last_received_server_event_seq": self._seq,
        }
        await self._join(first, "session.resumed")
        self._tally.counts["resumes"] += 1

    async def _join(self, first: dict[str, Any], wanted: str) -> None:
        self._socket = await connect(
            self._url, max_size=None, compression=None, proxy=None, max_queue=READ_AHEAD, ping_interval=None
        )
        await self._socket.send(orjson.dumps(first).decode())
        async with asyncio.timeout(30):
            answer = orjson.loads(await self._socket.recv())
        if answer["type"] != wanted:
            raise Lost(f"{wanted} was answered by {answer}")
        self._session, self._token = answer["session"]["id"], answer["resume_token"]
        self._reader = asyncio.create_task(self._read(self._socket))

    async def _close(self) -> None:
        self._reading.set()
        await self._send({"type": "session.close"})
        await asyncio.wait([self._reader], timeout=30)
        if self._over != "client_close":
            raise Lost(f"a close was answered by {self._over}")

    async def _send(self, event: dict[str, Any]) -> None:
        await self._socket.send(orjson.dumps(event).decode())

    # --- what comes -------------------------------------------------------------------------------------

    async def _read(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while True:
                await self._reading.wait()
                frame = await socket.recv()
                self._take(orjson.loads(frame), time.monotonic())

    def _take(self, event: dict[str, Any], now: float) -> None:
        self._tally.counts["events"] += 1
        seq = event.get("server_event_seq")
        if seq is not None:
            if seq != self._seq + 1:
                self._tally.fault(f"{self.mark}: event {seq} after {self._seq}")
            self._seq = seq
        match event["type"]:
            case "response.output_text.delta":
                self._texts.setdefault(event["response_id"], []).append((event["delta"], now))
            case "response.done":
                self._done(self._texts.pop(event["response"]["id"], []), now)
            case "error":
                self._refused(event["error"])
            case "session.closed" | "session.expired":
                self._over = str(event["reason"])
            case "session.resync_required" | "session.replaced":
                self._tally.fault(f"{self.mark}: {event['type']}")

    def _done(self, texts: list[tuple[str, float]], now: float) -> None:
        said = SAID.search("".join(text for text, _ in texts))
        asked, self._asked_at = self._asked_at, None
        if said is None:  # cut short by a cancel
            self._tally.counts["cut"] += 1
            return
        self._tally.counts["answers"] += 1
        if said[1] != self.mark and self._way != "mutant":
            self._tally.fault(f"{self.mark} was told what {said[1]} was to be told")
            self._tally.counts["leaks"] += 1
        if not self._measuring.is_set():
            return
        arrived, left = float(said[3]), float(said[4])
        if self._way == "probe" and asked is not None and arrived > asked:
            self._tally.asked.append(arrived - asked)
            self._tally.worded.append(texts[-1][1] - left)
            self._tally.ended.append(now - left)
            self._tally.whole.append(arrived - asked + now - left)
        elif self._way == "watch":
            shown = max((at for at in self._shown_at if at < arrived), default=None)
            if shown is not None:
                self._tally.shown.append(arrived - shown)

    def _refused(self, error: dict[str, Any]) -> None:
        code = str(error["code"])
        self._tally.errors[code] += 1
        if error["type"] == "rate_limit_error" or code in RECKONED:
            self._tally.counts["held_back"] += 1  # as it should be where it cannot keep up
        elif error["type"] == "server_error":
            self._tally.fault(f"{self._way} {self.mark}: {error}")
        elif self._way not in ("mutant", "cancel"):
            self._tally.fault(f"{self._way} {self.mark} was refused: {error}")
