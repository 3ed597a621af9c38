"""``tests/fakes/rtsp_camera.py`` as a process, and its pictures read."""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import numpy as np
from PIL import Image

PROGRAM = Path(__file__).with_name("rtsp_camera.py")
SYSTEM_PYTHON = "/usr/bin/python3"
BITS = 16


class RtspCamera:
    """``async with RtspCamera() as camera``: films at ``camera.url``; ``kill`` and ``start`` are its outages.

    :param login: ``USER:PASSWORD`` that it asks for; ``speech``: what it hears, S16LE at 8 kHz
    :param silent: it has no track of sound
    """

    def __init__(self, *, login: str | None = None, speech: Path | None = None, silent: bool = False) -> None:
        self._options = [
            *(["--silent"] if silent else []),
            *(["--login", login] if login else []),
            *(["--speech", str(speech)] if speech else []),
        ]
        self._epoch = time.monotonic()
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"rtsp://127.0.0.1:{self.port}/cam"

    @property
    def age_ms(self) -> float:
        """Since its epoch: a picture is on its way for as long as its number says less."""
        return (time.monotonic() - self._epoch) * 1000

    async def start(self) -> None:
        """At the same port as before."""
        command = [SYSTEM_PYTHON, str(PROGRAM), "--epoch", str(self._epoch), "--port", str(self.port)]
        process = await asyncio.create_subprocess_exec(
            *command, *self._options, stdout=asyncio.subprocess.PIPE
        )
        self._process = process
        assert process.stdout is not None
        told = (await process.stdout.readline()).decode()
        assert told.startswith("ready "), "the RTSP server did not start; see evals/install_system.sh"
        self.port = int(told.split()[1])

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()

    async def __aenter__(self) -> RtspCamera:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()


def number_of(jpeg: bytes) -> int:
    """Which picture of the camera's this is: it was taken that many tenths of a second after its epoch."""
    gray = np.asarray(Image.open(io.BytesIO(jpeg)).convert("L"))
    height, width = gray.shape
    row = gray[height // 4]
    bits = [int(row[int((place + 0.5) * width / BITS)] > 128) for place in range(BITS)]
    return int("".join(map(str, bits)), 2)


@contextmanager
def wedged() -> Iterator[str]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"rtsp://127.0.0.1:{listener.getsockname()[1]}/cam"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if sys.platform == "linux" else 0
