"""What an HTTP server sends, as FFmpeg reads a file: the connections are made here, and nowhere else.

FFmpeg's own HTTP follows every redirect, and what a playlist names, to whatever address. Here each address is
asked for first (``place``), redirects included, and a playlist leads nowhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress

import httpx

from bridges.media_types import MediaError, shown

REDIRECTS = 3
_NEAR = 256 * 1024
"""Bytes ahead that are read over rather than asked for anew."""
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_LOGIN = (401, 403, 407)


class HttpBody:
    """A file as ``av.open`` wants it. Made of one answer; where the server knows ranges, of several.

    :param place: the URL that is really connected to, with a checked address as its host
    :param wait_s: for a connection, and for each piece
    :raises MediaError: ``unreachable``, ``not_found``, ``login_refused``, or what ``place`` raises
    """

    def __init__(
        self,
        url: str,
        place: Callable[[str], str],
        *,
        wait_s: float,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.name = url
        self.size: int | None = None
        self.kind = ""
        """Its media type, as the server names it."""
        self._place = place
        self._at = 0  # of the next byte that is read
        self._rest = b""
        self._broken = False
        self._response: httpx.Response | None = None
        self._pieces: Iterator[bytes] = iter(())
        self._ranges = False
        self._http = httpx.Client(timeout=httpx.Timeout(wait_s), trust_env=False, transport=transport)
        try:
            self._ask(0)
        except BaseException:
            self.close()
            raise

    @property
    def endless(self) -> bool:
        """Nobody knows where it ends: a live stream."""
        return self.size is None

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._ranges and self.size is not None

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self.size or 0}[whence]
        wanted = max(0, start + offset)
        ahead = wanted - self._at
        if 0 <= ahead <= len(self._rest):
            self._rest = self._rest[ahead:]
        elif 0 < ahead <= _NEAR and not self._broken:
            while ahead > 0 and (piece := self.read(ahead)):
                ahead -= len(piece)
        else:
            self._drop()
        self._at = wanted
        return wanted

    def read(self, count: int = -1) -> bytes:
        """Some bytes; none at the end, and where the connection broke."""
        if self.size is not None and self._at >= self.size:
            return b""
        if self._response is None and not self._broken:
            try:
                self._ask(self._at)
            except MediaError:
                self._broken = True
        while not self._rest and not self._broken:
            try:
                self._rest = next(self._pieces)
            except StopIteration:
                break
            except httpx.HTTPError:
                self._broken = True
        data = self._rest if count < 0 else self._rest[:count]
        self._rest = self._rest[len(data) :]
        self._at += len(data)
        return data

    def close(self) -> None:
        self._drop()
        self._http.close()

    # --- connections --------------------------------------------------------------------------------------

    def _ask(self, start: int) -> None:
        url = self.name
        for _ in range(REDIRECTS + 1):
            response = self._sent(url, start)
            if response.has_redirect_location:
                response.close()
                url = str(httpx.URL(url).join(response.headers["location"]))
                if httpx.URL(url).scheme not in ("http", "https"):
                    raise MediaError("unsupported", f"{shown(self.name)} redirects to what is not HTTP")
                continue
            self._take(response, start)
            return
        raise MediaError("unreachable", f"{shown(self.name)} redirects too often")

    def _sent(self, url: str, start: int) -> httpx.Response:
        asked, placed = httpx.URL(url), httpx.URL(self._place(url))
        request = self._http.build_request(
            "GET",
            placed,
            headers={
                "host": asked.netloc.decode("ascii"),
                "accept-encoding": "identity",
                "range": f"bytes={start}-",
            },
            extensions={"sni_hostname": asked.host, "timeout": self._http.timeout.as_dict()},
        )
        try:
            return self._http.send(request, stream=True, follow_redirects=False)
        except (httpx.HTTPError, OSError) as broken:
            told = f"{shown(url)} cannot be reached: {type(broken).__name__}"
            raise MediaError("unreachable", told) from broken

    def _take(self, response: httpx.Response, start: int) -> None:
        name, status = shown(self.name), response.status_code
        if status not in (200, 206) or (start and status != 206):
            response.close()
            if status in _LOGIN:
                raise MediaError("login_refused", f"{name} wants another user name or password ({status})")
            code = "not_found" if status in (404, 410) else "unreachable"
            raise MediaError(code, f"{name} answered {status}")
        found = _RANGE.fullmatch(response.headers.get("content-range", ""))
        self._ranges = status == 206 and found is not None and int(found[1]) == start
        if found is not None and found[2] != "*":
            self.size = int(found[2])
        elif status == 200 and response.headers.get("content-length", "").isdigit():
            self.size = int(response.headers["content-length"])
        self.kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        # Piece by piece as it comes: a camera's are small, and nobody waits for a whole block of them.
        self._response, self._pieces, self._rest = response, response.iter_raw(), b""

    def _drop(self) -> None:
        response, self._response = self._response, None
        self._rest, self._pieces = b"", iter(())
        if response is not None:
            with suppress(httpx.HTTPError):
                response.close()
