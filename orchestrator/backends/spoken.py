"""``SpokenBackend``: gives a backend that only writes a voice, by way of a speech bridge.

Words of a response go to the speaker as they come; with each chunk of its sound go the words that it says.
The sound runs at most ``lead_s`` ahead of the time in which it plays, so that little is lost where the user
cuts in. Nothing but speech waits for speech: of what the model does meanwhile only its next words do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace

from bridges.speech import Speaker
from orchestrator.backends.speech_turns import SpeechTurns
from orchestrator.backends.stream import OutputStream, pumped
from orchestrator.backends.voice import Voice, VoiceTools
from orchestrator.session.backend import (
    Action,
    BackendOutput,
    Capabilities,
    Clock,
    Closed,
    Decision,
    SessionBackend,
    SessionConfig,
    SpeechPolicy,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.told import ConversationFact, ResponseOptions
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import ServerFault

OUTPUTS = 64
"""Outputs that wait for the session to read them, and as many that wait for what is being spoken."""


@dataclass(frozen=True, slots=True)
class SpokenOptions:
    """:param lead_s: sound may be made that long before it is played
    :param stuck_s: a speaker that has words and gives no sound for that long is given up
    :param waiting_chars: words that may wait for the speaker; then who writes them waits
    :param policy: of sessions that say nothing of it
    :param interrupt_lead_s: the lead where the next answer is to cut in: what was sent can't be taken back
    """

    lead_s: float = 2.0
    stuck_s: float = 10.0
    waiting_chars: int = 8192
    policy: SpeechPolicy = SpeechPolicy.QUEUE
    interrupt_lead_s: float = 0.5


def spoken_capabilities(capabilities: Capabilities) -> Capabilities:
    """The same with a voice."""
    return replace(capabilities, output_modalities=("text", "audio"), text_follows_audio=True)


class SpokenBackend:
    """See ``SessionBackend``. A response is spoken where the session, or it alone, is to have audio."""

    def __init__(
        self,
        backend: SessionBackend,
        speaker: Speaker,
        clock: Clock,
        options: SpokenOptions = SpokenOptions(),
    ) -> None:
        self._backend = backend
        self._options = options
        self._tools = VoiceTools(speaker, clock, options.lead_s, options.stuck_s, options.waiting_chars)
        self._config = SessionConfig(model="")
        self._asked: tuple[Fence, tuple[str, ...]] | None = None
        self._voice: Voice | None = None
        self._epoch = 0
        self._turns = SpeechTurns()
        self._as_text = 0  # the newest answer that is not spoken: it stays so to its end
        self._line: asyncio.Queue[tuple[int, BackendOutput] | None] = asyncio.Queue(OUTPUTS)
        self._closing = False
        self._stream = OutputStream(OUTPUTS)
        self._fault: Exception | None = None

    def capabilities(self) -> Capabilities:
        return spoken_capabilities(self._backend.capabilities())

    async def open(self, config: SessionConfig) -> None:
        await self._backend.open(config)
        self._config = config

    async def append(self, unit: InputUnit, fence: Fence, operation_id: str) -> None:
        await self._backend.append(unit, fence, operation_id)

    async def tell(self, fact: ConversationFact, fence: Fence) -> None:
        if isinstance(fact, ResponseOptions) and fact.modalities is not None:
            self._asked = fence, fact.modalities
        await self._backend.tell(fact, fence)

    async def commit(self, fence: Fence, create_response: bool) -> None:
        await self._backend.commit(fence, create_response)

    async def update(self, config: SessionConfig) -> int | None:
        planned = await self._backend.update(config)
        self._config = config
        return planned

    async def cancel(self, cancelled: Fence, next_fence: Fence) -> None:
        """Silent first: whatever the other backend takes to stop, nothing more is said."""
        if next_fence.epoch > self._epoch:
            self._epoch = next_fence.epoch
            self._turns.cancelled()
        await self._hush()
        await self._backend.cancel(cancelled, next_fence)

    async def clear(self) -> None:
        await self._backend.clear()

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        if self._voice is not None and self._voice.fence == fence:
            self._voice.played(played_ms)
        await self._backend.playback(response_id, fence, played_ms, committed_ms)

    async def close(self, reason: str) -> None:
        self._closing = True
        await self._hush()
        await self._backend.close(reason)

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        """As they come, until somebody wants to hear one: a session that only reads pays nothing."""
        source = self._backend.outputs()
        async for output in source:
            if self._wanted:
                pump = self._pump(output, source)
                async with aclosing(pumped(self._stream, pump, "spoken outputs", self._hush)) as spoken:
                    async for each in spoken:
                        yield each
                return
            self._turns.came(output, self._policy)
            if isinstance(output, TextDelta):
                self._as_text = self._turns.newest
            yield output

    def statistics(self) -> dict[str, int]:
        """What is spoken now, and outputs that wait for it."""
        return {"speaking": int(self._voice is not None), "waiting": self._line.qsize()}

    # --- between the two ------------------------------------------------------------------------------------

    async def _read(self, first: BackendOutput, source: AsyncIterator[BackendOutput]) -> None:
        """Read ahead of what is being spoken, so that the next answer is known when it begins."""
        try:
            await self._came(first)
            if isinstance(first, Closed):
                return
            async for output in source:
                await self._came(output)
                if isinstance(output, Closed):
                    return
            self._fault = ServerFault("the backend's outputs ended while the session was open")
        except Exception as fault:
            self._fault = fault
        await self._line.put(None)

    async def _came(self, output: BackendOutput) -> None:
        stale = isinstance(output, TextDelta | TurnEnd) and output.fence.epoch < self._epoch
        if not stale and self._turns.came(output, self._policy) and self._voice is not None:
            self._began(self._voice)
        await self._line.put((self._turns.newest, output))

    def _began(self, voice: Voice) -> None:
        """An answer begins while another one is being spoken."""
        if self._policy is SpeechPolicy.INTERRUPT:
            voice.shorten()

    @property
    def _policy(self) -> SpeechPolicy:
        return self._config.speech_policy or self._options.policy

    @property
    def _wanted(self) -> bool:
        asked = self._asked is not None and "audio" in self._asked[1]
        return asked or "audio" in self._config.modalities

    async def _pump(self, first: BackendOutput, source: AsyncIterator[BackendOutput]) -> None:
        closed = Closed("internal_error")
        reading = asyncio.create_task(self._read(first, source), name="spoken line")
        try:
            while (entry := await self._line.get()) is not None:
                number, output = entry
                if isinstance(output, Closed):
                    closed = output
                    return
                await self._take(output, number)
        except Exception as fault:
            self._fault = fault
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await self._hush()
            await self._stream.end(closed, fault=self._fault)

    async def _take(self, output: BackendOutput, number: int) -> None:
        voice = self._voice
        match output:
            case Decision(action=Action.SILENCE) if voice is not None:
                return  # silent about what it sees, while it still speaks of what it saw
            case Decision() if voice is not None:
                await voice.over.wait()
            case TextDelta(fence=fence) if fence.epoch < self._epoch:
                return
            case TextDelta(fence=fence, text=text) if voice is not None or self._is_spoken(fence, number):
                await self._say(fence, text, number)
                return
            case TextDelta():
                self._as_text = number
            case TurnEnd() if voice is not None and voice.fence == output.fence:
                voice.end(output)
                return
        await self._stream.put(output)

    async def _say(self, fence: Fence, text: str, number: int) -> None:
        voice = self._voice
        if voice is not None and voice.ended:
            await voice.over.wait()
            voice = self._voice
        if voice is None and not self._turns.spoken(number):
            await self._stream.put(TextDelta(fence, text))
            return
        if voice is None:
            voice = self._voice = self._begin(fence)
        await voice.say(text)

    def _begin(self, fence: Fence) -> Voice:
        tools, options = self._tools, self._options
        if self._policy is SpeechPolicy.INTERRUPT:
            tools = replace(tools, lead_s=min(options.lead_s, options.interrupt_lead_s))
        return Voice(fence, self._config, tools, self._stream.put, self._finished)

    def _is_spoken(self, fence: Fence, number: int) -> bool:
        if number == self._as_text:
            return False
        asked, modalities = self._asked, self._config.modalities
        if asked is not None and asked[0] == fence:
            modalities = asked[1]
        return "audio" in modalities and not self._closing

    def _finished(self, voice: Voice) -> None:
        if self._voice is voice:
            self._voice = None

    async def _hush(self) -> None:
        if (voice := self._voice) is not None:
            self._voice = None
            await voice.drop()
