"""``DuplexEngine``: the scripted engine's server, its admission and leases, and the handles for faults."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import orjson
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from bridges.circuit import RealClock
from tests.fakes.duplex_engine.channel import Json, Wire
from tests.fakes.duplex_engine.faults import Drop, Faults
from tests.fakes.duplex_engine.intake import Refused
from tests.fakes.duplex_engine.opening import Opening
from tests.fakes.duplex_engine.profiles import MINICPM_LIKE, EngineProfile
from tests.fakes.duplex_engine.script import Script, Voice
from tests.fakes.duplex_engine.session import EngineSession
from tests.fakes.duplex_engine.timing import Clock, ScaledClock

MAX_FRAME = 15 * 2**20
FIRST_MESSAGE_S = 10.0
_OFF = {"0", "false", "no", "off"}


class DuplexEngine:
    """A server on a port of its own; use as an async context manager.

    :param script: what the model does (``tests.fakes.duplex_engine.script.Script``); may be changed, for
        sessions that open later
    :param max_sessions: at once; the profile's if not given
    :param clock: engine time, of the model and of the leases
    :param time_scale: without a clock: the model's time runs that many times as fast as real time; leases
        go by real time then
    :param version: of the engine; its quirks go with it (0.30.0: auto-mode commits send earlier audio again)
    :param grace_s: a session without a socket lasts that long; ``reaper_s`` how often that is looked at
    :param keep_audio: False: units and responses forget their samples, for runs of hours
    :param voice: what its speech sounds like; a tone by unit if not given
    """

    def __init__(
        self,
        script: Script = "pattern:LLSE",
        profile: EngineProfile = MINICPM_LIKE,
        *,
        max_sessions: int | None = None,
        clock: Clock | None = None,
        time_scale: float = 1.0,
        version: str = "0.30.0",
        faults: Faults | None = None,
        api_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        grace_s: float = 30.0,
        idle_s: float = 300.0,
        reaper_s: float = 5.0,
        journal_bytes: int = 8 * 2**20,
        journal_s: float = 60.0,
        keep_audio: bool = True,
        voice: Voice | None = None,
    ) -> None:
        self.script, self.profile, self.version = script, profile, version
        self.max_sessions = profile.max_sessions if max_sessions is None else max_sessions
        self.clock: Clock = clock or ScaledClock(time_scale)
        self.lease_clock: Clock = clock or RealClock()
        self.faults = faults or Faults()
        self.journal_bytes, self.journal_s, self.keep_audio = journal_bytes, journal_s, keep_audio
        self.voice = voice
        self.sessions: list[EngineSession] = []
        """Every session there ever was, in the order of opening."""
        self.instance = 1
        self.openings: list[Json] = []
        """Every session object that was sent to open one, the refused ones too."""
        self.running = asyncio.Event()
        self.running.set()
        self.reading = asyncio.Event()
        self.reading.set()
        self._api_key, self._host, self._port = api_key, host, port
        self._grace_s, self._idle_s, self._reaper_s = grace_s, idle_s, reaper_s
        self._live: dict[str, EngineSession] = {}
        self._wires: set[Wire] = set()
        self._server: Server | None = None
        self._reaper: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._units = self._resumes = 0
        self._changed = asyncio.Event()

    # --- for tests ------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"ws://{self._host}:{self._port}"

    @property
    def live(self) -> list[EngineSession]:
        """Sessions that hold a place."""
        return list(self._live.values())

    def drop(self, session: EngineSession | None = None, *, after: int = 0, lose: int = 0) -> None:
        """Break the session's socket (all sockets, if none is named) without a close frame.

        ``after``: once that many more events were written, the ``lose`` last of which never arrive.
        """
        for one in self.live if session is None else [session]:
            if after:
                one.channel.drops.append(Drop(after, min(lose, after)))
            elif one.channel.wire is not None:
                wire, one.channel.wire = one.channel.wire, None
                wire.abort()

    async def until(self, true: Callable[[], Any], seconds: float = 20.0) -> None:
        """Wait until this is true of the engine."""
        async with asyncio.timeout(seconds):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    def changed(self) -> None:
        """Something of a session is different now."""
        self._changed.set()

    async def die(self) -> None:
        """The process is gone: sockets break, nothing listens, every session is forgotten."""
        if self._server is not None:
            self._server.close(close_connections=False)
            for wire in list(self._wires):
                wire.abort()
            await self._server.wait_closed()
            self._server = None
        for session in self.live:
            session.closed = "died"
            await session.stop()
        self._live.clear()

    async def restart(self) -> None:
        """Die, and come back as a new instance on the same port that knows no old token."""
        await self.die()
        self.instance += 1
        self.running.set()
        await self._listen()

    def wedge(self) -> None:
        """Take everything and answer nothing, until ``unwedge``."""
        self.running.clear()

    def unwedge(self) -> None:
        self.running.set()

    def stop_reading(self) -> None:
        """Leave what clients send in their sockets, until ``read_on``."""
        self.reading.clear()
        for wire in self._wires:
            wire.read(False)

    def read_on(self) -> None:
        self.reading.set()
        for wire in self._wires:
            wire.read(True)

    def send_raw(self, text: str, session: EngineSession | None = None) -> None:
        """Write this to the session's socket (or all), whatever it is; it is no numbered event."""
        for one in self.live if session is None else [session]:
            one.channel.say(text)

    # --- life -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._listen()
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._reaper is not None
        self._reaper.cancel()
        self.reading.set()
        self.running.set()
        await self.die()
        await asyncio.gather(self._reaper, *self._stopping, return_exceptions=True)

    async def _listen(self) -> None:
        self._server = await serve(
            self._serve,
            self._host,
            self._port,
            process_request=self._http,
            compression=None,
            max_size=None,
            write_limit=0,
            ping_interval=None,
        )
        self._port = next(iter(self._server.sockets)).getsockname()[1]

    def ended(self, session: EngineSession) -> None:
        """A session gave its place back."""
        self._live.pop(session.id, None)
        self.changed()
        task = asyncio.create_task(session.stop())
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def unit_taken(self) -> None:
        self._units += 1
        self.changed()
        if self.faults.drop_units and self._units >= self.faults.drop_units[0]:
            self.faults.drop_units.pop(0)
            self.drop()

    async def _reap(self) -> None:
        while True:
            await self.lease_clock.sleep(self._reaper_s)
            now = self.lease_clock.now()
            for session in self.live:
                gone = session.detached_at is not None and now - session.detached_at >= self._grace_s
                if gone:
                    session.end("disconnect_grace_expired", expired=True)
                elif now - session.touched_at >= self._idle_s:
                    session.end("idle_ttl_expired", expired=True)

    # --- one socket -----------------------------------------------------------------------------------

    def _http(self, connection: ServerConnection, request: Request) -> Response | None:
        path = urlsplit(request.path).path
        if path in {"/v1/realtime", "/v1/duplex"}:
            wanted = f"Bearer {self._api_key}"
            if self._api_key and not hmac.compare_digest(request.headers.get("Authorization", ""), wanted):
                return connection.respond(HTTPStatus.UNAUTHORIZED, '{"error": "unauthorized"}\n')
            return None
        answers: dict[str, Any] = {
            "/health": {},
            "/version": {"version": self.version},
            "/v1/models": {"object": "list", "data": [{"id": self.profile.model, "object": "model"}]},
            "/harness/status": self._status(),
        }
        if path not in answers:
            return connection.respond(HTTPStatus.NOT_FOUND, "nothing here\n")
        response = connection.respond(HTTPStatus.OK, orjson.dumps(answers[path]).decode())
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response

    def _status(self) -> Json:
        units = [
            {"session": s.id, "decision": u.decision, "samples": u.samples, "speech": u.is_speech}
            for s in self.sessions
            for u in s.units[-50:]
        ]
        return {"sessions": len(self._live), "instance": self.instance, "units": units}

    async def _serve(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        query = dict(parse_qsl(urlsplit(socket.request.path).query))
        wire = Wire(socket)
        writer = asyncio.create_task(wire.run())
        self._wires.add(wire)
        session: EngineSession | None = None
        try:
            session = await self._hand_shake(socket, wire, query)
            if session is None:
                await writer
                return
            wire.read(self.reading.is_set())
            while session.closed is None:
                await self.reading.wait()
                raw = await socket.recv()
                if session.channel.wire is not wire:
                    break
                event = self._parse(raw, wire)
                if event is not None:
                    await self._take(session, event)
            async with asyncio.timeout(5):
                await writer
        except (ConnectionClosed, TimeoutError):
            pass
        finally:
            if session is not None:
                session.detach(wire)
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._wires.discard(wire)

    async def _hand_shake(self, socket: ServerConnection, wire: Wire, query: Json) -> EngineSession | None:
        await self.running.wait()
        model = query.get("model")
        if model is not None and query.get("autostart", "1").lower() not in _OFF and "resume" not in query:
            return self._open({}, model, wire)
        try:
            async with asyncio.timeout(FIRST_MESSAGE_S):
                raw = await socket.recv()
        except TimeoutError:
            self._refuse(wire, "config_timeout", "no first message")
            return None
        await self.running.wait()
        event = self._parse(raw, wire)
        if event is None:
            wire.close(1008, "bad first message")
            return None
        if event["type"] == "session.resume":
            return self._resume(event, wire)
        if event["type"] in {"session.update", "session.create"}:
            body = event.get("session")
            rest = {key: value for key, value in event.items() if key not in {"type", "event_id"}}
            return self._open(body if isinstance(body, dict) else rest, model, wire)
        session = self._open({}, model, wire)
        if session is not None:
            await self._take(session, event)
        return session

    def _parse(self, raw: str | bytes, wire: Wire) -> Json | None:
        try:
            event = orjson.loads(raw)
        except orjson.JSONDecodeError:
            self._tell(wire, "invalid_json", "this is not JSON")
            return None
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            self._tell(wire, "bad_event", "an event is an object with a type")
            return None
        if len(raw) > MAX_FRAME:
            self._tell(wire, "event_too_large", "the event is too large")
            return None
        return event

    async def _take(self, session: EngineSession, event: Json) -> None:
        if event["type"] == "session.event_ack":
            seq = event.get("server_event_seq")
            session.received.append(event)
            if not isinstance(seq, int) or not 0 <= seq <= session.channel.seq:
                self._tell(session.channel.wire, "invalid_event_ack", "no such event", event)
            else:
                session.channel.acknowledge(seq)
                session.channel.dropped_to = max(session.channel.dropped_to, seq)
            self.changed()
        elif event["type"] == "session.resume":
            self._tell(session.channel.wire, "unsupported_session_resume", "not the first message", event)
        else:
            await session.submit(event)

    def _tell(self, wire: Wire | None, code: str, message: str, event: Json | None = None) -> None:
        """An error of the transport: it is not numbered."""
        body: Json = {"type": "invalid_request_error", "code": code, "message": message}
        if event is not None and "event_id" in event:
            body["event_id"] = event["event_id"]
        if wire is not None:
            wire.put(orjson.dumps({"type": "error", "event_id": "event_0", "error": body}).decode())

    def _refuse(self, wire: Wire, code: str, message: str) -> EngineSession | None:
        """Tell the socket and close it; there is no session."""
        kind = "rate_limit_error" if code == "resource_exhausted" else "invalid_request_error"
        nested: Json = {"type": kind, "code": code, "message": message}
        told: Json = {"type": "error", "event_id": "event_0", "error": nested}
        if self.faults.refuse_flat:
            told = {"type": "error", "code": code, "error": message}
        wire.put(orjson.dumps(told).decode())
        wire.close(1013 if code == "resource_exhausted" else 1008, code)
        return None

    # --- sessions -------------------------------------------------------------------------------------

    def _open(self, body: Json, model: str | None, wire: Wire) -> EngineSession | None:
        self.openings.append(body)
        refusal = self.faults.refusal()
        try:
            if refusal is not None:
                raise Refused(refusal, f"scripted refusal: {refusal}")
            opening = Opening.read(body, self.profile, model)
            if len(self._live) >= self.max_sessions:
                raise Refused("resource_exhausted", f"at most {self.max_sessions} sessions")
        except Refused as refused:
            self._refuse(wire, refused.code, refused.message)
            return None
        session = EngineSession(self, f"duplex-{self.instance:08x}{len(self.sessions):024x}", opening)
        self.sessions.append(session)
        self._live[session.id] = session
        session.token = self._token(session)
        session.attach(wire)
        named: Json = {}
        if self.profile.resume:
            named = {"attachment_generation": session.generation, "resume_token": session.token}
        session.channel.emit("session.created", session=session.public(), **named)
        session.channel.emit("session.updated", session=session.public())
        session.start()
        return session

    def _token(self, session: EngineSession) -> str:
        self._resumes += 1
        return f"token-{session.id[-8:]}-{self._resumes}"

    def _resume(self, event: Json, wire: Wire) -> EngineSession | None:
        session = self._live.get(str(event.get("session_id")))
        after, token = event.get("last_received_server_event_seq", 0), event.get("resume_token")
        if not isinstance(after, int) or after < 0 or not isinstance(token, str):
            return self._refuse(wire, "invalid_session_resume", "session_id, resume_token and a number")
        if session is None or session.closing:
            return self._refuse(wire, "session_resume_expired", "no such session")
        if not self.profile.resume:
            return self._refuse(wire, "unsupported_session_resume", "sessions end with their socket")
        if self.faults.forget_tokens or not hmac.compare_digest(token, session.token):
            return self._refuse(wire, "invalid_resume_token", "this token is not the session's")
        if not session.channel.reaches(after):
            told = {"type": "session.resync_required", "session_id": session.id, "reason": "journal_gap"}
            wire.put(orjson.dumps(told).decode())
            wire.close(1008, "journal_gap")
            return None
        if after > session.channel.seq:
            return self._refuse(wire, "session_resume_conflict", "newer than anything sent")
        displaced = session.channel.wire
        if displaced is not None:
            session.channel.emit("session.replaced", attachment_generation=session.generation)
            displaced.close(1000, "session_replaced")
        session.generation += 1
        session.token = self._token(session)
        session.attach(wire)
        session.channel.emit(
            "session.resumed",
            session=session.public(),
            attachment_generation=session.generation,
            resume_token=session.token,
        )
        session.channel.replay(after)
        return session


async def serve_forever(engine: DuplexEngine) -> None:
    """Serve until cancelled."""
    async with engine:
        print(f"READY {engine.url}/v1/realtime?duplex=1 model={engine.profile.model}", flush=True)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
