"""The scripted model of one session: units in, decisions and speech out, on the engine's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tests.fakes.duplex_engine.channel import Channel, Json
from tests.fakes.duplex_engine.faults import Faults
from tests.fakes.duplex_engine.profiles import EngineProfile
from tests.fakes.duplex_engine.script import Act, Director, Kind, Samples, Unit, Voice, tone
from tests.fakes.duplex_engine.speech import Speech, SpokenResponse
from tests.fakes.duplex_engine.timing import Clock

LATE = 0.05
"""Of a unit: one that comes in its time is there before silence is put in its place."""
AUTO_SILENCE_UNITS, TURN_SILENCE_UNITS = 64, 8


class Model:
    """One session's model: it works through its units one by one.

    :param ready: awaited before each step; an engine that is stuck waits in there
    :param failed: the stage died
    :param refused: the append of a unit was refused
    :param took: a unit was taken; ``spoke``: there is output; ``ended``: a response is completed
    """

    def __init__(
        self,
        profile: EngineProfile,
        director: Director,
        channel: Channel,
        speech: Speech,
        clock: Clock,
        faults: Faults,
        *,
        auto: bool,
        keep_audio: bool,
        voice: Voice | None,
        ready: Callable[[], Awaitable[Any]],
        failed: Callable[[], None],
        refused: Callable[[Unit], None],
        took: Callable[[], None],
        spoke: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._profile, self._director, self._channel, self._speech = profile, director, channel, speech
        self._clock, self._faults, self._auto, self._keep_audio = clock, faults, auto, keep_audio
        self._voice = voice
        self._ready, self._failed, self._refused = ready, failed, refused
        self._took, self._spoke, self._ended = took, spoke, ended
        self._queue: asyncio.Queue[Unit] = asyncio.Queue()
        self._anchor = clock.now()
        self._calls = 0
        self._prompt, self._said = profile.prefix_tokens, 0
        self.units: list[Unit] = []
        self.newest: Unit | None = None
        """The last one that came, taken yet or not."""
        self.epoch = 0
        self.turn_id = 0
        self.open: SpokenResponse | None = None

    def put(self, unit: Unit) -> None:
        self._anchor = self._clock.now()
        self.newest = unit
        self._queue.put_nowait(unit)

    @property
    def waiting(self) -> int:
        return self._queue.qsize()

    def discard(self) -> None:
        """Forget the units that wait."""
        while not self._queue.empty():
            self._queue.get_nowait()

    async def run(self) -> None:
        while True:
            unit = await self._next()
            await self._ready()
            unit.number, unit.at, unit.epoch = len(self.units), self._clock.now(), self.epoch
            act = self._director.decide(unit)
            unit.decision = act.kind.value if not act.end else "E"
            self._prompt += self._profile.unit_tokens
            self._said += len(act.text.split()) + 1 if act.kind is Kind.SPEAK else 1
            self.units.append(unit)
            self._took()
            await self._perform(unit, act)
            if not self._keep_audio:
                unit.pcm = np.broadcast_to(np.float32(0), unit.pcm.shape)

    async def _next(self) -> Unit:
        """The next real unit, or one of silence where a response is open and none comes in time."""
        if not self._queue.empty():
            return self._queue.get_nowait()
        if self.open is None or not self._profile.silence_continuation:
            return await self._queue.get()
        due = self._anchor + self._profile.unit_ms / 1000
        arrival = asyncio.create_task(self._queue.get())
        timer = asyncio.create_task(
            self._clock.sleep(due + LATE * self._profile.unit_ms / 1000 - self._clock.now())
        )
        try:
            await asyncio.wait({arrival, timer}, return_when=asyncio.FIRST_COMPLETED)
            if arrival.done():
                return arrival.result()
        finally:
            timer.cancel()
            if not arrival.done():
                arrival.cancel()
        self._anchor = due
        zeros = np.zeros(self._profile.unit_samples, np.float32)
        return Unit(self._channel.session_id, -1, zeros, silence=True)

    async def _perform(self, unit: Unit, act: Act) -> None:
        epoch = self.epoch
        if unit.silence and self.open is not None:
            self.open.silence_units += 1
        await self._wait(self._faults.think_ms if act.think_ms is None else act.think_ms)
        if epoch != self.epoch:
            return
        if act.heard is not None:
            self._channel.emit(
                "conversation.item.input_audio_transcription.completed",
                item_id=f"item_heard_{unit.number}",
                content_index=0,
                transcript=act.heard,
            )
        if act.kind is Kind.SPEAK:
            await self._speak(unit, act, epoch)
        elif act.kind is Kind.LISTEN:
            self._listen(unit)
        elif act.kind is Kind.FAIL:
            self._failed()
        elif act.kind is Kind.REFUSE:
            self._refused(unit)
        elif act.kind is Kind.TOOL:
            self._calls += 1
            self._speech.call(f"resp_{self._calls:032x}", f"call_{self._calls}", act.tool, act.arguments)
        elif self._auto and self.open is None:
            self._say_listen(unit, "model_turn_completed_without_output")
        answered = act.kind in (Kind.SPEAK, Kind.LISTEN, Kind.NOTHING)
        if self._profile.whole_turn and answered and self.open is not None and epoch == self.epoch:
            self.finish(unit)  # one commit, one request: nothing more of it comes
        limit = AUTO_SILENCE_UNITS if self._auto else TURN_SILENCE_UNITS
        if self.open is not None and self.open.silence_units >= limit:
            self._say_listen(unit, "continuation_limit", self.open.id)
            self.finish(unit)

    def _listen(self, unit: Unit) -> None:
        """Listening ends no open response (auto mode): silence goes on until it is over."""
        if self.open is None:
            self._say_listen(unit, "model_listen")
        elif not self._auto:
            self._say_listen(unit, "model_listen", self.open.id)

    def _say_listen(self, unit: Unit, reason: str, response_id: str | None = None) -> None:
        metadata: Json = {
            "reason": reason,
            "model_listen": reason == "model_listen",
            "vllm_omni": {"stage_metrics": self._stages(unit)},
        }
        said: Json = {"object": "realtime.response", "status": "listening", "metadata": metadata}
        named: Json = {}
        if response_id is not None:
            said["id"] = named["response_id"] = response_id
        self._channel.emit("response.listen", epoch=self.epoch, response=said, **named)

    def begin(self) -> SpokenResponse:
        """Open a response, visible at once."""
        number = len(self._speech.spoken)
        name = f"resp-{self._channel.session_id}-{self.epoch}-{number:08x}"
        self.open = SpokenResponse(name, self.epoch, self.turn_id, self._profile.output_rate_hz)
        self._speech.start(self.open, {"source": "server_monotonic_request_start", "ttft_ms": 12.0})
        return self.open

    async def _speak(self, unit: Unit, act: Act, epoch: int) -> None:
        response = self.open or self.begin()
        self._spoke()
        if not (response.audio or response.text):
            self._speech.speak(response, self._stages(unit))
        text = act.text.format(n=unit.number)
        length = self._profile.unit_ms if act.audio_ms is None else act.audio_ms
        if not length:
            self._speech.words(response, text, self._stages(unit))
        else:
            words = [
                text[len(text) * i // act.chunks : len(text) * (i + 1) // act.chunks]
                for i in range(act.chunks)
            ]
            for number, part in enumerate(words):
                if number:
                    await self._wait(self._faults.chunk_ms if act.chunk_ms is None else act.chunk_ms)
                await self._ready()
                if epoch != self.epoch or self.open is not response:
                    return
                last = number == act.chunks - 1
                pcm = self._sound(response, unit, number, length / act.chunks, act.amplitude)
                self._speech.chunk(
                    response,
                    pcm,
                    part,
                    act.marks,
                    end_of_turn=act.end and last,
                    vllm_omni={"stage_metrics": self._stages(unit), "model_turn_id": response.turn_id},
                )
                if not self._keep_audio:
                    response.chunks.clear()
        if act.end:
            self.finish(unit)

    def _sound(
        self, response: SpokenResponse, unit: Unit, chunk: int, length_ms: float, amplitude: float
    ) -> Samples:
        rate = self._profile.output_rate_hz
        if self._voice is not None:
            return self._voice(unit, chunk, round(length_ms * rate / 1000))
        start = round(response.generated_ms * rate / 1000)
        return tone(length_ms, rate, 220 + 20 * (unit.number % 32), amplitude, start)

    def finish(self, unit: Unit) -> None:
        """The open response is complete."""
        response = self.release()
        if response is not None:
            self._speech.end(
                response, "completed", {"type": "completed", "reason": "stop"}, self._stages(unit)
            )
            self.turn_id += 1
            self._ended()

    def release(self) -> SpokenResponse | None:
        """Give up the open response without a word of its end; the caller says it."""
        response, self.open = self.open, None
        return response

    def late(self, response: SpokenResponse, count: int) -> None:
        """Audio of a response that is over, as an engine that does not fence it would send."""
        for _ in range(count):
            self._speech.audio_delta(response, tone(100, self._profile.output_rate_hz, 440, 0.3))

    def _stages(self, unit: Unit) -> Json:
        """As the genuine server has them: prompt and words of the session so far, of one unit, or the sums
        over the units of the open response."""
        figures = (self._prompt, self._said)
        if self.open is not None:
            self.open.counted[unit.number] = figures
            each = self.open.counted.values()
            figures = (sum(prompt for prompt, _ in each), sum(said for _, said in each))
        return {"0": {"num_tokens_in": figures[0], "num_tokens_out": figures[1], "vllm_ttft_ms": 12.0}}

    async def _wait(self, milliseconds: float) -> None:
        if milliseconds > 0:
            await self._clock.sleep(milliseconds / 1000)
