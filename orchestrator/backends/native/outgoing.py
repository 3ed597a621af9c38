"""What an engine says, on its way to the session; and what of it a cancel takes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from bridges.duplex_client.link import AudioChunk, EngineEvent, LinkError
from orchestrator.backends.native.gathered import GATHER_S, Gathered
from orchestrator.backends.native.options import NativeOptions
from orchestrator.backends.native.pairing import Pairing
from orchestrator.backends.native.responses import Bound, Responses
from orchestrator.backends.native.rollover import Rollover
from orchestrator.backends.native.translate import Translator
from orchestrator.backends.stream import OutputStream
from orchestrator.backends.waiting import in_time, set_within
from orchestrator.session.backend import (
    Action,
    AudioDelta,
    BackendOutput,
    Clock,
    Decision,
    Failed,
    Metrics,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.media import rms
from orchestrator.wire.audio import pcm16_to_float

UNBEGUN_S = 0.5
"""For the first word of a response that was cancelled before the engine began it."""
SILENT_RMS = 0.003
"""Speech is louder."""
_SAID = (Decision, TextDelta, AudioDelta, Metrics, TurnEnd)
"""Outputs that an end of their epoch takes back."""
_log = logging.getLogger(__name__)


class Outgoing:
    """
    :param rollover: is told what is said, and who speaks
    :param tick: numbers the decisions
    :param current: the engine session that is open now
    :param turn_ends: the model's turns have ends
    """

    def __init__(
        self,
        stream: OutputStream,
        responses: Responses,
        rollover: Rollover,
        clock: Clock,
        options: NativeOptions,
        tick: Callable[[], int],
        current: Callable[[], Pairing | None],
        *,
        turn_ends: bool,
    ) -> None:
        self._stream = stream
        self._responses = responses
        self._rollover = rollover
        self._clock = clock
        self._options = options
        self._current = current
        self._turn_ends = turn_ends
        self._translator = Translator(responses, tick)
        self._telling = asyncio.Lock()
        self._chunks = 0
        self._held = asyncio.Event()
        self._failed = asyncio.Event()
        self._gathered = Gathered()
        self._playing = False
        self.ended = asyncio.Event()
        """Set whenever something of the engine ended."""

    async def put(self, output: BackendOutput) -> None:
        await self._stream.put(output)

    async def take(self, event: EngineEvent, decided: Callable[[], list[BackendOutput]]) -> None:
        """Tell an event of the engine; ``decided``: what it decides of units, told behind it."""
        async with self._telling:
            records = decided()
            await self._say([*self._translator.take(event), *records])
        if isinstance(event, AudioChunk):
            self._chunks += 1
            self._held.set()
        self.ended.set()

    async def fail(self, failed: Failed) -> None:
        """An error of the engine's; many of a kind are told as one."""
        if (told := self._gathered.take(failed)) is not None:
            await self.put(told)
        self._failed.set()

    # --- tasks ----------------------------------------------------------------------------------------

    async def flush_late(self) -> None:
        """Let no chunk wait longer for its words than it may."""
        while True:
            await self._held.wait()
            self._held.clear()
            chunks = self._chunks
            await self._clock.sleep(self._options.pair_s)
            async with self._telling:
                if self._translator.holds and chunks == self._chunks:
                    await self._say(self._translator.flush())

    async def tell_gathered(self) -> None:
        """Tell the errors that were gathered, in time."""
        while True:
            await self._failed.wait()
            self._failed.clear()
            while self._gathered.busy:
                await self._clock.sleep(GATHER_S)
                for failed in self._gathered.due():
                    await self.put(failed)

    # --- ends -----------------------------------------------------------------------------------------

    async def end_open(self, status: str, reason: str | None) -> None:
        """End every response that is open, on our own account."""
        async with self._telling:
            outputs: list[BackendOutput] = self._translator.flush()
            for bound in self._responses.open():
                if self._responses.is_stale(bound) or not (bound.visible or bound.asked):
                    self._responses.end(bound)
                else:
                    outputs += self._translator.end(bound, status if bound.visible else "failed", reason)
            await self._say(outputs)

    async def stop(self, bound: Bound) -> None:
        """The model has had all the silence that it may have for one response: tell it, and the client."""
        async with self._telling:
            await self._say(self._translator.stopped(bound))
        pairing = self._current()
        if bound.key is not None and pairing is not None:
            try:
                await pairing.link.cancel(bound.key[1])
            except LinkError as error:
                _log.warning("an engine did not take a cancel: %s", error)

    async def cancel(self, next_fence: Fence) -> None:
        """The epoch has moved; what is said of the old one is taken back, then the engine is told."""
        responses, now = self._responses, self._clock.now()
        targets = [bound for bound in responses.open() if not bound.ended]
        responses.learn(next_fence)
        self._translator.forget_held()
        self._stream.drop(lambda output: isinstance(output, _SAID) and output.fence.is_stale(next_fence))
        self._rollover.speech(now, model=False)
        if targets:
            self._rollover.response_closed(now, playing=False)
        pairing = self._current()
        told = [bound for bound in targets if bound.key is not None or bound.forwarded]
        for bound in targets:
            if pairing is None or bound not in told:
                responses.end(bound)
        if pairing is None or not targets:
            return
        await in_time(self._end_at_engine(pairing, told), self._clock.sleep(self._options.cancel_s))
        for bound in told:
            if not bound.ended and bound.key is not None:
                _log.warning("an engine did not end what was cancelled in time")
            responses.end(bound)

    async def _end_at_engine(self, pairing: Pairing, bounds: list[Bound]) -> None:
        """Ask for the end of these, and wait for the engine's word that they have ended.

        One that it was asked for and has not begun may be on its way; if it is not, no word comes.
        """
        try:
            for bound in bounds:
                await pairing.link.cancel(bound.key[1] if bound.key is not None else None)
        except LinkError as error:
            _log.warning("an engine did not take a cancel: %s", error)
        until = self._clock.now() + UNBEGUN_S
        while pairing is self._current() and not all(bound.ended for bound in bounds):
            self.ended.clear()
            if all(bound.ended or bound.key is None for bound in bounds):
                await set_within(self.ended, self._clock.sleep(until - self._clock.now()))
                if self._clock.now() >= until:
                    return
            else:
                await self.ended.wait()

    def forget_held(self) -> None:
        """Nothing that waits is told any more."""
        self._translator.forget_held()

    def statistics(self) -> dict[str, int]:
        return {
            **self._responses.statistics(),
            "dropped": self._translator.dropped,
            "errors_gathered": self._gathered.told_together,
        }

    # --- parts ----------------------------------------------------------------------------------------

    async def _say(self, outputs: list[BackendOutput]) -> None:
        for output in outputs:
            self._observe(output)
            await self._stream.put(output)

    def _observe(self, output: BackendOutput) -> None:
        """Tell the rollover what is said, and who speaks."""
        rollover, now = self._rollover, self._clock.now()
        match output:
            case Decision(action=Action.RESPONSE):
                rollover.response_opened()
                rollover.speech(now, model=True)
            case TextDelta(text=text):
                rollover.output(text)
            case AudioDelta(pcm=pcm) if not self._turn_ends:
                rollover.speech(now, model=rms(pcm16_to_float(pcm)) >= SILENT_RMS if pcm else False)
            case AudioDelta():
                self._playing = True
            case TurnEnd(status=status):
                rollover.speech(now, model=False)
                if not self._responses.open():
                    rollover.response_closed(now, playing=self._playing and status == "completed")
                    self._playing = False
            case _:
                pass
