"""A live stream over a real socket: it breaks, comes back, and its times go on."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.server
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from bridges import media_video
from bridges.frames import FrameBounds
from bridges.media import (
    MediaError,
    MediaFrame,
    MediaOptions,
    MediaSound,
    MediaStatistics,
    open_media,
)
from bridges.media_live import LiveReader
from tests.fakes.clips import gray, make_clip, make_talking_clip

OPTIONS = MediaOptions(FrameBounds(32 * 32, 256 * 256, 16), period_ms=500)


class Server:
    """Sends a transport stream to each of ``accepts`` connections without a length, then is gone.

    ``silent``: the first connection stays open after it.
    """

    def __init__(self, clips: Sequence[bytes], accepts: int, *, silent: bool = False) -> None:
        self._clips = clips
        self._held: list[socket.socket] = []
        self._silent = silent
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/live.ts"
        self._thread = threading.Thread(target=self._serve, args=(accepts,), daemon=True)
        self._thread.start()

    def _serve(self, accepts: int) -> None:
        for number in range(accepts):
            try:
                peer, _address = self._listener.accept()
            except OSError:
                return
            peer.recv(65536)
            head = b"HTTP/1.1 200 OK\r\nContent-Type: video/mp2t\r\nConnection: close\r\n\r\n"
            with contextlib.suppress(OSError):
                peer.sendall(head + self._clips[number % len(self._clips)])
            if self._silent and not self._held:
                self._held.append(peer)
            else:
                peer.close()
        self._listener.close()

    def close(self) -> None:
        self._listener.close()
        self._thread.join(10)
        for peer in self._held:
            peer.close()


@contextmanager
def serving(path: Path, accepts: int, *, silent: bool = False, same: bool = False) -> Iterator[Server]:
    """``same``: each connection sends the same pictures again."""
    clips = [
        make_clip(
            path, gray(step=8 + shade, first=16 + shade), codec="libx264", times_ms=range(0, 2000, 100)
        ).read_bytes()
        for shade in range(1 if same else accepts)
    ]
    server = Server(clips, accepts, silent=silent)
    try:
        yield server
    finally:
        server.close()


def test_reconnects_and_goes_on(tmp_path: Path) -> None:
    """Three connections, then refusals for longer than it waits."""
    clock = [100.0]
    waits: list[float] = []

    def wait(_stop: threading.Event, seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    with serving(tmp_path / "live.ts", accepts=3) as server:
        reader = LiveReader(
            server.url, OPTIONS, give_up_s=20, wait=wait, jitter=lambda: 1.0, now=lambda: clock[0]
        )
        statistics = MediaStatistics()
        times = [frame.media_time_ms for frame in reader.pieces(threading.Event(), statistics)]
    assert statistics.reconnects == 2
    # Two seconds of pictures a connection, half a second between connections.
    assert times[:4] == [0, 500, 1000, 1500]
    assert times[4] == 1900 + 500 and len(times) >= 11
    assert times == sorted(times)
    assert waits[:6] == [0.5, 0.5, 0.5, 1.0, 2.0, 4.0] and set(waits[6:]) == {5.0}
    assert statistics.warnings and statistics.lost and not statistics.connected


def test_what_was_sent_before_the_break_is_not_shown_again(tmp_path: Path) -> None:
    with serving(tmp_path / "live.ts", accepts=2, same=True) as server:
        reader = LiveReader(server.url, OPTIONS, give_up_s=-1, wait=lambda _stop, _seconds: None)
        statistics = MediaStatistics()
        first = [piece.media_time_ms for piece in reader.pieces(threading.Event(), statistics)]
        again = [piece.media_time_ms for piece in reader.pieces(threading.Event(), statistics)]
    assert first == [0, 500, 1000, 1500] and again == []
    assert statistics.decoded == 40 and statistics.repeated == 20


def test_a_stream_is_heard_before_it_is_seen(tmp_path: Path) -> None:
    """As where a camera's next whole picture is a while away; what a broken stream sends again is not heard
    again either."""
    clip = make_talking_clip(tmp_path / "live.webm", seconds=3, unseen=13).read_bytes()
    server = Server([clip], accepts=2)
    options = replace(OPTIONS, sound_rate_hz=16000)
    reader = LiveReader(
        server.url, options, give_up_s=-1, wait=lambda _stop, _seconds: None, now=lambda: 100.0
    )
    statistics = MediaStatistics()
    try:
        first = list(reader.pieces(threading.Event(), statistics))
        again = list(reader.pieces(threading.Event(), statistics))
    finally:
        server.close()
    heard = [piece for piece in first if isinstance(piece, MediaSound)]
    assert isinstance(first[0], MediaSound) and heard[0].media_time_ms == 0
    assert sum(piece.samples for piece in heard) == pytest.approx(3 * 16000, rel=0.02)
    seen = [piece.media_time_ms for piece in first if isinstance(piece, MediaFrame)]
    assert len(seen) == 4 and seen[0] == pytest.approx(1300, abs=20), "every half second from the first on"
    assert [after - before for before, after in pairwise(seen)] == pytest.approx([500] * 3, abs=1)
    assert again == [] and statistics.repeated == 17


def test_a_limit_ends_it(tmp_path: Path) -> None:
    options = MediaOptions(OPTIONS.bounds, period_ms=500, max_duration_ms=1000)
    with serving(tmp_path / "live.ts", accepts=1) as server:
        reader = LiveReader(server.url, options)
        frames = list(reader.pieces(threading.Event(), MediaStatistics()))
    assert [frame.media_time_ms for frame in frames] == [0, 500]


def test_stops_between_connections(tmp_path: Path) -> None:
    stop = threading.Event()
    with serving(tmp_path / "live.ts", accepts=1) as server:
        reader = LiveReader(server.url, OPTIONS, wait=lambda event, _seconds: event.set())
        assert len(list(reader.pieces(stop, MediaStatistics()))) == 4


def test_the_first_connection_has_one_try() -> None:
    with pytest.raises(MediaError) as caught:
        list(LiveReader("rtsp://127.0.0.1:9/x", OPTIONS).pieces(threading.Event(), MediaStatistics()))
    assert caught.value.code == "unreachable"


async def test_a_stream_without_length_is_live(tmp_path: Path) -> None:
    """Opened once to look and once to play."""
    with serving(tmp_path / "live.ts", accepts=2) as server:
        source = open_media(server.url, MediaOptions(OPTIONS.bounds, period_ms=500, max_duration_ms=1500))
        assert source.info.kind == "live"
        times = [frame.media_time_ms async for frame in source.play()]
    assert times and times == sorted(times) and times[-1] <= 1400


def test_silence_is_a_broken_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_video, "OPEN_S", 0.5)  # how long FFmpeg looks for more before it plays
    monkeypatch.setattr(media_video, "READ_S", 0.3)
    with serving(tmp_path / "live.ts", accepts=2, silent=True) as server:
        options = MediaOptions(OPTIONS.bounds, period_ms=500, max_duration_ms=3000)
        reader = LiveReader(server.url, options, wait=lambda _stop, _seconds: None)
        statistics = MediaStatistics()
        frames = list(reader.pieces(threading.Event(), statistics))
    assert statistics.reconnects == 1 and frames[-1].media_time_ms >= 2000


async def test_a_file_over_http_is_a_file(tmp_path: Path) -> None:
    make_clip(tmp_path / "a.mp4", container_options={"movflags": "faststart"})

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            source = await asyncio.to_thread(open_media, url + "/a.mp4", MediaOptions(OPTIONS.bounds))
            assert (source.info.kind, source.info.duration_ms) == ("video", 3000)
            assert [frame.media_time_ms async for frame in source.play()] == [0, 1000, 2000]
            with pytest.raises(MediaError) as caught:
                await asyncio.to_thread(open_media, url + "/b.mp4", OPTIONS)
            assert caught.value.code == "not_found"
        finally:
            server.shutdown()
            thread.join()
