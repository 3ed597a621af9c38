"""Server-sent events, sans-IO: bytes go in as the socket gives them, whole event payloads come out.

The grammar is that of the HTML standard, section "Server-sent events": lines end in LF, CRLF or CR, an empty
line ends an event, several ``data`` lines of one event are joined by LF, lines that start with a colon are
comments. Everything stays bytes until an event is whole, so a character cut by the network is never seen.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
_HIGH = range(0xD800, 0xDC00)


class EventTooLarge(ValueError):
    """One event is larger than the parser may hold."""


class SseParser:
    """Incremental parser of one stream.

    :param max_event_bytes: bytes that one unfinished event may hold before :class:`EventTooLarge`
    """

    def __init__(self, max_event_bytes: int = 16 * 1024 * 1024) -> None:
        self._max = max_event_bytes
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._held = 0
        self._skip_lf = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes]:
        """Payloads (UTF-8 bytes) of the events that ``chunk`` completes, in order."""
        if self._skip_lf and chunk:
            # The previous chunk ended in CR; an LF here belongs to that same line end.
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        pieces = _LINE_END.split(chunk)
        self._skip_lf = chunk.endswith(b"\r")
        events: list[bytes] = []
        for piece in pieces[:-1]:
            self._line.append(piece)
            line = b"".join(self._line)
            self._line.clear()
            self._take(line, events)
        if pieces[-1]:
            self._line.append(pieces[-1])
            self._hold(len(pieces[-1]))
        return events

    def _take(self, line: bytes, events: list[bytes]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
            self._held = 0
            return
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._hold(len(value))

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._max:
            raise EventTooLarge(f"an event is larger than {self._max} bytes")


class WholeCharacters:
    """Text pieces in, the same text out, cut only between characters.

    A high surrogate at the end of a piece waits for its other half. Halves that never meet, and the
    replacement character an engine prints for bytes that are not a character, are left out.
    """

    def __init__(self) -> None:
        self._half = ""

    def feed(self, piece: str) -> str:
        if piece.isascii() and not self._half:
            return piece
        text = self._half + piece
        self._half = ""
        if text and ord(text[-1]) in _HIGH:
            text, self._half = text[:-1], text[-1]
        whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")
        return whole.replace("\ufffd", "")
