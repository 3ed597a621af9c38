"""The one door: every request and every socket handshake is admitted here, or refused with a typed error."""

from __future__ import annotations

import logging
from collections.abc import Collection

from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from orchestrator.api.credentials import Credentials
from orchestrator.api.errors import error_response
from orchestrator.api.failed_logins import FailedLogins
from orchestrator.api.origins import check_local, check_origin
from orchestrator.api.quota import Meter, Quotas
from orchestrator.runtime.vocabulary import Clock
from orchestrator.wire import client as wire
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, Unauthenticated, VigilError

_log = logging.getLogger(__name__)

LOCAL_TENANT = "local"
"""Everyone's tenant where keys are off."""

KEY_PROTOCOL = "openai-insecure-api-key."
"""Browsers cannot set a header on a socket; as with OpenAI's API they offer the key as a subprotocol."""

_DECIDING = (
    wire.InputAppend,
    wire.InputCommit,
    wire.TextAppend,
    wire.ResponseCreate,
    wire.ItemCreate,
)
"""Commands that lead to decisions."""


class Caller:
    """Somebody who was let in. All its methods raise ``ResourceExhausted`` with ``retry_after_s``."""

    def __init__(self, tenant: str, quotas: Quotas, clock: Clock) -> None:
        self.tenant = tenant
        self._quotas = quotas
        self._clock = clock
        self._events = quotas.socket(tenant, clock.now())

    def sends(self, size: int) -> None:
        """Charge bytes of input."""
        self._quotas.charge(self.tenant, Meter.INPUT_BYTES, self._clock.now(), size)

    def decides(self) -> None:
        """Check that another decision may be asked for; those made are charged as they are made."""
        self._quotas.check(self.tenant, Meter.TICKS, self._clock.now())

    def asks_engine(self) -> None:
        """Charge an answer of the engine that is no decision of a session."""
        self._quotas.charge(self.tenant, Meter.TICKS, self._clock.now())

    def shows(self, size: int) -> None:
        """Charge a frame that is shown on the caller's behalf, as if the caller had sent it."""
        self.decides()
        self.sends(size)

    def opening(self, frame: str | bytes) -> object:
        """The first frame of the caller's socket as a JSON value, charged; raises as ``command`` does."""
        self.sends(len(frame if isinstance(frame, bytes) else frame.encode()))
        if isinstance(frame, bytes):
            raise _binary()
        return wire.decode_frame(frame)

    def command(self, frame: str | bytes) -> wire.AnyCommand:
        """A frame of the caller's socket as a command, charged. Also raises what ``parse_command`` does, and
        ``bad_event`` for a binary frame.

        Whatever it raises, the socket may stay open: the frame is as if it had never come. One that is no
        command costs what any other of its size does.
        """
        if isinstance(frame, bytes):
            self._takes(len(frame), None)
            raise _binary()
        raw = frame.encode()
        try:
            command = wire.parse_command(raw)
        except VigilError as wrong:
            self._takes(len(raw), wrong.event_id)
            raise
        self._takes(len(raw), command.event_id, deciding=isinstance(command, _DECIDING))
        return command

    def _takes(self, size: int, event_id: str | None, *, deciding: bool = False) -> None:
        """Charge an event of that many bytes."""
        self._event(event_id)
        try:
            self.sends(size)
            if deciding:
                self.decides()
        except ResourceExhausted as error:
            error.event_id = event_id
            raise

    def _event(self, event_id: str | None) -> None:
        if self._events is None:
            return
        now = self._clock.now()
        wait_s = self._events.wait_s(1, now)
        if wait_s > 0:
            rate = self._quotas.of(self.tenant).events_per_second
            raise ResourceExhausted(
                f"a socket takes {rate} events a second; this one was dropped",
                code="rate_limit_exceeded",
                event_id=event_id,
                retry_after_s=wait_s,
            )
        self._events.take(1, now)


class Access:
    """
    :param credentials: absent where keys are off; then everyone on this machine is ``local``
    :param origins: of pages that may use the service besides its own
    :param failed: counts failed logins by address
    """

    def __init__(
        self,
        credentials: Credentials | None,
        origins: Collection[str],
        quotas: Quotas,
        clock: Clock,
        failed: FailedLogins,
    ) -> None:
        self.origins = tuple(origins)
        self._credentials = credentials
        self._quotas = quotas
        self._clock = clock
        self._failed = failed

    @property
    def keys(self) -> bool:
        """Callers need one."""
        return self._credentials is not None

    def admit(self, connection: HTTPConnection) -> Caller:
        """Whose request or handshake this is; it is charged to that tenant.

        :raises Forbidden: ``origin_not_allowed``, ``host_not_allowed``
        :raises Unauthenticated: see ``Credentials.tenant_of``
        :raises ResourceExhausted: ``rate_limit_exceeded``, ``too_many_failed_logins``
        """
        headers = connection.headers
        host = headers.get("host", "")
        check_origin(headers.get("origin"), host, self.origins)
        if self._credentials is None:
            check_local(host)
            tenant = LOCAL_TENANT
        else:
            tenant = self._tenant(self._credentials, connection)
        meter = Meter.HANDSHAKES if connection.scope["type"] == "websocket" else Meter.REQUESTS
        self._quotas.charge(tenant, meter, self._clock.now())
        return Caller(tenant, self._quotas, self._clock)

    def _tenant(self, credentials: Credentials, connection: HTTPConnection) -> str:
        try:
            return credentials.tenant_of(_bearer(connection))
        except Unauthenticated:
            client = connection.client
            self._failed.failed(client.host if client else None, self._clock.now())
            raise


def _binary() -> InvalidRequest:
    return InvalidRequest("events are JSON in text frames, not binary ones", code="bad_event")


async def deny(socket: WebSocket, error: VigilError) -> None:
    """Answer a handshake with the refusal that any other request would have got."""
    client = socket.client
    _log.info("a socket from %s was refused: %s", client.host if client else "somewhere", error.code)
    await socket.send_denial_response(error_response(error))


def _bearer(connection: HTTPConnection) -> str | None:
    scheme, _, given = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip().encode("latin-1", "replace").decode("utf-8", "replace")
    if connection.scope["type"] == "websocket":
        for offered in connection.scope.get("subprotocols", ()):
            if offered.startswith(KEY_PROTOCOL):
                return str(offered.removeprefix(KEY_PROTOCOL))
    return None
