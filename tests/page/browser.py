"""A real browser on the page: Debian's Chromium with a camera and a microphone made of files."""

from __future__ import annotations

import io
import json
import wave
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw
from playwright.async_api import BrowserContext, ConsoleMessage, Page, Request, WebSocket, async_playwright

CHROMIUM = "/usr/bin/chromium"
SHOTS = Path(__file__).resolve().parents[2] / "out" / "page"
"""Screenshots, to be looked at."""

WAIT_MS = 90_000
_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio",
)  # fmt: skip
_WIDTH, _HEIGHT, _FPS = 640, 360, 10


class Visit:
    """``async with Visit(url, folder) as visit``: ``visit.page`` shows the page.

    Whatever the page asks of another origin, and whatever it writes to the console as an error, fails the
    test at its end; ``expected``: parts of errors that the test provokes. ``voice``: a WAV file that the
    microphone hears over and over, in place of a hum.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        *,
        expected: tuple[str, ...] = (),
        dark: bool = False,
        size: tuple[int, int] = (1320, 860),
        voice: bytes | None = None,
        **context: Any,
    ) -> None:
        self.url = url
        self.page: Page
        self.sent: list[dict[str, Any]] = []
        """Events that the page sent, on all its sockets."""
        self.got: list[dict[str, Any]] = []
        self.both: list[dict[str, Any]] = []
        """What it sent and got, in order."""
        self.errors: list[str] = []
        self.elsewhere: list[str] = []
        self._folder = folder / "browser"
        self._expected = expected
        self._voice = voice
        self._look: dict[str, Any] = {
            "color_scheme": "dark" if dark else "light",
            "viewport": {"width": size[0], "height": size[1]},
            **context,
        }
        self._stack = AsyncExitStack()
        self._context: BrowserContext

    async def __aenter__(self) -> Visit:
        self._folder.mkdir()
        camera, voice = self._folder / "camera.mjpeg", self._folder / "voice.wav"
        camera.write_bytes(moving_pictures())
        voice.write_bytes(self._voice or humming())
        playwright = await self._stack.enter_async_context(async_playwright())
        self._context = await playwright.chromium.launch_persistent_context(
            str(self._folder / "profile"),
            executable_path=CHROMIUM,
            args=[
                *_QUIET,
                "--use-fake-device-for-media-stream",
                "--use-fake-ui-for-media-stream",
                f"--use-file-for-fake-video-capture={camera}",
                f"--use-file-for-fake-audio-capture={voice}",
            ],
            **self._look,
        )
        self._context.set_default_timeout(WAIT_MS)
        self.page = self._context.pages[0]
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._request)
        self.page.on("websocket", self._socket)
        await self.page.goto(self.url)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._context.close()
        await self._stack.aclose()
        if error is None:
            unexpected = [e for e in self.errors if not any(part in e for part in self._expected)]
            assert not unexpected, unexpected
            assert not self.elsewhere, self.elsewhere

    async def ready(self) -> None:
        await self.page.wait_for_selector("html[data-ready=yes]", state="attached")

    async def click(self, name: str) -> None:
        await self.page.get_by_role("button", name=name, exact=True).click()

    async def start(self) -> None:
        await self.ready()
        await self.click("Start")
        await self.is_live()

    async def is_live(self) -> None:
        await self.page.wait_for_selector("#state[data-state=open]")

    async def ask(self, text: str) -> None:
        await self.page.fill("#ask-text", text)
        await self.page.press("#ask-text", "Enter")

    async def reads(self, selector: str, text: str) -> None:
        """Wait until an element says that."""
        await self.page.locator(selector, has_text=text).first.wait_for()

    async def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png", full_page=False)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Events of one type that the page sent."""
        return [event for event in self.sent if event["type"] == kind]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _request(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("blob", "data") and parts.netloc != urlsplit(self.url).netloc:
            self.elsewhere.append(request.url)

    def _socket(self, socket: WebSocket) -> None:
        if urlsplit(socket.url).netloc != urlsplit(self.url).netloc:
            self.elsewhere.append(socket.url)
        socket.on("framesent", lambda frame: self._note(self.sent, frame))
        socket.on("framereceived", lambda frame: self._note(self.got, frame))

    def _note(self, where: list[dict[str, Any]], frame: str | bytes) -> None:
        event = _event(frame)
        where.append(event)
        self.both.append(event)


def _event(frame: str | bytes) -> dict[str, Any]:
    found: Mapping[str, Any] = json.loads(frame)
    return dict(found)


@cache
def moving_pictures() -> bytes:
    """Two seconds of a sun over hills, as Motion JPEG."""
    frames = []
    for number in range(2 * _FPS):
        image = Image.new("RGB", (_WIDTH, _HEIGHT), (150, 196, 222))
        draw = ImageDraw.Draw(image)
        x = 80 + number * 24
        draw.ellipse((x, 50, x + 70, 120), fill=(250, 216, 120))
        draw.polygon(
            [(0, 260), (180, 150), (380, 280), (640, 200), (640, 360), (0, 360)], fill=(98, 146, 110)
        )
        draw.polygon([(0, 310), (260, 240), (640, 320), (640, 360), (0, 360)], fill=(58, 105, 84))
        written = io.BytesIO()
        image.save(written, "JPEG", quality=85)
        frames.append(written.getvalue())
    return b"".join(frames)


@cache
def humming() -> bytes:
    """Two seconds of a tone that swells, as WAV."""
    rate = 48000
    at = np.arange(2 * rate) / rate
    samples = 9000 * np.sin(2 * np.pi * 220 * at) * (0.6 + 0.4 * np.sin(2 * np.pi * 2 * at))
    return wav(samples, rate)


def wav(samples: npt.NDArray[Any], rate: int) -> bytes:
    """PCM16, from samples of that size."""
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return written.getvalue()
