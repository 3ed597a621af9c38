"""The life cycle of one response and the events it becomes, in the order the contract fixes.

::

    CREATED --content--> STREAMING --content--> STREAMING
       |                     |
       +------- finish ------+---> DONE       exactly once

A response is *spoken* when the client wants audio and the backend has it: then its text is the transcript of
its speech, and rides with the audio chunk that says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from orchestrator.session.backend import DEFAULT_OUTPUT
from orchestrator.session.events import (
    ContentPartAdded,
    ContentPartDone,
    Event,
    ItemAdded,
    ItemCreated,
    ItemDone,
    OutputAudioDelta,
    OutputAudioDone,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    OutputTextDone,
    OutputTranscriptDelta,
    OutputTranscriptDone,
    RateLimitsUpdated,
    ResponseCreated,
    ResponseDone,
    ResponseSpeak,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.metrics import Stages
from orchestrator.session.playback import Marks, Playback
from orchestrator.wire.audio import AudioFormat, output_rate
from orchestrator.wire.errors import ServerFault

RESPONSE_PREFIX = "resp-"


class Phase(StrEnum):
    CREATED = "created"
    STREAMING = "streaming"
    DONE = "done"


class Step(StrEnum):
    CONTENT = "content"
    FINISH = "finish"


STEPS: Mapping[tuple[Phase, Step], Phase] = {
    (Phase.CREATED, Step.CONTENT): Phase.STREAMING,
    (Phase.STREAMING, Step.CONTENT): Phase.STREAMING,
    (Phase.CREATED, Step.FINISH): Phase.DONE,
    (Phase.STREAMING, Step.FINISH): Phase.DONE,
}


def response_id_of(session_id: str, epoch: int, serial: int) -> str:
    """``resp-<session>-<epoch>-<8 hex>``. ``serial`` grows by one per response, so ids never repeat."""
    return f"{RESPONSE_PREFIX}{session_id}-{epoch}-{serial:08x}"


def serial_of(session_id: str, response_id: str) -> int | None:
    """The serial inside an id of this session, or ``None`` if it is no such id."""
    prefix, _, serial = response_id.rpartition("-")
    if not prefix.startswith(f"{RESPONSE_PREFIX}{session_id}-") or len(serial) != 8:
        return None
    try:
        return int(serial, 16)
    except ValueError:
        return None


class Response:
    """One visible answer. Methods return the events that the step becomes.

    :param ledger: its playback ledger; audio is entered there as it is made
    :param modalities: ``text``, ``audio``; with audio the response is spoken
    :param requested: it was asked for, and so exists before any output
    :param in_history: what is heard of it enters the conversation
    :param metadata: the client's own, returned with the response
    :param output_format: in which its speech is sent
    :param max_text_bytes: of text kept in its item and its ending, UTF-8; of a longer one the newest part
    """

    def __init__(
        self,
        ledger: Playback,
        fence: Fence,
        modalities: tuple[str, ...] = ("text",),
        *,
        requested: bool = False,
        in_history: bool = True,
        metadata: Mapping[str, Any] | None = None,
        output_format: AudioFormat = DEFAULT_OUTPUT,
        max_text_bytes: int = 64 * 1024,
    ) -> None:
        self.ledger = ledger
        self._max_text_bytes = max_text_bytes
        self.response_id = ledger.response_id
        self.item_id = ledger.item_id
        self.fence = fence
        self.modalities = modalities
        self.requested = requested
        self.in_history = in_history
        self.phase = Phase.CREATED
        self.stage_metrics: Stages = {}
        """What the engine counted for it so far."""
        self.request_metrics: Mapping[str, Any] = {}
        """How soon it began by the engine's own clock."""
        self._metadata = metadata or {}
        self._output_format = output_format
        self._previous_item_id: str | None = None
        self._text = ""
        self._emitted = 0
        self._spoke = False
        self._has_audio = False
        self._samples = 0
        self._rate = 0

    @property
    def spoken(self) -> bool:
        return "audio" in self.modalities

    @property
    def text(self) -> str:
        """Its text so far, of a spoken one the transcript up to what has been emitted."""
        return self._text[: self._emitted]

    def begin(self, previous_item_id: str | None) -> tuple[Event, ...]:
        self._previous_item_id = previous_item_id
        item = Item(self.item_id, "assistant", "in_progress")
        events: tuple[Event, ...] = (
            ResponseCreated(
                self.fence, self.response_id, self.modalities, self._metadata, self._output_format
            ),
            ItemAdded(previous_item_id, item),
            ItemCreated(previous_item_id, item),
            OutputItemAdded(self.fence, self.response_id, item),
        )
        if self.spoken:
            events += (self._part_added(ContentPart("output_audio")),)
        return events

    def speak(self, score: float | None) -> tuple[Event, ...]:
        """The model chose to speak: at most one event, never after content."""
        if self._spoke or self.phase is not Phase.CREATED:
            return ()
        self._spoke = True
        return (ResponseSpeak(self.fence, self.response_id, self.item_id, score),)

    def add_text(self, delta: str) -> tuple[Event, ...]:
        """Text to read, or for a spoken response text that waits for the audio chunk that says it."""
        before = self._step(Step.CONTENT)
        self._text += delta
        if self.spoken:
            return ()
        self._emitted = len(self._text)
        opening = (self._part_added(ContentPart("output_text")),) if before is Phase.CREATED else ()
        return (*opening, OutputTextDelta(self.fence, self.response_id, self.item_id, 0, delta))

    def add_audio(self, pcm: bytes, rate: int, marks: Marks) -> tuple[Event, ...]:
        """A chunk of PCM16 mono and, in the same breath, the text that waited for it."""
        self._step(Step.CONTENT)
        self._has_audio = True
        before_ms = self.ledger.generated_ms
        self._samples += len(pcm) // 2
        self._rate = rate
        # From the total, so that fractions of a ms never add up to a drift.
        total_ms = self._samples * 1000 // rate
        self.ledger.generate(total_ms - before_ms, marks)
        chunk = OutputAudioDelta(
            self.fence,
            self.response_id,
            self.item_id,
            pcm,
            rate,
            total_ms - before_ms,
            total_ms,
            marks,
            self.ledger.cursors(),
        )
        return (chunk, self._transcript_delta(paired=True))

    def item(self, status: str, text: str) -> Item:
        """The output item as it would end with this text."""
        if self.phase is Phase.CREATED and not text:
            return Item(self.item_id, "assistant", status)
        kind = "output_audio" if self.spoken else "output_text"
        kept = _newest(text, self._max_text_bytes)
        part = ContentPart(kind, kept, self.ledger.audible_ms, self.ledger.marks)
        return Item(self.item_id, "assistant", status, (part,))

    def finish(self, status: str, reason: str | None, *, heard: str, committed: bool) -> tuple[Event, ...]:
        """The closing events. The speech of a cancelled response is cut to what was ``heard``."""
        before = self.phase
        cut = self.spoken and status == "cancelled"
        closing: list[Event] = []
        if status in ("completed", "incomplete"):
            closing.extend(self._rest_of_sound())
        if self.spoken and not cut and self._emitted < len(self._text):
            closing.append(self._transcript_delta(paired=False))
        text = heard if cut else self.text
        item = self.item(status, text)
        self._step(Step.FINISH)
        if self.spoken:
            closing.extend(self._close_speech(item, text))
        elif before is Phase.STREAMING:
            kept = item.content[0].text
            closing.append(OutputTextDone(self.fence, self.response_id, self.item_id, 0, kept))
            closing.append(ContentPartDone(self.fence, self.response_id, self.item_id, 0, item.content[0]))
        return (
            *closing,
            OutputItemDone(self.fence, self.response_id, item),
            ItemDone(self._previous_item_id, item),
            ResponseDone(
                self.fence,
                self.response_id,
                status,
                reason,
                item,
                committed,
                self.ledger.cursors(),
                self._metadata,
                self.stage_metrics,
                self.request_metrics,
            ),
            RateLimitsUpdated(),
        )

    def _rest_of_sound(self) -> tuple[Event, ...]:
        """What is still under way to another rate, when nothing follows it; none is where none changes."""
        if not self._has_audio or output_rate(self._output_format, self._rate) == self._rate:
            return ()
        rest = OutputAudioDelta(
            self.fence,
            self.response_id,
            self.item_id,
            b"",
            self._rate,
            0,
            self._samples * 1000 // self._rate,
            (),
            self.ledger.cursors(),
            last=True,
        )
        return (rest, self._transcript_delta(paired=True))

    def _close_speech(self, item: Item, text: str) -> list[Event]:
        part = item.content[0] if item.content else ContentPart("output_audio")
        events: list[Event] = []
        if self._has_audio or self._emitted:
            events.append(OutputAudioDone(self.fence, self.response_id, self.item_id))
        if text:
            events.append(OutputTranscriptDone(self.fence, self.response_id, self.item_id, part.text))
        events.append(ContentPartDone(self.fence, self.response_id, self.item_id, 0, part))
        return events

    def _transcript_delta(self, *, paired: bool) -> Event:
        delta = self._text[self._emitted :]
        self._emitted = len(self._text)
        return OutputTranscriptDelta(self.fence, self.response_id, self.item_id, delta, paired)

    def _part_added(self, part: ContentPart) -> Event:
        return ContentPartAdded(self.fence, self.response_id, self.item_id, 0, part)

    def _step(self, step: Step) -> Phase:
        """Take the step; return the phase before it."""
        before = self.phase
        if (after := STEPS.get((before, step))) is None:
            raise ServerFault(f"response {self.response_id} is {before}; it cannot take {step}")
        self.phase = after
        return before


def _newest(text: str, size: int) -> str:
    """The end of a text, at most ``size`` bytes of it as UTF-8."""
    end = text[-size:]
    return end if len(end) * 4 <= size else end.encode()[-size:].decode(errors="ignore")
