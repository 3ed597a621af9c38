"""A bare client of the realtime route: it sends what a test says and keeps everything that comes."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

PATIENCE_S = 60.0
Event = dict[str, Any]


class Talker:
    """``async with Talker(url, query="duplex=1&autostart=0", opening={}) as talker``.

    :param url: ``http://host:port`` of the server
    :param opening: the first ``session.update``; without it nothing is sent
    """

    def __init__(
        self,
        url: str,
        path: str = "/v1/realtime",
        query: str = "duplex=1&autostart=0",
        *,
        opening: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        subprotocols: Sequence[str] | None = None,
        **more: Any,
    ) -> None:
        self._address = f"ws{url.removeprefix('http')}{path}" + (f"?{query}" if query else "")
        self._opening = opening
        self._more = {
            "additional_headers": headers,
            "subprotocols": subprotocols,
            "max_size": None,
            "compression": None,
            "proxy": None,
            **more,
        }
        self.seen: list[Event] = []
        self.session: Event = {}
        self.token: str | None = None
        self.socket: ClientConnection

    async def __aenter__(self) -> Talker:
        self.socket = await connect(self._address, **self._more)
        if self._opening is not None:
            await self.send("session.update", session=dict(self._opening))
            await self.opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drop()
        await self.socket.wait_closed()

    @property
    def session_id(self) -> str:
        return str(self.session["id"])

    @property
    def last_seq(self) -> int:
        return max((e["server_event_seq"] for e in self.seen if "server_event_seq" in e), default=0)

    async def opened(self) -> Event:
        created = await self.next()
        assert created["type"] == "session.created", created
        self.session, self.token = created["session"], created.get("resume_token")
        assert (await self.next())["type"] == "session.updated"
        return created

    async def send(self, type_: str, **fields: Any) -> None:
        await self.socket.send(orjson.dumps({"type": type_, **fields}).decode())

    async def raw(self, frame: str | bytes) -> None:
        await self.socket.send(frame)

    async def next(self) -> Event:
        """The next event. Raises ``ConnectionClosed`` at the end."""
        async with asyncio.timeout(PATIENCE_S):
            event: Event = orjson.loads(await self.socket.recv())
        self.seen.append(event)
        return event

    async def until(self, type_: str, where: Callable[[Event], bool] = lambda _: True) -> Event:
        """Read on to the next event of that type; those before it are in ``seen``."""
        while True:
            event = await self.next()
            if event["type"] == type_ and where(event):
                return event

    async def error(self, code: str) -> Event:
        """The next error, which must have that code; its ``error`` object."""
        body: Event = (await self.until("error"))["error"]
        assert body["code"] == code, body
        return body

    async def answered(self) -> list[Event]:
        """Everything up to the answer to a heartbeat: what was sent before has been executed then."""
        start = len(self.seen)
        await self.send("session.heartbeat")
        await self.until("session.heartbeat_ack")
        return self.seen[start:-1]

    async def closed(self) -> tuple[int, str]:
        """Read to the end; code and reason of the close."""
        try:
            while True:
                await self.next()
        except ConnectionClosed as closed:
            received = closed.rcvd
            assert received is not None, "the connection broke"
            return received.code, received.reason

    def drop(self) -> None:
        """Cut the connection without a word."""
        self.socket.transport.abort()

    def of(self, type_: str) -> list[Event]:
        return [event for event in self.seen if event["type"] == type_]

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.seen]

    # --- common commands ---

    async def speech(self, ms: int = 200, *, rate: int = 16000, loud: bool = True, **more: Any) -> None:
        """Append that much sound, or silence."""
        await self.send("input_audio_buffer.append", audio=pcm16(ms, rate, loud=loud), **more)

    async def show(self, *pictures: bytes, **more: Any) -> None:
        frames = [base64.b64encode(picture).decode() for picture in pictures]
        await self.send("input_audio_buffer.append", video_frames=frames, **more)

    async def ask(self, text: str, **item: Any) -> None:
        content = [{"type": "input_text", "text": text}]
        message = {"type": "message", "role": "user", "content": content, **item}
        await self.send("conversation.item.create", item=message)


def pcm16(ms: int, rate: int = 16000, *, loud: bool = True) -> str:
    """Base64 of a tone, or of silence."""
    time = np.arange(ms * rate // 1000) / rate
    wave = np.sin(time * 2 * np.pi * 220) * (0.3 if loud else 0.0)
    return base64.b64encode((wave * 32767).astype("<i2").tobytes()).decode()


async def resumed(url: str, talker: Talker, *, token: str | None = None, after: int | None = None) -> Talker:
    """A fresh socket that presents a session's token; nothing has been read from it yet."""
    other = Talker(url)
    await other.__aenter__()
    await other.send(
        "session.resume",
        session_id=talker.session_id,
        resume_token=talker.token if token is None else token,
        last_received_server_event_seq=talker.last_seq if after is None else after,
    )
    other.session = talker.session
    return other
