"""RTSP as FFmpeg is let see it: through a socket of our own, so that no server sends it elsewhere.

FFmpeg follows a redirect to whatever address it names. Here its connection is passed on to the address that
was checked, and every answer is looked at on its way back: one that redirects is not passed on.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import threading
from contextlib import ExitStack, suppress
from urllib.parse import SplitResult, urlsplit

PORTS = {"rtsp": 554, "rtsps": 322}
_READ = 64 * 1024
_HEAD = 64 * 1024
"""Bytes of an answer's head."""
_INTERLEAVED = b"$"


class Replies:
    """What a server sends, looked at as it passes: answers with their bodies, media between them. Pure."""

    def __init__(self) -> None:
        self._waiting = b""
        self._passing = 0  # bytes of what is known to go on
        self.location: str | None = None
        """Where an answer redirects to; nothing is passed from there on. Empty: it does not say where."""

    def push(self, data: bytes) -> bytes:
        """What of it may go on."""
        self._waiting += data
        out: list[bytes] = []
        while self._waiting and self.location is None:
            if not self._passing and not self._next():
                break
            piece = self._waiting[: self._passing]
            self._waiting = self._waiting[len(piece) :]
            self._passing -= len(piece)
            out.append(piece)
        return b"".join(out)

    def _next(self) -> bool:
        """Find out how long the next message is; False: not enough of it is there."""
        if self._waiting.startswith(_INTERLEAVED):
            if len(self._waiting) < 4:
                return False
            self._passing = 4 + int.from_bytes(self._waiting[2:4])
            return True
        head, end, _ = self._waiting.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _HEAD:
                self.location = ""
            return False
        lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:])
        fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
        if _status(lines[0]) // 100 == 3:
            self.location = fields.get("location", "")
            return False
        length = fields.get("content-length", "0")
        self._passing = len(head) + len(end) + (int(length) if length.isdigit() else 0)
        return True


def _status(line: str) -> int:
    version, _, rest = line.strip().partition(" ")
    code = rest[:3]
    return int(code) if version.startswith("RTSP/") and code.isdigit() else 0


class Relay:
    """One connection of FFmpeg's, passed on. ``url`` is what it opens; ``close`` ends it.

    :param placed: an RTSP URL with a checked address
    :param wait_s: for a connection
    :raises OSError: there is nobody at that address
    """

    def __init__(self, placed: str, *, wait_s: float) -> None:
        parts = urlsplit(placed)
        self._replies = Replies()
        self._sockets = ExitStack()
        try:
            self._server = self._sockets.enter_context(_connected(parts, wait_s))
            self._listener = self._sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
            self._listener.settimeout(wait_s)
        except BaseException:
            self._sockets.close()
            raise
        login, found, _ = parts.netloc.rpartition("@")
        port = self._listener.getsockname()[1]
        self.url = parts._replace(scheme="rtsp", netloc=f"{login}{found}127.0.0.1:{port}").geturl()
        self._thread = threading.Thread(target=self._run, name="rtsp relay", daemon=True)
        self._thread.start()

    @property
    def location(self) -> str | None:
        """Where the server redirected to, if it did."""
        return self._replies.location

    def close(self) -> None:
        for each in (self._server, self._listener):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
        self._thread.join()
        self._sockets.close()

    def _run(self) -> None:
        with suppress(OSError):
            player, _ = self._listener.accept()
            with player:
                player.settimeout(None)
                self._pass_on(player)

    def _pass_on(self, player: socket.socket) -> None:
        server = self._server
        with selectors.DefaultSelector() as either:
            either.register(player, selectors.EVENT_READ)
            either.register(server, selectors.EVENT_READ)
            while self.location is None:
                # What was decrypted already makes no socket readable.
                held = isinstance(server, ssl.SSLSocket) and server.pending() > 0
                ready = {key.fileobj for key, _ in either.select(0 if held else None)}
                if player in ready:
                    if not (asked := player.recv(_READ)):
                        return
                    server.sendall(asked)
                if held or server in ready:
                    if not (said := server.recv(_READ)):
                        return
                    player.sendall(self._replies.push(said))


def _connected(parts: SplitResult, wait_s: float) -> socket.socket:
    port = parts.port or PORTS[parts.scheme]
    connection = socket.create_connection((parts.hostname or "", port), wait_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if parts.scheme == "rtsps":
        # Cameras sign for themselves; FFmpeg asks no more of them.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            connection = context.wrap_socket(connection)
        except BaseException:
            connection.close()
            raise
    connection.settimeout(None)
    return connection
