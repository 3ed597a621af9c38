"""``vigil talk``: a session in a terminal. Lines go in, words come out as they are said."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from bridges.answers import answered
from bridges.frames import FrameBounds
from bridges.media import MediaError, MediaOptions, open_media
from orchestrator.client import ClientError, Invitation, SessionLost, VigilClient
from orchestrator.client.protocol import Incoming
from orchestrator.exits import Exit, exit_of_session, exit_of_source
from orchestrator.wire import server as wire

_BOUNDS = FrameBounds(28 * 28, 1920 * 1920)
_PERIOD_MS = 1000
_LAST_ANSWER_S = 120.0
_LINES = 64
_ANSWER_S, _MOST = 10.0, 2**20

_RACES = frozenset({"response_not_active", "response_already_active"})
"""Refusals that mean only that the other side was faster."""


@dataclass(frozen=True, slots=True)
class TalkOptions:
    """:param session: one that is there, by its id or name, to join in place of opening one
    :param images: picture files, shown at once; ``videos``: files or streams, shown at their own speed"""

    server: str
    api_key: str | None = None
    model: str | None = None
    instructions: str | None = None
    session: str | None = None
    images: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()


def talk(options: TalkOptions) -> Exit:
    """Blocks until the input ends and everything asked was answered, or until Ctrl-C."""
    return asyncio.run(_Talk(options).run())


class _Talk:
    def __init__(self, options: TalkOptions) -> None:
        self._options = options
        self._stop = asyncio.Event()
        self._moved = asyncio.Event()
        self._speaking: set[str] = set()
        self._asked: list[str] = []
        self._shown_ms = -_PERIOD_MS
        self._decided_ms = -_PERIOD_MS
        self._mid_line = False
        self._ended: str | None = None

    async def run(self) -> Exit:
        options = self._options
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop.set)
        # A terminal makes no sound.
        session: dict[str, Any] = {"include": ["vigil.tick"], "modalities": ["text"]}
        if options.instructions:
            session["instructions"] = options.instructions
        try:
            client = VigilClient(
                options.server,
                model=options.model,
                session=session,
                invitation=await self._invitation(),
                api_key=options.api_key,
            )
            async with client:
                model = client.protocol.session.get("model")
                end = "leaves" if options.session else "ends"
                self._tell(f"session {client.session_id} with {model}; Ctrl-C {end} it")
                await self._converse(client)
        except ClientError as error:
            self._tell(error.message)
            return exit_of_session(error.code)
        except MediaError as error:
            self._tell(error.message)
            return exit_of_source(error.code)
        if self._ended not in (None, "client_close"):
            self._tell(f"the session was ended: {self._ended}")
            return Exit.FAILED
        return Exit.OK

    async def _invitation(self) -> Invitation | None:
        """To the session that is to be joined, from the service."""
        options = self._options
        if options.session is None:
            return None
        headers = {"authorization": f"Bearer {options.api_key}"} if options.api_key else {}
        path = f"/v1/sessions/{quote(options.session, safe='')}/attach-token"
        try:
            async with httpx.AsyncClient(base_url=options.server, headers=headers, trust_env=False) as http:
                status, told = await answered(http, "POST", path, within_s=_ANSWER_S, most=_MOST)
            body = orjson.loads(told)
        except httpx.InvalidURL as error:
            raise ClientError("invalid_url", f"can't reach {options.server}: {error}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise ClientError("connection_failed", f"can't reach {options.server}: {error}") from error
        try:
            if "error" in body:
                raise ClientError(str(body["error"]["code"]), str(body["error"]["message"]))
            return Invitation(
                body["session_id"], body["attach_token"], body["last_received_server_event_seq"]
            )
        except (LookupError, TypeError):
            reason = f"what answers at {options.server} is no vigil serve (status {status})"
            raise ClientError("connection_failed", reason) from None

    async def _converse(self, client: VigilClient) -> None:
        listening = asyncio.create_task(self._listen(client))
        speaking = asyncio.create_task(self._speak(client))
        stopping = asyncio.create_task(self._stop.wait())
        tasks = (listening, speaking, stopping)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await (client.leave() if self._options.session else client.close())
            with suppress(TimeoutError):
                await asyncio.wait_for(listening, 1.0)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._end_line()

    # --- what goes out ------------------------------------------------------------------------------------

    async def _speak(self, client: VigilClient) -> None:
        """Pictures first, then lines as they come, beside the videos; returns when all was answered."""
        for image in self._options.images:
            await self._play(client, image, paced=False)
        watching = asyncio.create_task(self._watch(client))
        try:
            lines = _lines(asyncio.get_running_loop())
            while (line := await lines.get()) is not None:
                if line.strip():
                    await self._ask(client, line.strip())
            await watching
            await self._answered(lambda: self._decided_ms >= self._shown_ms)
        except SessionLost:
            pass  # who listens tells why
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _answered(self, also: Callable[[], bool] = lambda: True) -> None:
        """Wait until nothing is asked and nothing is said any more, for as long as is sensible."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_ANSWER_S):
                while self._asked or self._speaking or not also():
                    self._moved.clear()
                    await self._moved.wait()

    async def _ask(self, client: VigilClient, line: str) -> None:
        """Who types interrupts what is being said; lines of a file wait for their turn."""
        if not sys.stdin.isatty():
            await self._answered()
        elif self._asked or self._speaking:
            self._asked.clear()
            await client.cancel()
        await client.ask(line)
        self._asked.append(await client.send({"type": "response.create"}))

    async def _watch(self, client: VigilClient) -> None:
        for video in self._options.videos:
            await self._play(client, video, paced=True)

    async def _play(self, client: VigilClient, location: str, *, paced: bool) -> None:
        loop = asyncio.get_running_loop()
        origin_ms, began = self._shown_ms + _PERIOD_MS, loop.time()
        async for frame in open_media(location, MediaOptions(_BOUNDS)).play():
            if paced:
                await asyncio.sleep(began + frame.media_time_ms / 1000 - loop.time())
            self._shown_ms = origin_ms + frame.media_time_ms
            await client.append(frames=[frame.data], frame_times_ms=[self._shown_ms])

    # --- what comes back ----------------------------------------------------------------------------------

    async def _listen(self, client: VigilClient) -> None:
        spoken: dict[str, int] = {}
        async for event in client.events():
            self._take(event)
            self._moved.set()
            match event:
                case wire.AudioDelta(response_id=name, metadata={"audio_duration_ms": int(until_ms)}):
                    spoken[name] = until_ms
                case wire.ResponseDone(response_id=name) if name in spoken:
                    # Of a session that was joined and speaks: what is read here counts as heard.
                    await client.ack(name, spoken.pop(name))

    def _take(self, event: Incoming) -> None:
        match event:
            case wire.ResponseCreated(response_id=response_id):
                self._speaking.add(response_id)
                if self._asked:
                    self._asked.pop(0)
            case wire.TextDelta(delta=words) | wire.TranscriptDelta(delta=words):
                self._say(words)
            case wire.ResponseDone(response_id=response_id, response=response):
                self._speaking.discard(response_id)
                self._end_line()
                if response.status == "failed":
                    self._tell("the answer failed")
            case wire.Tick(media_time_ms=ms):
                self._decided_ms = max(self._decided_ms, ms)
            case wire.Delegation(status="started", question=question):
                self._tell(f"looking into: {_plain(question)}")
            case wire.Delegation(status="completed", text=text):
                self._tell(f"found: {_plain(text or '')}")
            case wire.Notice(message=message):
                self._tell(message)
            case wire.ErrorEvent(error=error):
                if error.get("event_id") in self._asked:
                    self._asked.remove(str(error["event_id"]))
                if error.get("code") not in _RACES:
                    self._tell(f"{error.get('code')}: {error.get('message')}")
            case wire.SessionClosed(reason=reason) | wire.SessionExpired(reason=reason):
                self._ended = reason
            case _:
                pass

    def _say(self, words: str) -> None:
        if words:
            sys.stdout.write(_plain(words))
            sys.stdout.flush()
            self._mid_line = True

    def _end_line(self) -> None:
        if self._mid_line:
            sys.stdout.write("\n")
            sys.stdout.flush()
            self._mid_line = False

    def _tell(self, line: str) -> None:
        self._end_line()
        sys.stderr.write(f"vigil: {line}\n")
        sys.stderr.flush()


def _plain(text: str) -> str:
    """Words without anything that would steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable())


def _lines(loop: asyncio.AbstractEventLoop) -> asyncio.Queue[str | None]:
    """Lines of the standard input, ``None`` at its end. A thread reads them: files can't be waited for."""
    lines: asyncio.Queue[str | None] = asyncio.Queue(_LINES)

    def put(line: str | None) -> bool:
        with suppress(RuntimeError):  # the loop is over
            asyncio.run_coroutine_threadsafe(lines.put(line), loop).result()
            return True
        return False

    def read() -> None:
        for line in sys.stdin:
            if not put(line):
                return
        put(None)

    threading.Thread(target=read, name="stdin", daemon=True).start()
    return lines
