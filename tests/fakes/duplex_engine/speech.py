"""The events of one response, from its creation to its end, as the engine's projection words them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.wire.audio import AudioFormat, AudioOutput, Codec, parse_format
from tests.fakes.duplex_engine.channel import Channel, Json
from tests.fakes.duplex_engine.script import Samples


@dataclass
class SpokenResponse:
    """One response as the engine made it. ``pcm``: what it said, float32 at ``rate_hz``."""

    id: str
    epoch: int
    turn_id: int
    rate_hz: int
    text: str = ""
    chunks: list[Samples] = field(default_factory=list)
    generated_ms: float = 0.0
    sent_ms: int = 0
    played_ms: int = 0
    committed_ms: int = 0
    marks: list[Json] = field(default_factory=list)
    status: str = "in_progress"
    reason: str | None = None
    silence_units: int = 0
    audio: bool = False
    text_only: bool = False
    counted: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Tokens in and out of each of its units, as its figures have them."""

    @property
    def item_id(self) -> str:
        return f"item_{self.id}"

    @property
    def pcm(self) -> Samples:
        return np.concatenate(self.chunks) if self.chunks else np.zeros(0, np.float32)

    @property
    def playback(self) -> Json:
        return {
            "generated_ms": int(self.generated_ms),
            "sent_ms": self.sent_ms,
            "played_ms": self.played_ms,
            "committed_ms": self.committed_ms,
        }


class Speech:
    """Emits a session's responses.

    :param output_format: as the client spells it
    :param modalities: text, audio
    """

    def __init__(
        self, channel: Channel, output_format: Any, rate_hz: int, modalities: list[str], version: str
    ) -> None:
        self._channel, self._rate_hz = channel, rate_hz
        self._format = parse_format(output_format, output=True) if output_format else AudioFormat(Codec.PCM16)
        self.modalities = modalities
        self._truncates = version == "0.30.0"
        self._encoder: AudioOutput | None = None
        self._previous: str | None = None
        self.spoken: list[SpokenResponse] = []

    def start(self, response: SpokenResponse, metrics: Json) -> None:
        self.spoken.append(response)
        self._encoder = AudioOutput(self._format, self._rate_hz)
        said: Json = {
            "id": response.id,
            "object": "realtime.response",
            "status": "in_progress",
            "status_details": None,
            "output": [],
            "modalities": self.modalities,
            "metadata": {"duplex_event": {"response_request_metrics": metrics}},
        }
        self._channel.emit("response.created", response_id=response.id, response=said)
        item = self._item(response)
        for name in ("conversation.item.added", "conversation.item.created"):
            self._channel.emit(name, previous_item_id=self._previous, item=item)
        self._previous = response.item_id
        self._of(response, "response.output_item.added", item=item)
        if "audio" in self.modalities:
            self._part(response, "response.content_part.added", {"type": "audio", "transcript": ""})

    def speak(self, response: SpokenResponse, stages: Json) -> None:
        """The model's decision; told with its first output."""
        metadata = {"session_id": self._channel.session_id, "epoch": response.epoch, "model_speak": True}
        told = {**metadata, "vllm_omni": {"stage_metrics": stages, "model_turn_id": response.turn_id}}
        self._part(response, "response.speak", metadata=told)

    def chunk(self, response: SpokenResponse, pcm: Samples, text: str, marks: bool, **metadata: Any) -> None:
        """One audio delta and the transcript delta that follows it."""
        response.audio = True
        response.chunks.append(pcm)
        response.text += text
        length = pcm.size * 1000 / self._rate_hz
        response.generated_ms += length
        response.sent_ms = response.sent_ms + int(length) if self._truncates else round(response.generated_ms)
        if marks and text:
            response.marks.append(
                {"text_chars": len(response.text), "audio_end_ms": round(response.generated_ms)}
            )
        self.audio_delta(response, pcm, **metadata)
        self._part(response, "response.output_audio_transcript.delta", delta=text)

    def audio_delta(self, response: SpokenResponse, pcm: Samples, **metadata: Any) -> None:
        assert self._encoder is not None
        told: Json = {
            "session_id": self._channel.session_id,
            "epoch": response.epoch,
            "model_speak": True,
            "end_of_turn": False,
            "playback": response.playback,
            "audio_duration_ms": round(response.generated_ms),
            **metadata,
        }
        if response.marks:
            told["audio_text_marks"] = list(response.marks)
        self._part(
            response,
            "response.output_audio.delta",
            delta=base64.b64encode(self._encoder.encode(pcm)).decode(),
            format=self._encoder.codec.value,
            sample_rate_hz=self._encoder.rate,
            metadata=told,
        )

    def words(self, response: SpokenResponse, text: str, stages: Json) -> None:
        """Text without audio; it leaves as a transcript, as all of this engine's text does."""
        response.text_only = True
        response.text += text
        metadata = {"epoch": response.epoch, "vllm_omni": {"stage_metrics": stages}}
        self._part(response, "response.output_audio_transcript.delta", delta=text, metadata=metadata)

    def end(self, response: SpokenResponse, status: str, details: Json | None, stages: Json) -> None:
        response.status, response.reason = status, (details or {}).get("reason")
        if response.audio or response.text:
            self._part(response, "response.output_audio.done")
            if response.text:
                self._part(response, "response.output_audio_transcript.done", transcript=response.text)
        if "audio" in self.modalities:
            self._part(response, "response.content_part.done", {"type": "audio", "transcript": response.text})
        item = self._item(response)
        self._of(response, "response.output_item.done", item=item)
        self._channel.emit("conversation.item.done", previous_item_id=None, item=item)
        metadata = {
            "committed": False,
            "playback": response.playback,
            "epoch": response.epoch,
            "vllm_omni": {"stage_metrics": stages},
        }
        said = {
            "id": response.id,
            "object": "realtime.response",
            "status": status,
            "status_details": details,
            "output": [item],
            "metadata": metadata,
        }
        self._channel.emit("response.done", response_id=response.id, response=said)
        self._channel.emit("rate_limits.updated", rate_limits=[])

    def call(self, response_id: str, call_id: str, name: str, arguments: str) -> None:
        """A tool call: a small response of its own."""
        item: Json = {
            "id": f"item_{response_id}",
            "object": "realtime.item",
            "type": "function_call",
            "status": "completed",
            "call_id": call_id,
            "name": name,
            "arguments": arguments,
        }
        common = {"response_id": response_id, "item_id": item["id"], "output_index": 0, "call_id": call_id}
        said = {"id": response_id, "object": "realtime.response", "status": "in_progress", "output": []}
        self._channel.emit("response.created", response_id=response_id, response=said)
        self._channel.emit("conversation.item.added", previous_item_id=None, item=item)
        self._channel.emit("conversation.item.created", previous_item_id=None, item=item)
        self._channel.emit("response.output_item.added", response_id=response_id, output_index=0, item=item)
        self._channel.emit("response.function_call_arguments.delta", **common, delta=arguments)
        self._channel.emit("response.function_call_arguments.done", **common, arguments=arguments)
        self._channel.emit("response.output_item.done", response_id=response_id, output_index=0, item=item)
        self._channel.emit("conversation.item.done", previous_item_id=None, item=item)
        done = {**said, "status": "completed", "output": [item]}
        self._channel.emit("response.done", response_id=response_id, response=done)

    def _item(self, response: SpokenResponse) -> Json:
        content: list[Json] = []
        if response.audio or response.text:
            part: Json = {"type": "output_audio", "transcript": response.text}
            if response.audio:
                part["audio_duration_ms"] = round(response.generated_ms)
                part["audio_text_marks"] = list(response.marks)
            content.append(part)
        return {
            "id": response.item_id,
            "object": "realtime.item",
            "type": "message",
            "role": "assistant",
            "status": response.status,
            "content": content,
        }

    def _of(self, response: SpokenResponse, type_: str, **fields: Any) -> None:
        self._channel.emit(type_, response_id=response.id, output_index=0, **fields)

    def _part(self, response: SpokenResponse, type_: str, part: Json | None = None, **fields: Any) -> None:
        if part is not None:
            fields["part"] = part
        self._of(response, type_, item_id=response.item_id, content_index=0, **fields)
