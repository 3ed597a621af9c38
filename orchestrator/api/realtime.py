"""``GET /v1/realtime`` and ``/v1/duplex``: a session over a WebSocket.

One task reads the client's commands, one writes the session's events. What is decided here is only how a
socket comes to its session (a fresh one, a resume, an invitation) and how the connection ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from fastapi import APIRouter, WebSocket

from orchestrator.api.access import Caller, deny
from orchestrator.api.context import ApiContext
from orchestrator.api.forward import Unreachable, was_forwarded
from orchestrator.api.peer import Gone, Peer
from orchestrator.runtime.actor import Session
from orchestrator.runtime.attachment import Attachment
from orchestrator.runtime.vocabulary import SessionConfig, opening_config
from orchestrator.wire import server
from orchestrator.wire.client import ALIASES, AnyCommand, SessionResume, SessionUpdate, command_of
from orchestrator.wire.dialect import Dialect, dialect_of
from orchestrator.wire.errors import (
    Conflict,
    Elsewhere,
    EngineUnavailable,
    InvalidRequest,
    NotFound,
    ResourceExhausted,
    ServerFault,
    Unsupported,
    VigilError,
)

router = APIRouter()

NORMAL, POLICY, INTERNAL, TRY_LATER = 1000, 1008, 1011, 1013
"""Close codes."""

OPENINGS = ("session.update", "session.resume")
"""Messages that say which session is meant: one that cannot be read means none."""

SUBPROTOCOL = "realtime"
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"

_DUPLEX = frozenset({"1", "true", "on"})
_NO = frozenset({"0", "false", "no", "off"})
_YES = frozenset({"1", "true", "yes", "on"})

_log = logging.getLogger(__name__)


@router.websocket("/v1/realtime")
@router.websocket("/v1/duplex")
async def realtime(socket: WebSocket) -> None:
    context: ApiContext = socket.app.state.vigil
    try:
        caller = context.access.admit(socket)
    except VigilError as refused:
        await deny(socket, refused)
        return
    offered: list[str] = socket.scope.get("subprotocols", [])
    await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
    dialect = Dialect.BETA if BETA_SUBPROTOCOL in offered else dialect_of(socket.headers)
    peer = Peer(socket, dialect, context.ids, context.realtime.write_s)
    try:
        await _Call(context, peer, caller, Wish.of(socket), socket).run()
    except Gone:
        pass
    except Exception:
        _log.exception("a realtime socket failed")
        await peer.close(INTERNAL, "internal_error")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the address asks for.

    :param duplex: the client acknowledges what it has played
    :param turns: plain turn-based realtime is asked for
    :param autostart: a session is opened before the client has said anything
    """

    model: str | None
    duplex: bool
    turns: bool
    autostart: bool

    @staticmethod
    def of(socket: WebSocket) -> Wish:
        query: Mapping[str, str] = socket.query_params
        asked = query.get("duplex")
        duplex = socket.url.path.endswith("/duplex") or (asked or "").lower() in _DUPLEX
        model = query.get("model") or None
        resumes = query.get("resume", "").lower() in _YES
        return Wish(
            model=model,
            duplex=duplex,
            turns=asked is not None and not duplex,
            autostart=model is not None and not resumes and query.get("autostart", "").lower() not in _NO,
        )

    def config(self, defaults: SessionConfig) -> SessionConfig:
        """What a session has that its opening message says nothing about."""
        return replace(
            defaults,
            model=self.model or defaults.model,
            playback_policy="ack_only" if self.duplex else "wall_clock",
            auto_response=False if self.turns else defaults.auto_response,
        )


class _Call:
    """One connection, from its first message to its close."""

    def __init__(
        self, context: ApiContext, peer: Peer, caller: Caller, wish: Wish, socket: WebSocket
    ) -> None:
        self._context = context
        self._peer = peer
        self._caller = caller
        self._wish = wish
        self._socket = socket

    async def run(self) -> None:
        try:
            opened = await self._open()
        except VigilError as refused:
            await self._peer.send(self._peer.error(refused))
            await self._peer.close(_close_code(refused), refused.code)
            return
        if opened is None:
            return
        session, seat = opened
        try:
            with self._context.sockets:
                await self._attend(session, seat)
        finally:
            if self._peer.took_leave:
                seat.alive()
            seat.leave()
            if not self._peer.told:
                await session.close("open_abandoned")

    # --- how a socket comes to its session ----------------------------------------------------------------

    async def _open(self) -> tuple[Session, Attachment] | None:
        if self._wish.autostart:
            return await self._begin({}, None)
        first = await self._first_message()
        command: AnyCommand | None = None
        fault: InvalidRequest | None = None
        try:
            command = command_of(first)
        except InvalidRequest as wrong:
            if ALIASES.get(str(first.get("type")), first.get("type")) in OPENINGS:
                raise
            fault = wrong
        if isinstance(command, SessionResume):
            return await self._resume(command, first)
        if isinstance(command, SessionUpdate):
            return await self._begin(command.session, command.event_id)
        session, seat = await self._begin({}, None)
        if command is not None:
            seat.receive(command)
        if fault is not None:
            await seat.interject(self._peer.error(fault))
        return session, seat

    async def _first_message(self) -> dict[str, Any]:
        limit = self._context.realtime.first_message_s
        try:
            async with asyncio.timeout(limit):
                frame = await self._peer.receive()
        except TimeoutError:
            raise InvalidRequest(
                f"no message came within {limit:g} s; begin with session.update", code="config_timeout"
            ) from None
        value = self._caller.opening(frame)
        if not isinstance(value, dict):
            raise InvalidRequest("an event is a JSON object", code="bad_event")
        return value

    async def _begin(self, body: Mapping[str, Any], event_id: str | None) -> tuple[Session, Attachment]:
        context = self._context
        try:
            config = opening_config(body, self._wish.config(context.defaults), context.capabilities)
            if config.model != context.model:
                raise NotFound(
                    f"this server serves {context.model}, not {config.model}",
                    code="model_not_found",
                    param="model",
                )
            session = await self._opened(config)
            if not session.is_open:
                raise EngineUnavailable(
                    "the server is shutting down", code="shutting_down", retry_after_s=5.0
                )
        except VigilError as refused:
            refused.event_id = event_id
            raise
        try:
            return session, session.attach()
        except Exception:
            await session.close("open_abandoned")  # nobody would ever come back to it
            raise

    async def _opened(self, config: SessionConfig) -> Session:
        """Raises ``Gone`` when the client leaves before the session is open: nothing of it stays."""
        opening = asyncio.create_task(self._context.registry.resolve(self._caller.tenant, None, config))
        leaving = asyncio.create_task(self._peer.gone())
        try:
            await asyncio.wait((opening, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not opening.done():
                raise Gone
            return opening.result()
        finally:
            opening.cancel()
            leaving.cancel()
            await asyncio.gather(opening, leaving, return_exceptions=True)

    async def _resume(
        self, command: SessionResume, first: Mapping[str, Any]
    ) -> tuple[Session, Attachment] | None:
        wanted, token, after = (
            command.session_id,
            command.resume_token,
            command.last_received_server_event_seq,
        )
        whole = isinstance(after, int) and not isinstance(after, bool) and after >= 0
        if not (isinstance(wanted, str) and isinstance(token, str) and whole):
            raise InvalidRequest(
                "session.resume names session_id, resume_token and last_received_server_event_seq",
                code="invalid_session_resume",
                event_id=command.event_id,
            )
        if await self._is_elsewhere(wanted, first):
            return None
        session = self._context.registry.owned(self._caller.tenant, wanted)
        try:
            if session is None and not self._context.capabilities.supports_session_resume:
                raise Unsupported(
                    "sessions of this model end with their connection", code="unsupported_session_resume"
                )
            if session is None:
                raise Conflict("there is no such session any more", code="session_resume_expired")
            seat = session.resume(token, after)
        except VigilError as refused:
            refused.event_id = command.event_id
            raise
        if seat is None:
            resync = server.ResyncRequired(
                event_id=self._context.ids("event_"), session_id=session.id, reason="journal_gap"
            )
            await self._peer.send(resync.written())
            await self._peer.close(POLICY, "journal_gap")
            return None
        resumed = server.SessionResumed(
            event_id=self._context.ids("event_"),
            session_id=session.id,
            session=session.view(),
            attachment_generation=seat.generation,
            resume_token=seat.token or "",
            journal_gap=True if seat.gap else None,
        )
        try:
            if self._context.homes is not None:
                await session.seated()
            await self._peer.send(resumed.written())
        except BaseException:
            seat.leave()  # whatever ended this task, nobody sits there
            raise
        return session, seat

    async def _is_elsewhere(self, wanted: str, first: Mapping[str, Any]) -> bool:
        """Have a session of another process served by that one; True when it has been. One whose process is
        dead, or was before this one, is taken up here, where it can be resumed."""
        context = self._context
        homes, forwarder = context.homes, context.forwarder
        if not context.capabilities.supports_session_resume:
            return False
        if homes is None or forwarder is None:
            await context.registry.bring(self._caller.tenant, wanted, context.defaults)
            return False
        for last in (False, True):
            try:
                await homes.bring(self._caller.tenant, wanted)
            except Elsewhere as owned:
                if was_forwarded(self._socket):
                    raise
                try:
                    await forwarder.relay(
                        owned.address, self._socket, self._peer, orjson.dumps(first).decode()
                    )
                except Unreachable:
                    if last:
                        raise owned from None
                    await homes.settled(owned.session_id, owned.address)
                else:
                    return True
            else:
                break
        return False

    # --- while it lasts -----------------------------------------------------------------------------------

    async def _attend(self, session: Session, seat: Attachment) -> None:
        reader = asyncio.create_task(self._read(session, seat))
        writer = asyncio.create_task(self._write(session, seat))
        overdue = asyncio.create_task(self._overdue(session))
        tasks = (writer, reader, overdue)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for task in tasks:
            if not task.cancelled():
                await self._peer.close(NORMAL, task.result())
                return

    async def _read(self, session: Session, seat: Attachment) -> str:
        """Hand commands over until the client is silent for too long; why the connection ends."""
        while True:
            try:
                async with asyncio.timeout(session.config.idle_timeout_s or None):
                    frame = await self._peer.receive()
                command = self._caller.command(frame)
            except TimeoutError:
                return "idle_timeout"
            except VigilError as wrong:
                if not seat.displaced:
                    seat.alive()
                    await seat.interject(self._peer.error(wrong))
            else:
                seat.receive(command)
            # Frames that came in one go are taken one by one, each followed by the session's own work.
            await asyncio.sleep(0)

    async def _write(self, session: Session, seat: Attachment) -> str:
        """Write events to the last one; why the connection ends."""
        reason = "session_closed"
        async for event in seat:
            await self._peer.send(event)
            if not seat.has_more:
                self._peer.flush()
            if event.type in ("session.closed", "session.expired"):
                reason = str(event.value["reason"])
        if not seat.displaced:
            return reason
        replaced = server.SessionReplaced(
            event_id=self._context.ids("event_"),
            session_id=session.id,
            attachment_generation=seat.generation,
        )
        await self._peer.send(replaced.written())
        return "session_replaced"

    async def _overdue(self, session: Session) -> str:
        """A client that does not read does not keep the socket of a session that is over."""
        await session.closed.wait()
        await self._context.clock.sleep(self._context.realtime.last_events_s)
        raise Gone


def _close_code(refused: VigilError) -> int:
    if isinstance(refused, ResourceExhausted | EngineUnavailable | Elsewhere):
        return TRY_LATER
    return INTERNAL if isinstance(refused, ServerFault) else POLICY
