"""A hearing backend with scripted parts, for tests of what ears do."""

from __future__ import annotations

import asyncio
from typing import Any

from bridges.asr import AsrError
from bridges.vad import Samples
from orchestrator.backends.ears import Ears, EarsOptions
from orchestrator.backends.hearing import HearingBackend
from orchestrator.session.backend import (
    Action,
    AudioDelta,
    BackendOutput,
    Decision,
    SessionConfig,
    TextDelta,
    TurnDetection,
    UserTranscript,
)
from orchestrator.session.fence import Fence
from orchestrator.session.units import InputUnit
from tests.fakes.backend import START, ScriptedBackend
from tests.fakes.clock import VirtualClock, settle
from tests.fakes.ears import LoudnessDetector, ScriptedTranscriber

NEXT = Fence(1, 0)
SOUND = AudioDelta(START, bytes(4800), 24000, ((3, 100),))


class Rig:
    """A hearing backend with its scripted parts, and everything that came out of it so far."""

    def __init__(self, transcriber: ScriptedTranscriber, detector: LoudnessDetector, **options: Any) -> None:
        self.inner, self.clock, self.words = ScriptedBackend(), VirtualClock(), transcriber
        ears = Ears(lambda: detector, transcriber, EarsOptions(**options))
        self.backend = HearingBackend(self.inner, ears, self.clock, "s")
        self.out: list[BackendOutput] = []
        self.reading = asyncio.create_task(self._read())
        self._appended = 0

    async def _read(self) -> None:
        async for output in self.backend.outputs():
            self.out.append(output)

    async def hears(self, *parts: Samples, start_ms: float | None = None) -> None:
        for part in parts:
            self._appended += 1
            unit = InputUnit(pcm=part.tobytes(), start_ms=start_ms)
            await self.backend.append(unit, START, f"op{self._appended}")
            start_ms = None
        await settle()

    async def emits(self, *outputs: BackendOutput) -> None:
        self.inner.emit(*outputs)
        await settle()

    async def answers(self) -> None:
        """It begins to answer, in sound."""
        await self.emits(Decision(START, 0, Action.RESPONSE), TextDelta(START, "One "), SOUND)

    def of(self, kind: type[Any]) -> list[Any]:
        return [output for output in self.out if isinstance(output, kind)]

    @property
    def said(self) -> list[str]:
        return [each.text for each in self.of(UserTranscript) if each.final]

    @property
    def kinds(self) -> list[str]:
        return [type(output).__name__ for output in self.out]


async def hearing(
    *words: str | AsrError,
    vad: bool = True,
    auto: bool = True,
    detector: LoudnessDetector | None = None,
    include: tuple[str, ...] = (),
    **options: Any,
) -> Rig:
    rig = Rig(ScriptedTranscriber(*words), detector or LoudnessDetector(), **options)
    detection = TurnDetection() if vad else None
    config = SessionConfig("m", turn_detection=detection, auto_response=auto, language="en", include=include)
    await rig.backend.open(config)
    return rig
