"""Wire commands turned into the session's own: media decoded, hints resolved, ids given.

One per session, used in arrival order: it carries the input stream (spare bytes, resampler, media clock) on
from one socket to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import orjson

from orchestrator.session import commands as cmd
from orchestrator.session.backend import Capabilities, Ids, SessionConfig
from orchestrator.session.configuration import MAX_TEXT_CHARS, output_format_of, temperature_of, updated
from orchestrator.session.items import ContentPart, Item, assistant_item_id
from orchestrator.session.media import MediaClock, check_times, frame_payloads, holds_speech, picture
from orchestrator.session.response import RESPONSE_PREFIX
from orchestrator.session.told import ResponseOptions
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire import client as wire
from orchestrator.wire.audio import AudioFormat, AudioInput, Codec, Samples, check_rate, parse_format
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, TooLarge, Unsupported

DEFAULT_RATE = 16000
MAX_METADATA_BYTES = 16 * 1024
MAX_ITEM_CHARS = 64 * 1024
"""Words of one message, or of the user's open item."""
MAX_PARTS = 256
MAX_SPOKEN_PARTS = 64
"""Parts of audio in one message: all of it waits at once."""
MAX_SWALLOWED = 256
"""Operations remembered whose audio gave no sample yet."""
ANSWER_PREFIX = assistant_item_id(RESPONSE_PREFIX)
"""Ids of messages that only responses have."""
_ROLES = frozenset({"user", "assistant", "system"})
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})
_AUDIO_PARTS = frozenset({"input_audio", "audio"})
_OWN_OPTIONS = frozenset({"instructions", "temperature", "max_output_tokens", "max_response_output_tokens"})
_REFUSED_OPTIONS = frozenset({"voice", "input"})


class Intake:
    """
    :param config: the session's, as it opened
    :param known: an append of that operation id was taken already
    :param room: raises when that many bytes of input would be too many
    :param media_clock: the session's; what is shown by other doors moves it on, too
    """

    def __init__(
        self,
        config: SessionConfig,
        capabilities: Capabilities,
        ids: Ids,
        known: Callable[[str], bool] = lambda _: False,
        room: Callable[[int], None] = lambda _: None,
        media_clock: MediaClock | None = None,
    ) -> None:
        self._config = config
        self._expected: list[cmd.Reconfigure] = []
        self._capabilities = capabilities
        self._ids = ids
        self._audio = AudioInput(capabilities.input_rate_hz)
        self._media_clock = media_clock or MediaClock()
        self._speech = False
        self._known = known
        self._room = room
        self._swallowed: deque[str] = deque(maxlen=MAX_SWALLOWED)

    def commands(self, command: wire.AnyCommand, now: float) -> list[cmd.AnyCommand]:
        """What the client's command asks of the session, in order; ``now``: monotonic seconds.

        Raises ``InvalidRequest`` or ``ResourceExhausted`` with the contract's codes and the client's
        ``event_id``; then the command asks for nothing, and the stream is as it was.
        """
        try:
            return self._translated(command, now)
        except (InvalidRequest, ResourceExhausted) as error:
            error.event_id = command.event_id
            raise

    def _translated(self, command: wire.AnyCommand, now: float) -> list[cmd.AnyCommand]:
        event_id = command.event_id
        match command:
            case wire.InputAppend():
                return self._append(command, now, self._audio)
            case wire.InputCommit():
                commit = cmd.CommitInput(
                    command.create_response and self._capabilities.response_create,
                    is_speech=command.is_speech,
                    duration_ms=command.duration_ms,
                    event_id=event_id,
                )
                return [*self._tail(self._audio), commit]
            case wire.InputClear():
                self._audio.finish()
                return [cmd.ClearInput(event_id=event_id)]
            case wire.TextAppend(text=text):
                if not self._capabilities.supports_text_only_turn:
                    raise Unsupported("this model takes no text input", code="native_text_append_unsupported")
                return [cmd.AppendText(text, event_id=event_id)]
            case wire.InputCancel():
                self._audio.finish()
                return [cmd.Interrupt(barge_in=False, event_id=event_id)]
            case wire.BargeIn():
                if self._capabilities.supports_barge_in:
                    self._audio.finish()
                return [cmd.Interrupt(barge_in=True, event_id=event_id)]
            case wire.ResponseCreate():
                return [self._create(command)]
            case wire.ItemCreate():
                return self._item(command, now)
            case wire.SessionUpdate(session=body):
                return [cmd.Reconfigure(body, event_id=event_id)]
            case _:
                return [_plain(command)]

    # --- configuration -----------------------------------------------------------------------------------

    def expect(self, queued: cmd.AnyCommand) -> None:
        """An update waits to be judged by the session: its formats hold for the next append already."""
        if isinstance(queued, cmd.Reconfigure):
            self._expected.append(queued)
            self._config = self._as_expected(self._config, queued)

    def judged(self, command: cmd.AnyCommand, config: SessionConfig) -> None:
        """The session took or refused a command; after an update ``config`` is what it has now."""
        if not isinstance(command, cmd.Reconfigure | cmd.Configure):
            return
        self._expected = [each for each in self._expected if each is not command]
        self._config = config
        for later in self._expected:
            self._config = self._as_expected(self._config, later)

    def _as_expected(self, config: SessionConfig, update: cmd.Reconfigure) -> SessionConfig:
        with suppress(InvalidRequest):
            return updated(update.body, config, self._capabilities)
        return config

    # --- appends -----------------------------------------------------------------------------------------

    def _append(
        self, command: wire.InputAppend, now: float, stream: AudioInput, item_id: str | None = None
    ) -> list[cmd.AnyCommand]:
        operation_id = command.operation_id
        if operation_id is not None and (self._known(operation_id) or operation_id in self._swallowed):
            return []
        pictures = frame_payloads(command, self._capabilities.max_frames_per_append)
        if not command.audio and not pictures:
            raise InvalidRequest("an append carries audio, video_frames or both", code="bad_event")
        check_times(len(pictures), command.frame_times_ms)
        times = self._media_clock.times(
            len(pictures), command.frame_times_ms, command.audio_end_ms, now * 1000
        )
        shown = sum(map(len, pictures))
        samples = self._decoded(command, stream, shown) if command.audio else None
        self._media_clock.heard(command.audio_end_ms, now * 1000)
        names: list[str | None] = [*(command.frame_ids or []), *([None] * len(pictures))]
        frames = tuple(map(FrameInput, pictures, times, names[: len(pictures)]))
        pcm = samples.tobytes() if samples is not None and samples.size else None
        if pcm is None and not frames:
            if operation_id is not None:
                self._swallowed.append(operation_id)
            return []  # a spare byte, or what the filter keeps for now
        speech = samples is not None and holds_speech(command, samples, self._config.overlap_silence_rms)
        self._speech = speech
        duration_ms = command.duration_ms
        if duration_ms is None:
            duration_ms = self._duration_ms(samples)
        append = cmd.AppendInput(
            operation_id or self._ids("op_"),
            InputUnit(
                frames, pcm, speech=speech if pcm else None, start_ms=command.audio_start_ms if pcm else None
            ),
            is_speech=speech,
            duration_ms=duration_ms,
            start_ms=command.audio_start_ms or 0.0,
            overlap_action=command.overlap_action,
            repeatable=operation_id is not None,
            force_barge_in=command.force_barge_in,
            force_listen=command.force_listen,
            transcript=command.transcript,
            item_id=item_id,
            event_id=command.event_id,
        )
        return [append]

    def _decoded(self, command: wire.InputAppend, stream: AudioInput, shown: int) -> Samples:
        """:param shown: bytes of the pictures that come with it"""
        format_, rate = self._config.input_format, self._config.input_format.rate
        if command.container == "wav":
            format_ = AudioFormat(Codec.WAV)
        elif command.format is not None:
            format_ = parse_format(command.format)
            rate = format_.rate or rate
        if command.sample_rate_hz is not None:
            rate = check_rate(command.sample_rate_hz)
            format_ = AudioFormat(format_.codec, rate)
        exact = self._capabilities.exact_input
        if exact is not None and (format_.codec, rate) != (exact.codec, exact.rate):
            raise InvalidRequest(
                f"this model takes {exact.codec} at {exact.rate} Hz and nothing else.",
                code="bad_event",
                param="format",
            )
        return stream.decode(
            command.audio or "", format_, rate or DEFAULT_RATE, lambda size: self._room(size + shown)
        )

    def _tail(self, stream: AudioInput) -> list[cmd.AnyCommand]:
        """What the resampler still holds belongs to the item that is being committed."""
        samples = stream.finish()
        if not samples.size:
            return []
        unit = InputUnit(pcm=samples.tobytes())
        tail = cmd.AppendInput(
            self._ids("op_"),
            unit,
            is_speech=self._speech,
            duration_ms=self._duration_ms(samples),
            repeatable=False,
        )
        return [tail]

    def _duration_ms(self, samples: Samples | None) -> float:
        return 0.0 if samples is None else samples.size * 1000 / self._capabilities.input_rate_hz

    # --- responses ---------------------------------------------------------------------------------------

    def _create(self, command: wire.ResponseCreate) -> cmd.AnyCommand:
        body = _said(command.response)
        if not self._capabilities.response_create:
            raise Unsupported("this model decides by itself when to speak", code="unsupported")
        if body.get("tools"):
            raise Unsupported("this model takes no tools from clients", code="unsupported_tools")
        if refused := sorted(key for key in _REFUSED_OPTIONS if body.get(key) is not None):
            raise Unsupported(
                f"a response has no {refused[0]} of its own; update the session instead",
                code="unsupported_native_response_options",
                param=f"response.{refused[0]}",
            )
        modalities = body.get("output_modalities", body.get("modalities"))
        if modalities is not None and (
            not isinstance(modalities, list) or any(each not in ("text", "audio") for each in modalities)
        ):
            raise Unsupported("output modalities are text and audio", code="unsupported_response_modality")
        metadata = body.get("metadata")
        if isinstance(metadata, dict) and len(orjson.dumps(metadata)) > MAX_METADATA_BYTES:
            raise InvalidRequest(
                f"metadata has at most {MAX_METADATA_BYTES} bytes as JSON",
                code="bad_event",
                param="response.metadata",
            )
        spoken_as = output_format_of(body, self._config.output_format)
        return cmd.CreateResponse(
            in_history=body.get("conversation") != "none",
            metadata=metadata if isinstance(metadata, dict) else {},
            modalities=tuple(dict.fromkeys(modalities)) if modalities else None,
            output_format=None if spoken_as == self._config.output_format else spoken_as,
            options=_options(body),
            event_id=command.event_id,
        )

    # --- items -------------------------------------------------------------------------------------------

    def _item(self, command: wire.ItemCreate, now: float) -> list[cmd.AnyCommand]:
        item = _said(command.item)
        kind, role = item.get("type", "message"), item.get("role", "user")
        if kind == "function_call_output":
            return [self._tool_output(item, command.event_id)]
        if kind != "message" or not isinstance(role, str) or role not in _ROLES:
            raise InvalidRequest("an item is a message of user, assistant or system", code="bad_event")
        item_id = item.get("id") or self._ids("item_")
        content = item.get("content", [])
        if not isinstance(item_id, str) or not isinstance(content, list):
            raise InvalidRequest("an item has a string id and a list of content", code="bad_event")
        if len(item_id) > wire.MAX_NAME_CHARS or item_id.startswith(ANSWER_PREFIX):
            raise InvalidRequest(
                f"an item id has at most {wire.MAX_NAME_CHARS} characters and is not that of a response",
                code="bad_event",
                param="item.id",
            )
        parts: list[ContentPart] = []
        pictures: list[cmd.AppendInput] = []
        speech: list[wire.InputAppend] = []
        for index, part in enumerate(content):
            where = f"item.content[{index}]"
            name = part.get("type") if isinstance(part, dict) else None
            name = name if isinstance(name, str) else None
            if name in _TEXT_PARTS and isinstance(part.get("text"), str):
                parts.append(
                    ContentPart("output_text" if role == "assistant" else "input_text", part["text"])
                )
            elif name == "input_image":
                pictures.append(self._picture(part, role, where, now))
                parts.append(ContentPart("input_image"))
            elif name in _AUDIO_PARTS and role == "user":
                speech.append(self._spoken(part, command.event_id))
                parts.append(ContentPart("input_audio"))
            else:
                raise InvalidRequest("a part is text, a picture or audio", code="bad_event", param=where)
        too_long = sum(len(part.text) for part in parts) > MAX_ITEM_CHARS
        if too_long or len(parts) > MAX_PARTS or len(speech) > MAX_SPOKEN_PARTS:
            raise TooLarge(
                f"a message has at most {MAX_ITEM_CHARS} characters in {MAX_PARTS} parts, "
                f"and {MAX_SPOKEN_PARTS} parts of audio",
                param="item.content",
                code="event_too_large",
            )
        sound = [each for part in speech for each in self._sound_of(part, now, item_id)]
        if sound:
            words = "".join(part.text for part in parts)
            return self._spoken_item(item_id, command, sound, pictures, words)
        created = Item(item_id, role, content=tuple(parts))
        return [cmd.CreateItem(created, command.previous_item_id, tuple(pictures), event_id=command.event_id)]

    def _tool_output(self, item: Mapping[str, Any], event_id: str | None) -> cmd.AnyCommand:
        call_id, output = item.get("call_id"), item.get("output")
        if not self._capabilities.client_tools or not isinstance(call_id, str) or not call_id:
            raise InvalidRequest(
                "no tool was called; there is nothing to give the output of",
                code="invalid_function_call_output",
                param="item.call_id",
            )
        if not isinstance(output, str) or len(output) > MAX_ITEM_CHARS:
            raise InvalidRequest(
                f"the output of a call is a text of at most {MAX_ITEM_CHARS} characters",
                code="invalid_function_call_output",
                param="item.output",
            )
        item_id = item.get("id")
        named = isinstance(item_id, str) and 0 < len(item_id) <= wire.MAX_NAME_CHARS
        own = item_id if named and not str(item_id).startswith(ANSWER_PREFIX) else self._ids("item_")
        return cmd.ReturnOutput(str(own), call_id, output, event_id=event_id)

    def _picture(self, part: Mapping[str, Any], role: str, where: str, now: float) -> cmd.AppendInput:
        if role != "user":
            raise InvalidRequest("only a user's message has pictures", code="invalid_image", param=where)
        if not self._capabilities.supports_image_input:
            raise Unsupported("this model takes no pictures in messages", code="unsupported", param=where)
        url = part.get("image_url")
        if not isinstance(url, str) or not url.startswith("data:image/") or ";base64," not in url:
            raise InvalidRequest(
                "image_url is a data URL with a base64 JPEG or PNG", code="invalid_image", param=where
            )
        try:
            data = picture(url, where)
        except InvalidRequest as error:
            raise InvalidRequest(error.message, code="invalid_image", param=where) from error
        (time_ms,) = self._media_clock.times(1, None, None, now * 1000)
        return cmd.AppendInput(self._ids("op_"), InputUnit((FrameInput(data, time_ms),)), repeatable=False)

    def _spoken(self, part: Mapping[str, Any], event_id: str | None) -> wire.InputAppend:
        audio = part.get("audio", part.get("data"))
        if not isinstance(audio, str):
            raise InvalidRequest("an audio part holds base64 audio", code="bad_audio", param="audio")
        if part.get("format") is not None:
            parse_format(part["format"])
        return wire.InputAppend(
            type="input_audio_buffer.append", audio=audio, format=part.get("format"), event_id=event_id
        )

    def _sound_of(self, part: wire.InputAppend, now: float, item_id: str) -> list[cmd.AppendInput]:
        """A message's audio; nothing of what is silent. It is no part of the stream that the client appends
        to."""
        stream = AudioInput(self._capabilities.input_rate_hz)
        whole = (*self._append(part, now, stream, item_id), *self._tail(stream))
        return [
            replace(each, item_id=item_id)
            for each in whole
            if isinstance(each, cmd.AppendInput) and each.is_speech
        ]

    def _spoken_item(
        self,
        item_id: str,
        command: wire.ItemCreate,
        sound: list[cmd.AppendInput],
        pictures: list[cmd.AppendInput],
        words: str,
    ) -> list[cmd.AnyCommand]:
        """Speech of a message is input like any other, committed under the message's id with all that the
        message holds besides."""
        commands: list[cmd.AnyCommand] = [*sound, *(replace(each, item_id=item_id) for each in pictures)]
        if words:
            commands.append(cmd.AppendText(words, event_id=command.event_id))
        commit = cmd.CommitInput(
            item_id=item_id, previous_item_id=command.previous_item_id, event_id=command.event_id
        )
        return [*commands, commit]


def _said(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Null says nothing here either."""
    return {key: value for key, value in fields.items() if value is not None}


def _options(body: Mapping[str, Any]) -> ResponseOptions | None:
    """Settings of one response; ``None`` when it has none."""
    if not any(body.get(key) is not None for key in _OWN_OPTIONS):
        return None
    instructions = body.get("instructions")
    if isinstance(instructions, str) and len(instructions) > MAX_TEXT_CHARS:
        raise InvalidRequest(
            f"instructions have at most {MAX_TEXT_CHARS} characters",
            code="bad_event",
            param="response.instructions",
        )
    most = body.get("max_output_tokens", body.get("max_response_output_tokens"))
    whole = isinstance(most, int) and not isinstance(most, bool) and most > 0
    return ResponseOptions(
        instructions=instructions if isinstance(instructions, str) else None,
        temperature=temperature_of(body, None),
        max_output_tokens=most if whole else None,
    )


def _plain(command: wire.AnyCommand) -> cmd.AnyCommand:
    """Commands that say the same on both sides."""
    event_id = command.event_id
    match command:
        case wire.ResponseCancel(response_id=response_id):
            return cmd.Cancel(response_id or None, event_id=event_id)
        case wire.OutputClear(response_id=response_id):
            return cmd.ClearOutput(response_id or None, event_id=event_id)
        case wire.PlaybackAck():
            return cmd.PlaybackAck(
                command.played_ms,
                command.committed_ms,
                command.response_id or None,
                command.item_id or None,
                event_id=event_id,
            )
        case wire.ItemRetrieve(item_id=item_id):
            return cmd.RetrieveItem(item_id, event_id=event_id)
        case wire.ItemDelete(item_id=item_id):
            return cmd.DeleteItem(item_id, event_id=event_id)
        case wire.ItemTruncate():
            return cmd.TruncateItem(
                command.item_id, command.content_index, command.audio_end_ms, event_id=event_id
            )
        case wire.TurnSignal(event=event):
            return cmd.SignalTurn(event, event_id=event_id)
        case wire.Heartbeat():
            return cmd.Heartbeat(event_id=event_id)
        case wire.EventAck(server_event_seq=seq):
            return cmd.AckEvents(seq, event_id=event_id)
        case wire.SessionClose(reason=reason):
            # A client cannot say that its session expired: that would be told as the server's doing.
            theirs = bool(reason) and reason not in cmd.EXPIRY_REASONS
            return cmd.Close(reason if theirs else "client_close", event_id=event_id)
        case wire.SessionResume():
            raise InvalidRequest(
                "session.resume is the first message of a new socket", code="unsupported_session_resume"
            )
        case _:
            raise InvalidRequest(f"{command.type} cannot be used here", code="bad_event")
