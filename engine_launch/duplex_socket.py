"""A small blocking client of a full-duplex engine, for launching and checking; ``bridges`` has the service's.

It keeps no journal and takes up no lost socket: a trial session lasts seconds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from websockets.exceptions import ConnectionClosed, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from engine_launch.client import NoAnswer, Unreachable

PATH = "/v1/realtime"
LARGEST_EVENT = 64 * 1024 * 1024
CLOSED = frozenset({"session.closed", "session.expired"})


class Refused(Exception):
    """The engine answered with an error. :param code: its own"""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class SocketGone(Exception):
    """The engine ended the session or the connection. :param reason: its word, or how the socket broke"""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class DuplexSocket:
    """One connection, one session. Every wait has a deadline in seconds.

    Raises :class:`Unreachable` and :class:`NoAnswer` where the connection can't be made.
    """

    def __init__(self, url: str, model: str, *, api_key: str | None = None, deadline_s: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._stack = ExitStack()
        try:
            self._socket: ClientConnection = self._stack.enter_context(
                connect(
                    realtime_url(url, model),
                    additional_headers=headers,
                    open_timeout=deadline_s,
                    close_timeout=2.0,
                    ping_interval=None,
                    max_size=LARGEST_EVENT,
                    compression=None,
                    proxy=None,
                )
            )
        except TimeoutError as error:
            raise NoAnswer(f"{PATH}: no handshake in {deadline_s:g} s") from error
        except InvalidURI as error:
            raise Unreachable(str(error)) from error
        except (OSError, WebSocketException) as error:
            raise Unreachable(f"{PATH}: {str(error) or type(error).__name__}") from error

    def __enter__(self) -> DuplexSocket:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def open(self, session: Mapping[str, Any], deadline_s: float) -> dict[str, Any]:
        """The engine's session object. Raises :class:`Refused`, :class:`NoAnswer`, :class:`SocketGone`."""
        self.send({"type": "session.update", "session": session})
        created = self.wait_for({"session.created"}, deadline_s)
        if created is None:
            raise NoAnswer(f"no session.created in {deadline_s:g} s")
        found = created.get("session")
        return found if isinstance(found, dict) else {}

    def send(self, event: Mapping[str, Any]) -> None:
        try:
            self._socket.send(json.dumps(event))
        except ConnectionClosed as error:
            raise SocketGone(_why(error)) from error

    def wait_for(self, types: set[str], deadline_s: float) -> dict[str, Any] | None:
        """The first event of one of ``types``, others passed over; None when there is none in time."""
        until = time.monotonic() + deadline_s
        while (left := until - time.monotonic()) > 0:
            event = self.receive(left)
            if event is not None and event["type"] in types:
                return event
        return None

    def receive(self, deadline_s: float) -> dict[str, Any] | None:
        """The next event, or None when there is none in time. An error is raised as :class:`Refused`."""
        try:
            event = json.loads(self._socket.recv(timeout=max(0.0, deadline_s)))
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise SocketGone(_why(error)) from error
        except ValueError as error:
            raise Refused("invalid_json", str(error)) from error
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            raise Refused("bad_event", f"not an event: {str(event)[:100]}")
        if event["type"] == "error":
            told = event.get("error")
            if not isinstance(told, dict):  # refused before there is a session: the flat shape
                told = {"code": event.get("code"), "message": told}
            raise Refused(str(told.get("code")), str(told.get("message")))
        if event["type"] in CLOSED:
            raise SocketGone(str(event.get("reason") or event["type"]))
        return event

    def answers(self, deadline_s: float) -> bool:
        """Whether a heartbeat is answered: the engine's front end is alive, whatever its stages do."""
        try:
            self.send({"type": "session.heartbeat"})
            return self.wait_for({"session.heartbeat_ack"}, deadline_s) is not None
        except (SocketGone, Refused):
            return False

    def finish(self, deadline_s: float) -> str | None:
        """Close the session: the engine's reason, or None when it did not confirm in time."""
        try:
            self.send({"type": "session.close", "reason": "client_close"})
            until = time.monotonic() + deadline_s
            while (left := until - time.monotonic()) > 0:
                try:
                    self.receive(left)
                except Refused:
                    continue  # about something sent before
        except SocketGone as gone:
            return None if gone.reason.startswith(BROKEN) else gone.reason
        return None


BROKEN = "socket closed"


def realtime_url(url: str, model: str) -> str:
    """``http(s)`` or ``ws(s)`` address of an engine -> that of its duplex endpoint."""
    parts = urlsplit(url)
    scheme = {"http": "ws", "https": "wss"}.get(parts.scheme, parts.scheme)
    path = parts.path.rstrip("/").removesuffix("/v1").removesuffix(PATH) + PATH
    query = urlencode({"duplex": "1", "model": model, "autostart": "0"})
    return urlunsplit((scheme, parts.netloc, path, query, ""))


def _why(error: ConnectionClosed) -> str:
    if error.rcvd is None:
        return f"{BROKEN} without a word"
    return f"{BROKEN} with {error.rcvd.code} {error.rcvd.reason}".rstrip()
