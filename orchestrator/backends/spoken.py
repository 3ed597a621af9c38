"""``SpokenBackend``: gives a backend that only writes a voice, by way of a speech bridge.

Words of a response go to the speaker as they come; with each chunk of its sound go the words that it says.
The sound runs at most ``lead_s`` ahead of the time in which it plays, so that little is lost where the user
cuts in. Nothing but speech waits for speech: of what the model does meanwhile only its next words do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from bridges.speech import Speaker
from orchestrator.backends.stream import OutputStream
from orchestrator.backends.voice import Voice, VoiceTools
from orchestrator.session.backend import (
    Action,
    BackendOutput,
    Capabilities,
    Clock,
    Closed,
    ConversationFact,
    Decision,
    ResponseOptions,
    SessionBackend,
    SessionConfig,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import ServerFault

OUTPUTS = 64
"""Outputs that wait for the session to read them."""


@dataclass(frozen=True, slots=True)
class SpokenOptions:
    """:param lead_s: sound may be made that long before it is played
    :param stuck_s: a speaker that has words and gives no sound for that long is given up
    :param waiting_chars: words that may wait for the speaker; then who writes them waits
    """

    lead_s: float = 2.0
    stuck_s: float = 10.0
    waiting_chars: int = 8192


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
        self._tools = VoiceTools(speaker, clock, options.lead_s, options.stuck_s, options.waiting_chars)
        self._config = SessionConfig(model="")
        self._asked: tuple[Fence, tuple[str, ...]] | None = None
        self._voice: Voice | None = None
        self._epoch = 0
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
        self._epoch = max(self._epoch, next_fence.epoch)
        await self._hush()
        await self._backend.cancel(cancelled, next_fence)

    async def clear(self) -> None:
        await self._backend.clear()

    async def playback(self, response_id: str, fence: Fence, played_ms: int, committed_ms: int) -> None:
        await self._backend.playback(response_id, fence, played_ms, committed_ms)

    async def close(self, reason: str) -> None:
        await self._hush()
        await self._backend.close(reason)

    async def outputs(self) -> AsyncIterator[BackendOutput]:
        pump = asyncio.create_task(self._pump(), name="spoken outputs")
        try:
            async for output in self._stream.read():
                if isinstance(output, Closed) and self._fault is not None:
                    raise self._fault
                yield output
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            await self._hush()

    # --- between the two ------------------------------------------------------------------------------------

    async def _pump(self) -> None:
        closed = Closed("internal_error")
        try:
            async for output in self._backend.outputs():
                if isinstance(output, Closed):
                    closed = output
                    return
                await self._take(output)
            self._fault = ServerFault("the backend's outputs ended while the session was open")
        except Exception as fault:
            self._fault = fault
        finally:
            await self._hush()
            await self._stream.end(closed)

    async def _take(self, output: BackendOutput) -> None:
        voice = self._voice
        match output:
            case Decision(action=Action.SILENCE) if voice is not None:
                return  # silent about what it sees, while it still speaks of what it saw
            case Decision() if voice is not None:
                await voice.over.wait()
            case TextDelta(fence=fence) if fence.epoch < self._epoch:
                return
            case TextDelta(fence=fence, text=text) if voice is not None or self._is_spoken(fence):
                await self._say(fence, text)
                return
            case TurnEnd() if voice is not None and voice.fence == output.fence:
                voice.end(output)
                return
        await self._stream.put(output)

    async def _say(self, fence: Fence, text: str) -> None:
        voice = self._voice
        if voice is not None and voice.ended:
            await voice.over.wait()
            voice = self._voice
        if voice is None:
            voice = self._voice = Voice(fence, self._config, self._tools, self._stream.put, self._finished)
        await voice.say(text)

    def _is_spoken(self, fence: Fence) -> bool:
        asked, modalities = self._asked, self._config.modalities
        if asked is not None and asked[0] == fence:
            modalities = asked[1]
        return "audio" in modalities

    def _finished(self, voice: Voice) -> None:
        if self._voice is voice:
            self._voice = None

    async def _hush(self) -> None:
        if (voice := self._voice) is not None:
            self._voice = None
            await voice.drop()
