"""Session events as they go over the wire: one wire event for each, with its id.

The projection is per session: it remembers the output format and codec of each response that is being spoken.
"""

from __future__ import annotations

import base64
from typing import Any, Literal, cast

import orjson

from orchestrator.session import events as ev
from orchestrator.session.backend import Ids, SessionConfig
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.playback import Cursors
from orchestrator.wire import items
from orchestrator.wire import server as wire
from orchestrator.wire.audio import AudioFormat, AudioOutput, pcm16_to_float

_STATUS: dict[str, Literal["in_progress", "completed", "incomplete"]] = {
    "in_progress": "in_progress",
    "completed": "completed",
}
"""Item states that the protocol knows; every other end is ``incomplete``."""


def mark_of(fence: Fence, reason: str | None = None) -> items.Mark:
    return items.Mark(epoch=fence.epoch, turn_id=fence.turn, reason=reason)


def cursors_of(cursors: Cursors) -> dict[str, int]:
    return {
        "generated_ms": cursors.generated_ms,
        "sent_ms": cursors.sent_ms,
        "played_ms": cursors.played_ms,
        "committed_ms": cursors.committed_ms,
    }


def item_of(item: Item) -> items.Item:
    call = item.call
    if call is not None and call.output is not None:
        return items.FunctionCallOutputItem(id=item.item_id, call_id=call.call_id, output=call.output)
    if call is not None:
        return items.FunctionCallItem(
            id=item.item_id,
            status=_STATUS.get(item.status, "incomplete"),
            call_id=call.call_id,
            name=call.name,
            arguments=call.arguments,
        )
    return items.MessageItem(
        id=item.item_id,
        status=_STATUS.get(item.status, "incomplete"),
        role=cast(Literal["system", "user", "assistant"], item.role),
        content=[_content(part) for part in item.content],
    )


def _content(
    part: ContentPart,
) -> items.InputText | items.InputAudio | items.InputImage | items.OutputText | items.OutputAudio:
    match part.kind:
        case "input_text":
            return items.InputText(text=part.text)
        case "input_audio":
            return items.InputAudio(transcript=part.text or None, is_speech=part.is_speech)
        case "input_image":
            return items.InputImage()
        case "output_text":
            return items.OutputText(text=part.text)
        case _:
            return items.OutputAudio(
                transcript=part.text,
                audio_duration_ms=part.audio_ms or None,
                audio_text_marks=_marks(part.text_marks) or None,
            )


def _part(part: ContentPart) -> items.TextPart | items.AudioPart:
    if part.kind == "output_audio":
        return items.AudioPart(transcript=part.text)
    return items.TextPart(text=part.text)


def _marks(marks: tuple[tuple[int, int], ...]) -> list[dict[str, int]]:
    return [{"text_chars": chars, "audio_end_ms": end_ms} for chars, end_ms in marks]


class Projection:
    """``written`` gives an event as it is sent, or ``None`` for one this client did not ask for."""

    def __init__(self, session_id: str, ids: Ids) -> None:
        self._session_id = session_id
        self._ids = ids
        self._formats: dict[str, AudioFormat] = {}
        self._codecs: dict[str, AudioOutput] = {}

    def written(self, event: ev.Event, config: SessionConfig) -> wire.Written | None:
        if isinstance(event, ev.TickEvent) and (
            event.type not in config.include
            or event.record.get("status") == "dropped"
            or ("unit" in event.record and event.record["action"] not in _UNIT_ACTIONS)
        ):
            return None  # not asked for, or input that no decision will show
        asked_for = isinstance(event, ev.TranscriptionDelta | ev.PlaybackPaused)
        if asked_for and event.type not in config.include:
            return None
        return self._wire(event, self._ids("event_"), config).written()

    def _wire(self, event: ev.Event, event_id: str, config: SessionConfig) -> wire.ServerEvent:
        if isinstance(event, ev.ResponseEvent):
            return self._of_response(event, event_id, config)
        match event:
            case ev.SessionCreated():
                return wire.SessionCreated(
                    event_id=event_id,
                    session=dict(event.session),
                    attachment_generation=event.attachment_generation if event.resume_token else None,
                    resume_token=event.resume_token,
                )
            case ev.SessionUpdated(session=session, planned_tick=tick):
                return wire.SessionUpdated(event_id=event_id, session=dict(session), planned_tick=tick)
            case ev.SessionClosed(session_id=session_id, reason=reason):
                return wire.SessionClosed(event_id=event_id, session_id=session_id, reason=reason)
            case ev.SessionExpired(session_id=session_id, reason=reason):
                return wire.SessionExpired(event_id=event_id, session_id=session_id, reason=reason)
            case ev.ResyncRequired(session_id=session_id, reason=reason):
                kind = cast(Literal["journal_gap", "journal_overflow"], reason)
                return wire.ResyncRequired(event_id=event_id, session_id=session_id, reason=kind)
            case ev.HeartbeatAck(session_id=session_id):
                return wire.HeartbeatAck(event_id=event_id, session_id=session_id)
            case ev.ErrorEvent(error=error):
                return wire.ErrorEvent(event_id=event_id, error=error.body())
            case ev.TickEvent():
                return _tick(event, event_id)
            case ev.DelegationEvent():
                return wire.Delegation(
                    event_id=event_id,
                    duplex=mark_of(event.fence),
                    delegation_id=event.delegation_id,
                    status=cast(Any, event.status),
                    question=event.question,
                    text=event.text,
                    error=event.error,
                )
            case ev.NoticeEvent(code=code, message=message):
                return wire.Notice(event_id=event_id, code=code, message=message)
            case ev.PlaybackPaused(response_id=response_id, paused=paused):
                return wire.Playback(
                    event_id=event_id,
                    duplex=mark_of(event.fence),
                    response_id=response_id,
                    action="pause" if paused else "resume",
                )
            case ev.RateLimitsUpdated():
                return wire.RateLimits(event_id=event_id)
            case ev.ResponseListen():
                return self._listen(event, event_id)
            case ev.PlaybackAcknowledged():
                return self._acknowledged(event, event_id)
            case _:
                return self._conversation(event, event_id)

    # --- conversation and input ----------------------------------------------------------------------------

    def _conversation(self, event: ev.Event, event_id: str) -> wire.ServerEvent:
        match event:
            case ev.ItemAdded(previous_item_id=previous, item=item):
                return wire.ItemAdded(event_id=event_id, previous_item_id=previous, item=item_of(item))
            case ev.ItemCreated(previous_item_id=previous, item=item):
                return wire.ItemCreated(event_id=event_id, previous_item_id=previous, item=item_of(item))
            case ev.ItemDone(previous_item_id=previous, item=item):
                return wire.ItemDone(event_id=event_id, previous_item_id=previous, item=item_of(item))
            case ev.ItemRetrieved(item=item):
                return wire.ItemRetrieved(event_id=event_id, item=item_of(item))
            case ev.ItemDeleted(item_id=item_id):
                return wire.ItemDeleted(event_id=event_id, item_id=item_id)
            case ev.ItemTruncated(item_id=item_id, content_index=index, audio_end_ms=end_ms):
                return wire.ItemTruncated(
                    event_id=event_id, item_id=item_id, content_index=index, audio_end_ms=end_ms
                )
            case ev.TranscriptionCompleted(item_id=item_id, transcript=text, duration_ms=ms):
                return wire.TranscriptionCompleted(
                    event_id=event_id,
                    item_id=item_id,
                    transcript=text,
                    usage={"type": "duration", "seconds": ms / 1000},
                )
            case ev.TranscriptionDelta(item_id=item_id, delta=delta):
                return wire.TranscriptionDelta(event_id=event_id, item_id=item_id, delta=delta)
            case ev.UserSpeechStarted(item_id=item_id, audio_start_ms=ms):
                return wire.SpeechStarted(event_id=event_id, item_id=item_id, audio_start_ms=ms)
            case ev.UserSpeechStopped(item_id=item_id, audio_end_ms=ms):
                return wire.SpeechStopped(event_id=event_id, item_id=item_id, audio_end_ms=ms)
            case ev.InputCommitted(previous_item_id=previous, item_id=item_id, details=details):
                return wire.InputCommitted(
                    event_id=event_id, previous_item_id=previous, item_id=item_id, event=dict(details)
                )
            case ev.InputCleared():
                return wire.InputCleared(event_id=event_id)
            case ev.OverlapDecided():
                return wire.OverlapDecision(
                    event_id=event_id,
                    session_id=self._session_id,
                    epoch=event.fence.epoch,
                    policy=event.policy,
                    action=cast(Any, event.action),
                    reason=event.reason,
                    metadata={
                        "duration_ms": event.duration_ms,
                        "overlap_speech_ms": event.overlap_speech_ms,
                        "buffer_audio": event.buffered,
                        "defer_runtime_append": event.deferred,
                    },
                )
            case ev.TurnSignalled():
                return wire.TurnEvent(
                    event_id=event_id,
                    session_id=self._session_id,
                    event=event.event,
                    turn_state=event.turn_state,
                    epoch=event.fence.epoch,
                )
            case _:
                raise TypeError(f"{type(event).__name__} has no wire form")

    def _acknowledged(self, event: ev.PlaybackAcknowledged, event_id: str) -> wire.ServerEvent:
        body = {
            "type": event.type,
            "session_id": self._session_id,
            "epoch": event.fence.epoch,
            "item_id": event.item_id,
            "played_ms": event.cursors.played_ms,
            "committed_ms": event.cursors.committed_ms,
            "truncate": event.truncate,
            "playback": cursors_of(event.cursors),
            "history_committed": event.history_committed,
        }
        return wire.PlaybackAcknowledged(event_id=event_id, event=body)

    # --- responses -----------------------------------------------------------------------------------------

    def _listen(self, event: ev.ResponseListen, event_id: str) -> wire.ServerEvent:
        metadata = {"reason": event.reason, "model_listen": event.model_listen}
        response: dict[str, Any] = {
            "object": "realtime.response",
            "status": "listening",
            "metadata": metadata,
        }
        if event.response_id is not None:
            response["id"] = event.response_id
        return wire.ResponseListen(
            event_id=event_id,
            duplex=mark_of(event.fence),
            session_id=self._session_id,
            epoch=event.fence.epoch,
            response=response,
            response_id=event.response_id,
        )

    def _of_response(self, event: ev.ResponseEvent, event_id: str, config: SessionConfig) -> wire.ServerEvent:
        mark = mark_of(event.fence)
        common: dict[str, Any] = {"event_id": event_id, "duplex": mark, "response_id": event.response_id}
        match event:
            case ev.ResponseCreated(modalities=modalities, metadata=metadata):
                self._formats[event.response_id] = event.output_format
                return wire.ResponseCreated(
                    **common,
                    response=items.Response(
                        id=event.response_id,
                        status="in_progress",
                        modalities=cast(Any, list(modalities)),
                        output_modalities=cast(Any, list(modalities)),
                        metadata=_strings(metadata),
                    ),
                )
            case ev.OutputItemAdded(item=item):
                return wire.OutputItemAdded(**common, item=item_of(item))
            case ev.OutputItemDone(item=item):
                return wire.OutputItemDone(**common, item=item_of(item))
            case ev.ContentPartAdded(item_id=item_id, content_index=index, part=part):
                return wire.ContentPartAdded(**common, item_id=item_id, content_index=index, part=_part(part))
            case ev.ContentPartDone(item_id=item_id, content_index=index, part=part):
                return wire.ContentPartDone(**common, item_id=item_id, content_index=index, part=_part(part))
            case ev.ResponseSpeak(item_id=item_id, score=score):
                metadata = {
                    "session_id": self._session_id,
                    "epoch": event.fence.epoch,
                    "model_speak": True,
                    **({} if score is None else {"score": score}),
                }
                return wire.ResponseSpeak(**common, item_id=item_id, metadata=metadata)
            case ev.OutputTextDelta(item_id=item_id, content_index=index, delta=delta):
                return wire.TextDelta(**common, item_id=item_id, content_index=index, delta=delta)
            case ev.OutputTextDone(item_id=item_id, content_index=index, text=text):
                return wire.TextDone(**common, item_id=item_id, content_index=index, text=text)
            case ev.FunctionArguments(item_id=item_id, call_id=call_id, delta=delta):
                return wire.FunctionArgumentsDelta(**common, item_id=item_id, call_id=call_id, delta=delta)
            case ev.FunctionArgumentsDone(item_id=item_id, call_id=call_id):
                return wire.FunctionArgumentsDone(
                    **common, item_id=item_id, call_id=call_id, name=event.name, arguments=event.arguments
                )
            case ev.OutputAudioDelta():
                return self._audio_delta(event, common, config)
            case ev.OutputTranscriptDelta(item_id=item_id, delta=delta):
                return wire.TranscriptDelta(**common, item_id=item_id, delta=delta)
            case ev.OutputAudioDone(item_id=item_id):
                return wire.AudioDone(**common, item_id=item_id)
            case ev.OutputTranscriptDone(item_id=item_id, transcript=text):
                return wire.TranscriptDone(**common, item_id=item_id, transcript=text)
            case ev.OutputCleared():
                return wire.OutputCleared(**common)
            case ev.ResponseDone():
                return self._done(event, common)
            case _:
                raise TypeError(f"{type(event).__name__} has no wire form")

    def _audio_delta(
        self, event: ev.OutputAudioDelta, common: dict[str, Any], config: SessionConfig
    ) -> wire.ServerEvent:
        codec = self._codecs.get(event.response_id)
        if codec is None:
            format_ = self._formats.get(event.response_id, config.output_format)
            codec = self._codecs[event.response_id] = AudioOutput(format_, event.rate)
        data = codec.encode(pcm16_to_float(event.pcm), last=event.last)
        return wire.AudioDelta(
            **common,
            item_id=event.item_id,
            delta=base64.b64encode(data).decode(),
            format=codec.codec.value,
            sample_rate_hz=codec.rate,
            metadata={
                "session_id": self._session_id,
                "epoch": event.fence.epoch,
                "model_speak": True,
                "end_of_turn": False,
                "playback": cursors_of(event.cursors),
                "audio_duration_ms": event.total_ms,
                "audio_text_marks": _marks(event.marks),
            },
        )

    def _done(self, event: ev.ResponseDone, common: dict[str, Any]) -> wire.ServerEvent:
        self._formats.pop(event.response_id, None)
        self._codecs.pop(event.response_id, None)
        common["duplex"] = mark_of(event.fence, event.reason)
        measured: dict[str, Any] = {"stage_metrics": dict(event.stage_metrics)} if event.stage_metrics else {}
        if event.request_metrics:
            measured["response_request_metrics"] = dict(event.request_metrics)
        common["vllm_omni"] = {
            "committed": event.heard,
            "playback": cursors_of(event.cursors),
            **measured,
        }
        return wire.ResponseDone(
            **common,
            response=items.Response(
                id=event.response_id,
                status=cast(Any, event.status),
                status_details=cast(Any, items.status_details(event.status, event.reason)),
                output=[item_of(event.item)],
                metadata=_strings(event.metadata),
            ),
        )


_UNIT_ACTIONS = {"listen": "silence", "speak": "response"}
"""What a model that listens and speaks at once does with a unit, in the words of decisions."""


def _tick(event: ev.TickEvent, event_id: str) -> wire.ServerEvent:
    record = event.record
    known = {name: record[name] for name in _TICK_COLUMNS if record.get(name) is not None}
    return wire.Tick(
        event_id=event_id,
        duplex=mark_of(event.fence),
        tick=int(record["tick"]),
        media_time_ms=round(float(record.get("media_time_s") or 0) * 1000),
        unit=record.get("unit"),
        action=cast(Any, _UNIT_ACTIONS.get(str(record.get("action")), record.get("action") or "silence")),
        frames=int(record.get("frames") or 0),
        coalesced=max(0, int(record.get("frames") or 0) - 1),
        **known,
    )


_TICK_COLUMNS = (
    *("reason", "score", "cached_tokens", "expected_cached_tokens", "prompt_tokens", "latency_ms"),
)


def _strings(metadata: Any) -> dict[str, str] | None:
    """Response metadata as the SDK's types want it: text only."""
    return {
        str(key): value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in metadata.items()
    } or None
