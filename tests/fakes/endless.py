"""A server whose answers do not end, in a thread of its own, for clients that block and others."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n"


class Endless:
    """``with Endless(every_s=0.05) as url``: a few bytes so often; 0: as many as are taken."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> str:
        self._start(self._accept)
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5.0)

    def _start(self, work: object, *given: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._over.is_set():
                self._start(self._answer, self._listener.accept()[0])

    def _answer(self, connection: socket.socket) -> None:
        piece = b"# x\n" if self._every_s else b"# x\n" * 16_384
        with connection, contextlib.suppress(OSError):
            connection.settimeout(1.0)
            # At the end it is cut off: an answer of no told length would be a whole one then.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.recv(65536)
            connection.sendall(HEAD)
            while not self._over.wait(self._every_s or 0.0):
                connection.sendall(piece)
