"""Piper, a neural voice, as a process of its own beside the service.

Its code is under a licence of its own (GPL-3.0-or-later): it lives in its own environment and is spoken to
over pipes, see ``piper_worker``. One process serves all sessions, a text at a time; one that dies or gives no
sound in time is ended, and the next text starts another.
"""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bridges.clause_speaker import RawSound
from bridges.speech import SpeechError

WORKER = Path(__file__).with_name("piper_worker.py")
_LINE_BYTES = 64 * 1024
_PIECE_BYTES = 1 << 20
_KILL_S = 2.0


@dataclass(frozen=True, slots=True)
class PiperOptions:
    """:param python: interpreter of the environment that Piper is installed in
    :param model: the voice, an ``.onnx`` file with its ``.json`` beside it
    :param start_s: until the process is ready; ``wait_s``: for one's turn; ``gap_s``: between pieces of sound
    """

    python: Path
    model: Path
    start_s: float = 30.0
    wait_s: float = 10.0
    gap_s: float = 10.0
    worker: Path = WORKER


class PiperVoice:
    """See ``Synthesiser``. Speaks with the one voice of its model, whatever a session asks for.

    :raises SpeechError: ``speech_not_installed``: the interpreter or the voice is not there
    """

    def __init__(self, options: PiperOptions) -> None:
        for path in (options.python, options.model):
            if not path.is_file():
                told = f"there is no {path}; install Piper and a voice into an environment of their own"
                raise SpeechError("speech_not_installed", told)
        self._options = options
        self._process: Process | None = None
        self._reading: asyncio.Future[tuple[dict[str, Any], bytes]] | None = None
        self._turn = asyncio.Lock()
        self._number = 0
        self.starts = 0
        self.waiting = 0

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def statistics(self) -> Mapping[str, int]:
        """Starts of the process, and texts that wait for their turn."""
        return {"starts": self.starts, "waiting": self.waiting}

    async def aclose(self) -> None:
        await self._end()

    async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        await self._take_turn()
        done = False
        try:
            self._number += 1
            number = self._number
            head, pcm = await self._first_answer(number, text)
            while True:
                # Those with another number are the rest of a text that was cut off.
                if head.get("id") == number:
                    if "error" in head:
                        done = True
                        raise SpeechError("speech_failed", f"Piper: {head['error']}")
                    if head.get("done"):
                        done = True
                        return
                    yield RawSound(np.frombuffer(pcm, "<i2").astype(np.int16), head["rate"])
                head, pcm = await self._answer(self._options.gap_s)
        except TimeoutError:
            await self._end()
            raise SpeechError("speech_timeout", "Piper gave no sound in time") from None
        except (OSError, EOFError) as error:
            await self._end()
            raise SpeechError("speech_failed", f"Piper's process ended ({type(error).__name__})") from None
        finally:
            if not done:
                await self._cancel()
            self._turn.release()

    async def _take_turn(self) -> None:
        self.waiting += 1
        try:
            await asyncio.wait_for(self._turn.acquire(), self._options.wait_s)
        except TimeoutError:
            raise SpeechError("speech_timeout", "Piper is busy with other texts") from None
        finally:
            self.waiting -= 1

    async def _first_answer(self, number: int, text: str) -> tuple[dict[str, Any], bytes]:
        """A process may have died since it was last asked, and nobody know: then another one is, once."""
        was_there = self._process is not None and self._process.returncode is None
        try:
            await self._ask(number, text)
            return await self._answer(self._options.gap_s)
        except TimeoutError:
            raise
        except (OSError, EOFError):
            if not was_there:
                raise
        await self._end()
        await self._ask(number, text)
        return await self._answer(self._options.gap_s)

    async def _ask(self, number: int, text: str) -> None:
        request = json.dumps({"id": number, "text": text}).encode() + b"\n"
        if self._process is None or self._process.returncode is not None:
            await self._start()
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(request)
        await self._process.stdin.drain()

    async def _start(self) -> None:
        await self._end()
        options = self._options
        self.starts += 1
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                options.python,
                "-I",
                options.worker,
                options.model,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                limit=_LINE_BYTES,
            )
        )
        try:
            self._process = await asyncio.shield(starting)
        except asyncio.CancelledError:
            self._process = await starting
            await self._end()
            raise
        try:
            head, _ = await self._answer(options.start_s)
        except BaseException:
            await self._end()
            raise
        if not head.get("ready"):
            raise EOFError("no Piper")

    async def _answer(self, within_s: float) -> tuple[dict[str, Any], bytes]:
        """The next line and its sound. Who is cut off here leaves the reading to the next one, unbroken."""
        assert self._process is not None and self._process.stdout is not None
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.ensure_future(_frame(self._process.stdout))
        await asyncio.wait({reading}, timeout=within_s)
        if not reading.done():
            raise TimeoutError
        self._reading = None
        return reading.result()

    async def _cancel(self) -> None:
        process = self._process
        if process is not None and process.returncode is None and process.stdin is not None:
            with suppress(OSError, RuntimeError):
                process.stdin.write(json.dumps({"cancel": self._number}).encode() + b"\n")

    async def _end(self) -> None:
        process, self._process = self._process, None
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
            self._reading = None
        if process is None:
            return
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await process.wait()


async def _frame(out: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    try:
        head = json.loads(await out.readline() or b"null")
        size = head.get("bytes", 0) if isinstance(head, dict) else -1
        if not 0 <= size <= _PIECE_BYTES:
            raise EOFError("no answer")
        return head, await out.readexactly(size) if size else b""
    except ValueError as error:
        raise EOFError("what it says makes no sense") from error
