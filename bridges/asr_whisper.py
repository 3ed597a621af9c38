"""faster-whisper as a ``Transcriber``: one model in a process of its own, for all sessions.

One request is in work at a time; the others wait in turn. A process that dies or does not answer in time is
replaced; what it had in work fails with a code, and nothing else does.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bridges.asr import AsrError, Samples, Segment, words_of
from bridges.asr_queue import FairQueue
from bridges.circuit import Backoff, Clock, RealClock
from bridges.timing import Durations

WAITING, WAITING_OF_STREAM = 64, 4
_LINE_BYTES = 4 * 2**20
_KILL_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Job:
    samples: Samples
    language: str | None
    until: float
    answer: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


def worker_command(model: str, threads: int) -> tuple[str, ...]:
    return (sys.executable, "-m", "bridges.asr_worker", model, str(threads))


class WhisperTranscriber:
    """See ``Transcriber``. ``start`` it before use.

    :param command: of the process, see ``worker_command``
    :param load_s: seconds that it may take to load its model
    """

    def __init__(self, command: Sequence[str], *, load_s: float = 60.0, clock: Clock | None = None) -> None:
        self._command = tuple(command)
        self._load_s = load_s
        self._clock = clock or RealClock()
        self._queue: FairQueue[_Job] = FairQueue(WAITING, WAITING_OF_STREAM)
        self._news = asyncio.Event()
        self._process: Process | None = None
        self._runner: asyncio.Task[None] | None = None
        self._closing = False
        self.took = Durations()
        self._counts = {"transcribed": 0, "failed": 0, "refused": 0, "worker_starts": 0}
        self._in_work = 0

    async def start(self) -> None:
        """Load the model.

        :raises AsrError: ``asr_failed``, with the reason in its message
        """
        await self._worker()
        self._runner = asyncio.create_task(self._run(), name="transcriber")

    async def transcribe(
        self, samples: Samples, stream: str, *, language: str | None, final: bool, deadline_s: float
    ) -> str:
        if self._closing or self._runner is None:
            raise AsrError("asr_failed", "speech recognition is not running")
        job = _Job(samples, language, self._clock.now() + deadline_s)
        taken, gone = self._queue.add(stream, job, final=final)
        for other in gone:
            _fail(other, "asr_overloaded", "other speech went first")
        if not taken:
            self._counts["refused"] += 1
            raise AsrError("asr_overloaded", f"{len(self._queue)} stretches of speech wait to be recognised")
        self._news.set()
        late = asyncio.create_task(self._clock.sleep(deadline_s))
        try:
            await asyncio.wait((job.answer, late), return_when=asyncio.FIRST_COMPLETED)
            if not job.answer.done():
                _fail(job, "asr_timeout", f"no transcript within {deadline_s:g} s")
            return job.answer.result()
        except AsrError:
            self._counts["failed"] += 1
            raise
        finally:
            late.cancel()
            self._queue.remove(job)
            job.answer.cancel()

    def statistics(self) -> dict[str, int]:
        return {
            "waiting": len(self._queue),
            "in_work": self._in_work,
            "dropped": self._queue.dropped,
            **self._counts,
        }

    async def aclose(self) -> None:
        self._closing = True
        if self._runner is not None:
            self._runner.cancel()
            await asyncio.gather(self._runner, return_exceptions=True)
        for job in self._queue.clear():
            _fail(job, "asr_failed", "the service ends")
        await self._stop()

    # --- the row ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        backoff = Backoff(self._clock)
        while True:
            while (job := self._queue.take()) is None:
                self._news.clear()
                await self._news.wait()
            if job.answer.done():
                continue
            try:
                process = await self._worker()
            except AsrError as error:
                _fail(job, "asr_worker_lost", error.message)
                await backoff.wait()
                continue
            backoff = Backoff(self._clock)
            self._in_work, began = 1, self._clock.now()
            try:
                await self._serve(process, job)
            finally:
                self._in_work = 0
            self.took.add(self._clock.now() - began)

    async def _serve(self, process: Process, job: _Job) -> None:
        asking = asyncio.create_task(_ask(process, job))
        try:
            # It ends with its answer, or when nobody waits for that any more: then it is a partial that was
            # given up, which may finish, or one that is late, whose process is given up with it.
            late = asyncio.create_task(self._clock.sleep(max(job.until - self._clock.now(), 0.0)))
            await asyncio.wait({asking, late}, return_when=asyncio.FIRST_COMPLETED)
            late.cancel()
            if not asking.done():
                await self._stop()
                _fail(job, "asr_timeout", "speech recognition took too long")
                return
            reply = asking.result()
        except (OSError, ValueError, EOFError, asyncio.IncompleteReadError) as lost:
            _log.warning("the speech recogniser's process was lost: %r", lost)
            await self._stop()
            _fail(job, "asr_worker_lost", "the speech recogniser ended; it is started anew")
            return
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        if "error" in reply:
            _fail(job, "asr_failed", str(reply["error"]))
        elif not job.answer.done():
            self._counts["transcribed"] += 1
            job.answer.set_result(words_of([Segment.of(each) for each in reply["segments"]]))

    # --- the process --------------------------------------------------------------------------------------

    async def _worker(self) -> Process:
        """The process, with its model loaded."""
        if self._process is not None and self._process.returncode is None:
            return self._process
        self._counts["worker_starts"] += 1
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            limit=_LINE_BYTES,
            start_new_session=True,  # a signal from the terminal is for the service, which ends it in order
        )
        reading = asyncio.create_task(_reply(process))
        late = asyncio.create_task(self._clock.sleep(self._load_s))
        try:
            await asyncio.wait({reading, late}, return_when=asyncio.FIRST_COMPLETED)
            told = reading.result() if reading.done() else {"error": f"not loaded within {self._load_s:g} s"}
        except (OSError, ValueError, EOFError) as lost:
            told = {"error": f"its process ended: {lost!r}"}
        finally:
            late.cancel()
            reading.cancel()
            await asyncio.gather(late, reading, return_exceptions=True)
        if not told.get("ready"):
            await self._stop()
            raise AsrError("asr_failed", f"speech recognition can't start: {told.get('error')}")
        return process

    async def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_KILL_S):
                await process.wait()


async def _ask(process: Process, job: _Job) -> dict[str, Any]:
    assert process.stdin is not None
    data = job.samples.tobytes()
    head = json.dumps({"bytes": len(data), "language": job.language}).encode()
    process.stdin.write(head + b"\n" + data)
    await process.stdin.drain()
    return await _reply(process)


async def _reply(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise EOFError("it said nothing")
    reply: dict[str, Any] = json.loads(line)
    return reply


def _fail(job: _Job, code: str, message: str) -> None:
    if not job.answer.done():
        job.answer.set_exception(AsrError(code, message))
        job.answer.exception()  # nobody has to fetch it
