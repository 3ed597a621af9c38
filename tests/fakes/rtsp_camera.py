"""A camera as a program: a real RTSP server (GStreamer's) whose pictures and clicks tell when they were made.

Run it with the system's Python, which has GStreamer's bindings. Picture ``n`` is made ``n / 10`` seconds
after ``--epoch`` (monotonic) and shows ``n`` as 16 bits, black or white, in its upper half. Each tenth has a
white lower half and a click of 100 ms beside it; ``--speech`` (S16LE at 8 kHz)
is heard once in place of the clicks, two seconds after somebody looks. ``ready PORT`` is printed when it can
be asked.
"""

from __future__ import annotations

import argparse
import math
import struct
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, BITS = 320, 96, 16
PERIOD_S = 0.1
RATE = 8000
VIDEO = (
    "appsrc name=video is-live=true format=time"
    " caps=video/x-raw,format=GRAY8,width=320,height=96,framerate=10/1"
    " ! videoconvert ! video/x-raw,format=I420"
    " ! x264enc tune=zerolatency speed-preset=ultrafast key-int-max=5 bitrate=2000"
    " ! rtph264pay name=pay0 pt=96 config-interval=1"
)
SOUND = (
    " appsrc name=sound is-live=true format=time"
    " caps=audio/x-raw,format=S16LE,rate=8000,channels=1,layout=interleaved"
    " ! alawenc ! rtppcmapay name=pay1 pt=8"
)


def picture(number: int) -> bytes:
    width = WIDTH // BITS
    row = b"".join((b"\xeb" if number >> (BITS - 1 - bit) & 1 else b"\x10") * width for bit in range(BITS))
    below = (b"\xeb" if number % 10 == 0 else b"\x10") * WIDTH
    return row * (HEIGHT // 2) + below * (HEIGHT // 2)


def sound(number: int) -> bytes:
    count = round(RATE * PERIOD_S)
    loud = 16000 if number % 10 == 0 else 0
    return struct.pack(f"<{count}h", *(round(loud * math.sin(place * 0.6)) for place in range(count)))


class Camera:
    def __init__(self, gst: Any, epoch: float, speech: bytes | None) -> None:
        self._gst = gst
        self._epoch = epoch
        self._speech = speech

    def _sound(self, number: int, first: int) -> bytes:
        if self._speech is None:
            return sound(number)
        size = 2 * round(RATE * PERIOD_S)
        begin = (number - first - 20) * size
        return (self._speech[begin : begin + size] if begin >= 0 else b"").ljust(size, b"\0")

    def configure(self, _factory: Any, media: Any) -> None:
        threading.Thread(target=self._film, args=(media.get_element(),), daemon=True).start()

    def _film(self, element: Any) -> None:
        first = 0
        sources: list[tuple[Any, Callable[[int], bytes]]] = [(element.get_by_name("video"), picture)]
        if (sounds := element.get_by_name("sound")) is not None:
            sources.append((sounds, lambda number: self._sound(number, first)))
        pipeline = element
        while pipeline.get_parent() is not None:
            pipeline = pipeline.get_parent()
        while (clock := sources[0][0].get_clock()) is None or not sources[0][0].get_base_time():
            time.sleep(0.005)
        running, began = clock.get_time() - sources[0][0].get_base_time(), time.monotonic()
        number = first = math.ceil((began - self._epoch) / PERIOD_S)
        while True:
            due = self._epoch + number * PERIOD_S
            # A buffer leaves the camera when the last of it was recorded.
            time.sleep(max(0.0, due + PERIOD_S - time.monotonic()))
            for source, make in sources:
                buffer = self._gst.Buffer.new_wrapped(make(number))
                buffer.pts = running + round((due - began) * 1e9)
                buffer.duration = round(PERIOD_S * 1e9)
                if source.emit("push-buffer", buffer) != self._gst.FlowReturn.OK:
                    return
            number += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", default="0")
    parser.add_argument("--epoch", type=float, required=True)
    parser.add_argument("--login", help="USER:PASSWORD")
    parser.add_argument("--speech", type=Path)
    parser.add_argument("--silent", action="store_true", help="without a track of sound")
    given = parser.parse_args()
    gi: Any = import_module("gi")
    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    gst = import_module("gi.repository.Gst")
    rtsp = import_module("gi.repository.GstRtspServer")
    glib = import_module("gi.repository.GLib")
    gst.init(None)
    server = rtsp.RTSPServer.new()
    server.set_address("127.0.0.1")
    server.set_service(given.port)
    factory = rtsp.RTSPMediaFactory.new()
    factory.set_launch(f"( {VIDEO}{'' if given.silent else SOUND} )")
    factory.set_shared(True)
    factory.connect(
        "media-configure", Camera(gst, given.epoch, given.speech and given.speech.read_bytes()).configure
    )
    if given.login:
        user, _, password = given.login.partition(":")
        auth = rtsp.RTSPAuth.new()
        token = rtsp.RTSPToken()
        token.set_string("media.factory.role", "viewer")
        auth.add_basic(rtsp.RTSPAuth.make_basic(user, password), token)
        server.set_auth(auth)
        factory.add_role_from_structure(
            gst.Structure.new_from_string("viewer, media.factory.access=true, media.factory.construct=true")
        )
    server.get_mount_points().add_factory("/cam", factory)
    server.attach(None)
    print(f"ready {server.get_bound_port()}", flush=True)
    glib.MainLoop().run()


if __name__ == "__main__":
    main()
