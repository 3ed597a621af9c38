"""The synthesiser that is a program of the system: flite or espeak-ng, one process for each piece of text.

Small, quick and always at hand: no model, no server. The processes of all sessions share a few places; one
that is not wanted any more is killed.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen

from bridges.clause_speaker import RawSound
from bridges.sound import Wav
from bridges.speech import SpeechError

REMEDY = "install one, for instance with: apt-get install flite espeak-ng"
_READ = 8192
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9+_-]{0,31}")
_FLITE_VOICES = ("rms", "slt", "awb", "kal16", "kal")
_ESPEAK_NAMES = {"zh": "cmn", "zh-cn": "cmn", "zh-tw": "cmn", "no": "nb", "en": "en-us"}
_KILL_S = 2.0


@dataclass(frozen=True, slots=True)
class SystemOptions:
    """:param program: ``flite`` or ``espeak-ng``; ``None``: flite for English where it is, else espeak-ng
    :param processes: at a time, of all sessions
    :param piece_s: deadline of one piece, waiting for a place apart
    :param wait_s: longest wait for a place
    """

    program: str | None = None
    voice: str | None = None
    processes: int = 4
    piece_s: float = 10.0
    wait_s: float = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class _Speaking:
    process: Popen[bytes]
    out: asyncio.StreamReader
    pipe: asyncio.BaseTransport


class SystemVoice:
    """See ``Synthesiser``.

    :raises SpeechError: ``speech_not_installed``: there is no such program
    """

    def __init__(self, options: SystemOptions = SystemOptions(), path: str | None = None) -> None:
        names = (options.program,) if options.program else ("flite", "espeak-ng")
        self._programs = {name: found for name in names if (found := shutil.which(name, path=path))}
        if not self._programs:
            told = f"no speech program on the PATH ({' or '.join(names)}); {REMEDY}"
            raise SpeechError("speech_not_installed", told)
        self._options = options
        self._places = asyncio.Semaphore(options.processes)
        self._running: set[_Speaking] = set()
        self.waiting = 0

    @property
    def programs(self) -> tuple[str, ...]:
        return tuple(self._programs)

    def statistics(self) -> Mapping[str, int]:
        """Processes that run, and pieces that wait for one."""
        return {"running": len(self._running), "waiting": self.waiting}

    async def aclose(self) -> None:
        for speaking in tuple(self._running):
            await _end(speaking)

    async def say(self, text: str, voice: str | None, language: str | None) -> AsyncGenerator[RawSound, None]:
        command, piped = self._command(text, voice or self._options.voice, (language or "en").lower())
        await self._take_place()
        try:
            # Not cancelled half way: a process that began is known, and ended.
            starting = asyncio.ensure_future(_start(command, piped))
            try:
                speaking = await asyncio.shield(starting)
            except asyncio.CancelledError:
                with suppress(SpeechError):
                    await _end(await starting)
                raise
            self._running.add(speaking)
            try:
                async for raw in _sound(speaking, self._options.piece_s):
                    yield raw
            finally:
                await _end(speaking)
                self._running.discard(speaking)
        finally:
            self._places.release()

    async def _take_place(self) -> None:
        self.waiting += 1
        try:
            await asyncio.wait_for(self._places.acquire(), self._options.wait_s)
        except TimeoutError:
            told = f"no place for a speech process within {self._options.wait_s:g} s"
            raise SpeechError("speech_timeout", told) from None
        finally:
            self.waiting -= 1

    def _command(self, text: str, voice: str | None, language: str) -> tuple[tuple[str, ...], bytes | None]:
        """The program's words, and what it reads. A client's voice is a name or nothing, never a path."""
        if (flite := self._programs.get("flite")) and (
            language.startswith("en") or "espeak-ng" not in self._programs
        ):
            name = voice if voice in _FLITE_VOICES else _FLITE_VOICES[0]
            return (flite, "-voice", name, "-t", text, "-o", "/dev/stdout"), None
        named = voice if voice and _NAME.fullmatch(voice) and voice not in _FLITE_VOICES else None
        spoken = _ESPEAK_NAMES.get(language, language)
        name = spoken if _NAME.fullmatch(spoken) else "en-us"
        if named is not None and named.startswith(f"{name}+"):
            name = named
        return (self._programs["espeak-ng"], "-v", name, "--stdin", "--stdout"), text.encode()


async def _start(command: tuple[str, ...], piped: bytes | None) -> _Speaking:
    """Its output is a pipe made here: with one of uvloop's, a socket, ``/dev/stdout`` can't be opened.

    Not by the event loop's own means: uvloop forks, which copies the tables of all this process's memory and
    holds up every session for that long; ``Popen`` lends them to the child until it runs its program.
    """
    ours, theirs = os.pipe()
    try:
        process = Popen(command, stdin=PIPE, stdout=theirs, stderr=DEVNULL)  # noqa: ASYNC220  see above
    except OSError as error:
        os.close(ours)
        name = Path(command[0]).name
        raise SpeechError("speech_failed", f"{name} can't be started: {error.strerror}") from error
    finally:
        os.close(theirs)
    assert process.stdin is not None
    with suppress(OSError), process.stdin:  # it is gone already, as its code will tell
        process.stdin.write(piped or b"")  # a clause: a pipe takes it without waiting for a reader
    out = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(out), os.fdopen(ours, "rb", buffering=0)
    )
    return _Speaking(process, out, pipe)


async def _sound(speaking: _Speaking, deadline_s: float) -> AsyncGenerator[RawSound, None]:
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    wav, heard = Wav(), False
    try:
        while True:
            async with asyncio.timeout_at(until):
                data = await speaking.out.read(_READ)
            if not data:
                break
            samples = wav.push(data)
            if wav.rate_hz is not None and len(samples):
                heard = True
                waited = loop.time()
                yield RawSound(samples, wav.rate_hz)
                until += loop.time() - waited  # who listens may take their time
        async with asyncio.timeout_at(until):
            code = await asyncio.to_thread(speaking.process.wait)
    except TimeoutError:
        raise SpeechError("speech_timeout", f"no speech within {deadline_s:g} s") from None
    except OSError:
        code = 1
    if code != 0 or not heard:
        raise SpeechError("speech_failed", f"the speech program ended with {code} and without sound")


async def _end(speaking: _Speaking) -> None:
    """Killed if it lives; its pipes are read no more."""
    process = speaking.process
    with suppress(ProcessLookupError):
        process.kill()  # nothing happens to one that was seen to end
    speaking.pipe.close()
    with suppress(TimeoutError):
        async with asyncio.timeout(_KILL_S):
            await asyncio.to_thread(process.wait)
