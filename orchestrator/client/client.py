"""The async shell around ``ClientProtocol``: one socket at a time, bounded reading, automatic resume."""

from __future__ import annotations

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from orchestrator.client.protocol import ClientError, ClientProtocol, Incoming, Invitation, SessionLost

QUEUE = 1024
"""Events read ahead of the application. When it is full the socket is not read: the server holds back."""
HEARTBEAT_S = 30.0
OPEN_S = 30.0
CLOSE_S = 20.0
RESUME_S = 30.0
"""A service that is started anew, or another one that takes its sessions over, needs some seconds."""


class VigilClient:
    """One realtime session.

    ::

        async with VigilClient("ws://127.0.0.1:8070/v1/realtime", model="standin") as vigil:
            await vigil.ask("Tell me when the red car reaches the bridge.")
            await vigil.append(frames=[jpeg], frame_times_ms=[0])
            async for event in vigil.events(): ...

    :param url: ``ws://``, ``wss://``, ``http://`` or ``https://`` address; the path defaults to
        ``/v1/realtime``
    :param session: the opening session object (instructions, modalities, include ...)
    :param invitation: joins a session that is there, in place of opening one
    :param api_key: sent as a bearer key
    :param resume_s: for so long it tries to carry on over a new socket when one is lost; 0: it does not;
        default: ``RESUME_S``
    :param jitter: random number in [0, 1) for the delays between resume attempts
    :raises ClientError: ``invalid_url`` from the start; when entered, the service's own code where it
        refuses, ``connection_failed``, ``connection_lost``, ``invalid_event`` or ``open_timeout``
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        session: dict[str, Any] | None = None,
        invitation: Invitation | None = None,
        api_key: str | None = None,
        resume_s: float | None = None,
        heartbeat_s: float = HEARTBEAT_S,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        opening = {**({"model": model} if model else {}), **(session or {})}
        self.protocol = ClientProtocol(opening, invitation)
        self._url = _session_url(url)
        self._server = url
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._resume_s = RESUME_S if resume_s is None else resume_s
        self._heartbeat_s, self._jitter = heartbeat_s, jitter
        self._queue: asyncio.Queue[Incoming | Exception | None] = asyncio.Queue(QUEUE)
        self._socket: ClientConnection | None = None
        self._writable = asyncio.Event()
        self._opened: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def session_id(self) -> str | None:
        return self.protocol.session_id

    async def __aenter__(self) -> Self:
        self._opened = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(self._run()), asyncio.create_task(self._beat())]
        try:
            async with asyncio.timeout(OPEN_S):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self._stop()
            raise ClientError("open_timeout", f"{self._server} opened no session in {OPEN_S:g} s") from None
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, event: dict[str, Any]) -> str:
        """Send a client event as it is, with an ``event_id`` if it has none; returns that id.

        While a lost socket is being resumed this waits. Raises ``SessionLost`` when the session is over.
        """
        event = {"event_id": f"evt_{uuid4().hex}", **event}
        frame = orjson.dumps(event).decode()
        while True:
            async with asyncio.timeout(self._resume_s + OPEN_S):
                await self._writable.wait()
            if self._socket is None:
                raise SessionLost(self.protocol.closed or "session_closed", "the session is over")
            try:
                await self._socket.send(frame)
            except ConnectionClosed:
                if not self._may_resume():
                    raise SessionLost("connection_lost", "the connection was lost") from None
                self._writable.clear()
            else:
                return str(event["event_id"])

    async def ask(self, text: str) -> str:
        """Set the standing query."""
        part = {"type": "input_text", "text": text}
        item = {"type": "message", "role": "user", "content": [part]}
        return await self.send({"type": "conversation.item.create", "item": item})

    async def append(
        self,
        *,
        frames: Sequence[bytes] = (),
        frame_times_ms: Sequence[int] | None = None,
        frame_ids: Sequence[str] | None = None,
        pcm: bytes | None = None,
        operation_id: str | None = None,
        **hints: Any,
    ) -> str:
        """Send media: at most two JPEG or PNG frames, PCM16 in the session's format, or both."""
        event: dict[str, Any] = {"type": "input_audio_buffer.append", **hints}
        if frames:
            event["video_frames"] = [base64.b64encode(frame).decode() for frame in frames]
        if frame_times_ms is not None:
            event["frame_times_ms"] = list(frame_times_ms)
        if frame_ids is not None:
            event["frame_ids"] = list(frame_ids)
        if pcm is not None:
            event["audio"] = base64.b64encode(pcm).decode()
        # A retry of the same append over a new socket must not count twice.
        event["operation_id"] = operation_id or f"op_{uuid4().hex}"
        return await self.send(event)

    async def cancel(self, response_id: str | None = None) -> str:
        named = {"response_id": response_id} if response_id else {}
        return await self.send({"type": "response.cancel", **named})

    async def ack(self, response_id: str, played_ms: int) -> str:
        """Tell the server how much of a response was played."""
        return await self.send({"type": "playback.ack", "response_id": response_id, "played_ms": played_ms})

    async def events(self) -> AsyncIterator[Incoming]:
        """Every event once and in order; ends when the session ends. A process that ends says
        ``session.closed``; where it is followed by another one in time, a ``ConnectionResumed`` comes next.

        :raises ClientError: the session was lost
        """
        while (event := await self._queue.get()) is not None:
            if isinstance(event, Exception):
                raise event
            yield event

    async def close(self) -> None:
        """End the session and wait for the server's word that it is gone."""
        if self.protocol.ready and self.protocol.closed is None and self._socket is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await self.send({"type": "session.close"})
                    await self._tasks[0]
            except (TimeoutError, ClientError):
                pass
        await self._stop()

    async def leave(self) -> None:
        """Close the connection and let the session go on without this client."""
        if self._socket is not None:
            await self._socket.close()
        await self._stop()

    async def drop(self) -> None:
        """Cut the connection without a word, as a bad network would."""
        if self._socket is not None:
            self._socket.transport.abort()

    # --- inside ---------------------------------------------------------------------------------------

    def _may_resume(self) -> bool:
        return self._resume_s > 0 and self.protocol.can_resume

    async def _run(self) -> None:
        try:
            attempt, since = 0, monotonic()
            while attempt == 0 or monotonic() - since < self._resume_s:
                if await self._one_socket():
                    attempt, since = 0, monotonic()
                if not self._may_resume():
                    break
                attempt += 1
                await asyncio.sleep(0.25 + self._jitter() * (min(4.0, 0.25 * 2**attempt) - 0.25))
            if self.protocol.closed is None:
                raise SessionLost("connection_lost", "the connection was lost and could not be resumed")
            await self._deliver(None)
        except ClientError as error:
            await self._fail(error)
        except InvalidStatus as refused:
            await self._fail(_refusal(self._server, refused))
        except (OSError, InvalidHandshake) as error:
            told = f"can't reach {self._server}: {str(error) or 'no answer'}; is vigil serve running there?"
            await self._fail(ClientError("connection_failed", told))
        except ValueError as error:
            await self._fail(ClientError("invalid_event", f"{self._server} sent what is no event: {error}"))
        finally:
            self._socket = None
            self._writable.set()

    async def _fail(self, error: ClientError) -> None:
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(error)
        else:
            await self._deliver(error)

    async def _one_socket(self) -> bool:
        """Serve one connection to its end. True when it became ready."""
        fresh = self.protocol.session_id is None
        try:
            socket = await connect(
                self._url, additional_headers=self._headers, max_size=64 * 2**20, open_timeout=OPEN_S
            )
        except (OSError, TimeoutError, InvalidHandshake):
            if fresh:
                raise
            return False
        ready = False
        try:
            await socket.send(orjson.dumps(self.protocol.first_message()).decode())
            async for frame in socket:
                received = self.protocol.receive(orjson.loads(frame))
                if received.reply is not None:
                    # A server that has closed wants no thanks; what it said before is still to be read.
                    with suppress(ConnectionClosed):
                        await socket.send(orjson.dumps(received.reply).decode())
                for event in received.events:
                    await self._deliver(event)
                if self.protocol.ready and not ready:
                    ready = True
                    self._socket = socket
                    self._writable.set()
                    if self._opened is not None and not self._opened.done():
                        self._opened.set_result(None)
        except ConnectionClosed:
            pass
        finally:
            self._writable.clear()
            self._socket = None
            socket.transport.abort()
        if fresh and not ready:
            raise ClientError("connection_lost", "the server closed before the session was open")
        return ready

    async def _deliver(self, event: Incoming | Exception | None) -> None:
        await self._queue.put(event)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if self._socket is not None and self.protocol.ready:
                try:
                    await self._socket.send('{"type":"session.heartbeat"}')
                except ConnectionClosed:
                    continue

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _session_url(url: str) -> str:
    """The address with the path and query that open nothing before our first message."""
    try:
        parts = urlsplit(url)
        known = (
            parts.scheme in {"ws", "wss", "http", "https"}
            and parts.hostname
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        known = False
    if not known:
        raise ClientError("invalid_url", f"{url} is no address of a service: write http://HOST:PORT")
    query = dict(parse_qsl(parts.query))
    query.setdefault("duplex", "1")
    query["autostart"] = "0"
    path = parts.path if parts.path not in {"", "/"} else "/v1/realtime"
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    return urlunsplit(parts._replace(scheme=scheme, path=path, query=urlencode(query)))


def _refusal(server: str, refused: InvalidStatus) -> ClientError:
    """What the service answered to the handshake, in its own words where it is one of ours."""
    status = refused.response.status_code
    try:
        error = orjson.loads(refused.response.body)["error"]
        return ClientError(str(error["code"]), str(error["message"]))
    except (ValueError, LookupError, TypeError):
        return ClientError(
            "connection_failed", f"{server} answered with status {status}; is it a vigil serve?"
        )
