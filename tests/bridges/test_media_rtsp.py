"""RTSP passes through a socket of our own: every byte, but no answer that sends the client elsewhere."""

from __future__ import annotations

import asyncio
import itertools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.frames import FrameBounds
from bridges.media import MediaError, MediaOptions, MediaSource, open_media
from bridges.media_http import REDIRECTS
from bridges.media_rtsp import Relay, Replies
from tests.fakes.cameras import RtspCamera

OPTIONS = MediaOptions(FrameBounds(32 * 32, 512 * 512, 16), period_ms=100)

OK = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nPublic: DESCRIBE\r\n\r\n"
SDP = b"RTSP/1.0 200 OK\r\nCSeq: 2\r\ncontent-length: 10\r\n\r\n0123456789"
MEDIA = b"$\x00\x00\x05RTSP/$\x01\x00\x00"
MOVED = b"RTSP/1.0 302 Moved\r\nCSeq: 3\r\nLocation: rtsp://elsewhere/1\r\n\r\n"


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    for start, end in itertools.pairwise(edges):
        yield data[start:end]


@given(st.lists(st.sampled_from([OK, SDP, MEDIA]), max_size=6), st.lists(st.integers(0, 10_000), max_size=9))
def test_what_is_no_redirect_passes_as_it_is(parts: list[bytes], places: list[int]) -> None:
    replies = Replies()
    passed = b"".join(replies.push(piece) for piece in cut(b"".join(parts), places))
    assert passed == b"".join(parts) and replies.location is None


@given(st.lists(st.sampled_from([OK, SDP, MEDIA]), max_size=6), st.lists(st.integers(0, 10_000), max_size=9))
def test_a_redirect_and_what_follows_it_does_not(parts: list[bytes], places: list[int]) -> None:
    replies = Replies()
    passed = b"".join(replies.push(piece) for piece in cut(b"".join([*parts, MOVED, OK]), places))
    assert passed == b"".join(parts) and replies.location == "rtsp://elsewhere/1"


def test_what_never_ends_its_head_is_not_waited_for() -> None:
    replies = Replies()
    assert replies.push(b"RTSP/1.0 200 OK\r\n" + b"x" * 70_000) == b"" and replies.location == ""


@contextmanager
def server(answer: Callable[[bytes], bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """Answers each request; what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    while request := client.recv(4096):
                        asked.append(request)
                        client.sendall(answer(request))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"rtsp://127.0.0.1:{listener.getsockname()[1]}/cam", asked
        listener.shutdown(socket.SHUT_RDWR)


def redirecting(target: str, method: bytes) -> Callable[[bytes], bytes]:
    """At the first request of that method."""

    def answer(request: bytes) -> bytes:
        number = next(line for line in request.split(b"\r\n") if line.lower().startswith(b"cseq"))
        if request.startswith(method):
            return b"RTSP/1.0 302 Moved\r\n" + number + b"\r\nLocation: " + target.encode() + b"\r\n\r\n"
        return b"RTSP/1.0 200 OK\r\n" + number + b"\r\nPublic: OPTIONS, DESCRIBE\r\n\r\n"

    return answer


async def opened(url: str, refused: str = "\0") -> MediaSource:
    def place(url: str) -> str:
        if refused in url:
            raise MediaError("source_not_allowed", "it is not listed")
        return url

    source = await asyncio.to_thread(open_media, url, OPTIONS, place)
    async for _ in source.play():
        break
    return source


@pytest.mark.parametrize("method", [b"OPTIONS", b"DESCRIBE"])
@pytest.mark.parametrize("scheme", ["rtsp", "RTSP"])
async def test_a_server_sends_nobody_to_what_is_not_listed(method: bytes, scheme: str) -> None:
    with (
        server(lambda _: b"") as (inner, reached),
        server(redirecting(inner, method)) as (url, asked),
        pytest.raises(MediaError) as error,
    ):
        await opened(url.replace("rtsp", scheme, 1), refused=inner)
    assert error.value.code == "source_not_allowed" and asked and not reached


async def test_a_redirect_to_what_is_listed_is_followed() -> None:
    async with RtspCamera() as camera:
        with server(redirecting(camera.url, b"DESCRIBE")) as (url, _):
            source = await opened(url)
    assert source.statistics()["delivered"] >= 1


async def test_redirects_end() -> None:
    target: list[str] = []
    with server(lambda request: redirecting(target[0], b"OPTIONS")(request)) as (url, asked):
        target.append(url)
        with pytest.raises(MediaError, match="too often"):
            await opened(url)
        assert len(asked) == REDIRECTS + 1
    for elsewhere in ("http://127.0.0.1:1/x", "file:///etc/passwd", ""):
        with server(redirecting(elsewhere, b"OPTIONS")) as (url, _), pytest.raises(MediaError) as error:
            await opened(url)
        assert error.value.code == "unsupported"


async def test_a_relay_that_nobody_uses_ends() -> None:
    with server(lambda _: b"") as (url, _):
        relay = await asyncio.to_thread(Relay, url, wait_s=5.0)
        await asyncio.to_thread(relay.close)
        assert not relay._thread.is_alive()
