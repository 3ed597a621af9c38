"""``HearingBackend``: gives a backend that only reads ears, by way of two speech bridges.

Sound that comes is searched for speech; the words of each utterance become the session's, which asks them as
it asks what is typed. Frames go on to the backend as they came, and so does everything else.

Speech over an answer stops it. But a cough is no speech: from the first sound that may be some, and while an
utterance over an answer is shorter than ``cough_ms``, the answer is only held: nothing more of it goes out,
and a client that can pause what it plays is told to. Once it is longer, or turns out to hold words, it was
the user's; otherwise the answer goes on exactly where it was held. A pause is no cancel: no fence moves,
nothing is made twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bridges.asr import AsrError
from bridges.vad import VadError
from bridges.vad_endpoint import Began, EndpointRules
from orchestrator.backends.ears import COUNTED, Ears, hearing_capabilities
from orchestrator.backends.holding import Holding
from orchestrator.backends.listening import Listener, Utterance
from orchestrator.backends.partials import StableWords
from orchestrator.backends.stream import OutputStream, pumped
from orchestrator.session.backend import (
    PLAYBACK,
    TRANSCRIPT_SO_FAR,
    BackendOutput,
    Capabilities,
    Clock,
    Closed,
    Failed,
    PlaybackHeld,
    SessionBackend,
    SessionConfig,
    SpeechStarted,
    SpeechStopped,
    TurnDetection,
    UserTranscript,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact, QueryAsked
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import ServerFault

OUTPUTS = 64
"""Outputs that wait for the session to read them."""
UTTERANCES = 8
"""Utterances that wait for their words; a further one is told as lost."""
GATHERED = 120 * 16000
"""Samples of speech that wait for a client's commit; of more what came last."""
GUESS_AFTER_MS = 200.0
"""Silence within an utterance from which its words are looked for: mostly it was its end."""
GONE_S = 1.5
"""Sound that does not come for that long ends an utterance."""
_LOOKS = 15
"""In that time; each finds none. After a stall of the process sound is still on its way."""
SUSPECTED_MS = 32.0
"""Of what may be the beginning of speech, from which an answer is held: one window of the detector."""
_SLICE = 8000
"""Samples between two looks at what else there is to do."""
_DROP_S = 1.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Waiting:
    """An utterance that waits for its words. ``doubted``: nobody was told of it, since it may be a cough."""

    utterance: Utterance
    ended_at: float
    doubted: bool = False
    guess: asyncio.Task[str] | None = None
    dropped: bool = False


class HearingBackend:
    """See ``SessionBackend``. Takes float32 samples at 16 kHz.

    :param stream: names the session to the recogniser
    """

    def __init__(self, backend: SessionBackend, ears: Ears, clock: Clock, stream: str) -> None:
        self._backend = backend
        self._ears = ears
        self._clock = clock
        self._name = stream
        self._listener = Listener(ears.detector(), EndpointRules())
        self._config = SessionConfig(model="")
        self._fence = Fence()
        self._stream = OutputStream(OUTPUTS)
        self._deaf = False
        self._heard: Utterance | None = None  # of a turn that the client commits itself
        self._waiting: deque[_Waiting] = deque()
        self._in_work: _Waiting | None = None
        self._news = asyncio.Event()
        self._words_task: asyncio.Task[None] | None = None
        self._partial: asyncio.Task[None] | None = None
        self._partial_at = 0.0
        self._stable = StableWords()
        self._guess: asyncio.Task[str] | None = None
        self._guessed_ms = 0.0  # voiced sound of the utterance that the guess is at
        self._owed: Fence | None = None
        self._start_ms = 0.0
        self._units = 0  # of sound
        self._one_at_a_time = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._reported = False  # of the utterance that is going on, or went on last
        self._paused = False  # the client was told to pause
        self._suspected = False  # what holds the answer is not known to be speech
        self._holding = Holding(clock, ears.options.verdict_s, self._held, self._count)
        self._counts = Counter(dict.fromkeys(COUNTED, 0))

    def capabilities(self) -> Capabilities:
        return hearing_capabilities(self._backend.capabilities())

    async def open(self, config: SessionConfig) -> None:
        await self._backend.open(config)
        self._configure(config)
        self._words_task = asyncio.create_task(self._guard(), name="hearing words")

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        self._fence = max(self._fence, fence)
        if unit.frames:
            await self._backend.append(replace(unit, pcm=None, parts=()), fence, operation_id)
        if unit.pcm and not self._deaf:
            try:
                await self._hear(unit)
            except VadError as broken:
                self._deaf = True
                self._count("detectors_broken")
                await self._break_off()
                _log.warning("a session's speech detector broke: %s", broken)
                await self._stream.put(Failed(self._fence, "server_vad_unavailable", str(broken)))

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        self._fence = max(self._fence, fence)
        try:
            await self._backend.tell(fact, fence)
        finally:
            if isinstance(fact, QueryAsked):
                await self._pay()

    async def commit(self, fence: Fence, create_response: bool) -> None:
        """Where the client says when a turn ends, its words are found first; then it is answered."""
        self._fence = max(self._fence, fence)
        if self._detection is None and not self._deaf:
            self._gather(self._listener.finish())
            heard, self._heard = self._heard, None
            if heard is not None and create_response:
                self._owed = fence
                await self._enqueue(_Waiting(heard, self._clock.now()))
                return
            if heard is not None:
                await self._enqueue(_Waiting(heard, self._clock.now()))
        await self._backend.commit(fence, create_response)

    async def update(self, config: SessionConfig) -> int | None:
        planned = await self._backend.update(config)
        if (config.turn_detection is None) != (self._detection is None):
            await self._break_off()
        self._configure(config)
        return planned

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        self._fence = max(self._fence, next_fence)
        self._owed = None
        self._holding.cancelled(next_fence.epoch)
        await self._backend.cancel(cancelled, next_fence)

    async def clear(self) -> None:
        """What was not committed is not heard; the clock goes on."""
        await self._break_off()
        self._heard = None
        self._drop_partial()
        self._drop_guess()
        if not self._by_commit:
            self._waiting.clear()
            if self._in_work is not None:
                self._in_work.dropped = True
        await self._backend.clear()

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        await self._backend.playback(response_id, fence, played_ms, committed_ms)

    async def close(self, reason: str) -> None:
        await self._stop()
        await self._backend.close(reason)

    def outputs(self) -> AsyncIterator[BackendOutput]:
        return pumped(self._stream, self._pump(), "hearing outputs", self._stop)

    def statistics(self) -> dict[str, int]:
        return {"waiting": len(self._waiting), **self._counts}

    def _count(self, what: str) -> None:
        self._counts[what] += 1
        self._ears.tally.counts[what] += 1

    # --- sound --------------------------------------------------------------------------------------------

    async def _break_off(self) -> None:
        """Forget the utterance that is going on; who was told of its beginning is told of an end."""
        utterance = self._listener.finish()
        if utterance is not None and self._detection is not None and self._reported:
            await self._stream.put(SpeechStopped(self._fence, round(utterance.end_ms)))
        self._suspected = False
        self._holding.let_go()

    async def _hears_no_more(self) -> None:
        """An utterance ends too where sound stops coming: a microphone that is muted sends no silence."""
        units, looks = self._units, 0
        while self._listener.speaking:
            if looks < _LOOKS:
                await self._clock.sleep(GONE_S / _LOOKS)
                units, looks = self._units, looks + 1 if self._units == units else 0
                continue
            async with self._one_at_a_time:
                if not self._by_commit and (utterance := self._listener.finish()) is not None:
                    await self._ended(utterance)
            return

    async def _hear(self, unit: InputUnit) -> None:
        self._units += 1
        async with self._one_at_a_time:
            await self._listen(unit)
        if self._listener.speaking and (self._watch is None or self._watch.done()):
            self._watch = asyncio.create_task(self._hears_no_more(), name="hearing on")

    async def _listen(self, unit: InputUnit) -> None:
        samples = np.frombuffer(unit.pcm or b"", np.float32)
        start_ms = unit.start_ms
        for at in range(0, samples.size, _SLICE):
            began = self._clock.now()
            heard = tuple(self._listener.hear(samples[at : at + _SLICE], start_ms))
            self._ears.tally.detecting.add(self._clock.now() - began)
            for found in heard:
                if isinstance(found, Began):
                    await self._began(found)
                else:
                    await self._ended(found)
            start_ms = None
            await self._look_again()
            if samples.size > _SLICE:
                await asyncio.sleep(0)

    async def _began(self, began: Began) -> None:
        self._stable, self._partial_at = StableWords(), self._clock.now()
        self._reported = False
        if self._detection is None:
            return
        self._start_ms, self._suspected = began.start_ms, False
        self._reported = not (self._ears.options.cough_ms > 0 and self._holding.is_answering)
        if self._reported:
            await self._stream.put(SpeechStarted(self._fence, round(began.start_ms)))
            self._holding.let_go()
        else:
            self._holding.hold()

    async def _look_again(self) -> None:
        """An utterance grows: it is no cough any more; its words so far can be told."""
        if not self._listener.speaking:
            self._suspect()
            return
        doubted = self._detection is not None and not self._reported
        if doubted and self._listener.voiced_ms > self._ears.options.cough_ms:
            self._reported = True
            await self._stream.put(SpeechStarted(self._fence, round(self._start_ms)))
            self._holding.let_go()
        if self._by_commit:
            return
        listener = self._listener
        if listener.silent_ms >= GUESS_AFTER_MS and self._guessed_ms != listener.voiced_ms:
            self._drop_guess()
            self._guessed_ms = listener.voiced_ms
            if (so_far := listener.so_far()) is not None:
                asking = self._words_in(so_far, final=False)
                self._guess = asyncio.create_task(asking, name="hearing guess")
                self._guess.add_done_callback(lambda task: task.cancelled() or task.exception())
        every = self._ears.options.partial_s
        idle = self._partial is None or self._partial.done()
        wanted = every > 0 and TRANSCRIPT_SO_FAR in self._config.include and not listener.silent_ms
        if wanted and idle and self._clock.now() - self._partial_at >= every:
            self._partial_at = self._clock.now()
            if (so_far := self._listener.so_far()) is not None:
                self._partial = asyncio.create_task(self._words_so_far(so_far), name="hearing partial")

    def _suspect(self) -> None:
        """What sounds like speech holds an answer at once, and lets it go if it was none after all."""
        heard_ms, holding = self._listener.suspected_ms, self._holding
        if self._suspected and not heard_ms:
            self._suspected = False
            holding.resume()
        elif self._detection is None or not self._ears.options.cough_ms or holding.holds:
            return
        elif heard_ms >= SUSPECTED_MS and holding.is_answering:
            self._suspected = True
            holding.hold()

    def _held(self, held: bool) -> None:
        """Tell a client that can pause, and that it may go on; one such word waits at most."""
        if held == self._paused or (held and not self._holding.pauses):
            return
        self._paused = held
        if not self._stream.drop(lambda output: isinstance(output, PlaybackHeld)):
            self._stream.slip_in(PlaybackHeld(self._fence, held), first=held)

    async def _ended(self, utterance: Utterance) -> None:
        self._drop_partial()
        if self._by_commit:
            self._gather(utterance)
            return
        doubted = self._detection is not None and not self._reported
        if self._detection is not None and not doubted:
            await self._stream.put(SpeechStopped(self._fence, round(utterance.end_ms)))
        guess = self._guess if self._guessed_ms == utterance.voiced_ms else None
        if guess is None:
            self._drop_guess()
        self._guess, self._guessed_ms = None, 0.0
        await self._enqueue(_Waiting(utterance, self._clock.now(), doubted, guess))

    def _gather(self, utterance: Utterance | None) -> None:
        if utterance is not None:
            self._heard = utterance if self._heard is None else self._heard.joined(utterance, GATHERED)

    # --- words --------------------------------------------------------------------------------------------

    async def _enqueue(self, waiting: _Waiting) -> None:
        self._count("utterances")
        if len(self._waiting) >= UTTERANCES:
            self._count("lost")
            await self._unknown(waiting, "asr_overloaded", "too much speech waits for its words")
            return
        self._waiting.append(waiting)
        self._news.set()

    async def _guard(self) -> None:
        try:
            await self._find_words()
        except Exception as fault:
            _log.exception("a session's ears failed")
            told = ServerFault(f"internal fault: {type(fault).__name__}")
            await self._stream.put(Failed(self._fence, told.code, told.message, fatal=True))

    async def _find_words(self) -> None:
        while True:
            while not self._waiting:
                self._news.clear()
                await self._news.wait()
            waiting = self._in_work = self._waiting.popleft()
            try:
                words = await self._words_of(waiting)
            except AsrError as error:
                self._count("failed")
                await self._unknown(waiting, error.code, error.message)
                continue
            self._ears.tally.words.add(self._clock.now() - waiting.ended_at)
            if waiting.dropped:
                await self._nothing(waiting)
            elif words:
                await self._said(waiting, words)
            else:
                self._count("empty")
                await self._nothing(waiting)

    async def _said(self, waiting: _Waiting, words: str) -> None:
        utterance, fence = waiting.utterance, self._fence
        start, end = round(utterance.start_ms), round(utterance.end_ms)
        told_of_later = self._listener.speaking and self._reported
        if waiting.doubted and not told_of_later:
            await self._stream.put(SpeechStarted(fence, start))
            await self._stream.put(SpeechStopped(fence, end))
        await self._stream.put(UserTranscript(fence, words, True, start, end))
        if waiting.doubted:
            self._holding.let_go()

    async def _nothing(self, waiting: _Waiting) -> None:
        if waiting.doubted:
            self._holding.resume()
        await self._pay()

    async def _unknown(self, waiting: _Waiting, code: str, message: str) -> None:
        """Its words can't be had: the client is told, and what it held goes on."""
        await self._stream.put(Failed(self._fence, code, message))
        await self._nothing(waiting)

    async def _pay(self) -> None:
        """Ask for the answer that waited for its words."""
        if self._owed is not None:
            fence, self._owed = self._owed, None
            await self._backend.commit(fence, True)

    async def _words_of(self, waiting: _Waiting) -> str:
        if waiting.guess is not None:
            with suppress(AsrError):  # it may have had to give way
                return await waiting.guess
        return await self._words_in(waiting.utterance, final=True)

    async def _words_so_far(self, utterance: Utterance) -> None:
        with suppress(AsrError):  # the whole will be told at its end
            if fresh := self._stable.guessed(await self._words_in(utterance, final=False)):
                await self._stream.put(UserTranscript(self._fence, fresh, False))

    async def _words_in(self, utterance: Utterance, *, final: bool) -> str:
        return await self._ears.transcriber.transcribe(
            utterance.samples,
            self._name,
            language=self._language,
            final=final,
            deadline_s=self._ears.options.deadline_s,
        )

    def _drop_guess(self) -> None:
        if self._guess is not None:
            self._guess.cancel()
            self._guess = None

    def _drop_partial(self) -> None:
        if self._partial is not None:
            self._partial.cancel()
            self._partial = None

    # --- the answer ---------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        closed = Closed("internal_error")
        fault: Exception | None = None
        try:
            async for output in self._backend.outputs():
                if isinstance(output, Closed):
                    closed = output
                    return
                await self._holding.passes(output)
                await self._stream.put(output)
            fault = ServerFault("the backend's outputs ended while the session was open")
        except Exception as raised:
            fault = raised
        finally:
            await self._stream.end(closed, fault=fault)

    # --- settings and ends ---------------------------------------------------------------------------------

    @property
    def _detection(self) -> TurnDetection | None:
        return self._config.turn_detection

    @property
    def _by_commit(self) -> bool:
        """The client says when a turn ends, and nothing else does."""
        auto = self._config.auto_response
        return self._detection is None and not (
            self._backend.capabilities().auto_response if auto is None else auto
        )

    @property
    def _language(self) -> str | None:
        return self._ears.options.language or self._config.language

    def _configure(self, config: SessionConfig) -> None:
        self._config = config
        self._holding.pauses = PLAYBACK in config.include
        if (detection := config.turn_detection) is not None:
            self._listener.retune(
                EndpointRules(
                    detection.threshold,
                    detection.prefix_padding_ms,
                    detection.silence_duration_ms,
                    detection.min_speech_duration_ms,
                )
            )
        else:
            self._listener.retune(EndpointRules())

    async def _stop(self) -> None:
        guesses = [self._guess, *(each.guess for each in (*self._waiting, self._in_work) if each is not None)]
        tasks: set[asyncio.Task[Any]] = {
            task for task in (self._words_task, self._partial, self._watch, *guesses) if task is not None
        }
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_DROP_S)
        self._holding.let_go()
