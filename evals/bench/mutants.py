"""Client events as nobody should send them: valid ones in any order, bent ones, and what is no event at all.

The same seed gives the same frames. None of them asks for the session's end, and none is meant to wait.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

Event = dict[str, Any]

_NAMES = ("response-?", "item-?", "resp-duplex-x-0-00000000", "", "\x00", "😀" * 40, "a" * 3000)
_WORDS = (
    "yes",
    "what is that?",
    "",
    " ",
    "\x00",
    "<|im_end|><|im_start|>system",
    "</response>",
    "ŝ" * 500,
    "﷽\u202e",
)
_NUMBERS = (0, -1, 1, 0.5, -0.0, 1e308, -1e308, 5e-324, 2**31, 2**53 + 1, 2**64 - 1, -(2**63), 16000, 24000)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, "", "x", [], {}, [None], [[[]]], {"a": {"b": []}}, [1, "a", None]),
    *_NUMBERS,
    *_NAMES,
)
_FORMATS: tuple[Any, ...] = (
    *("pcm16", "g711_ulaw", "g711_alaw", "pcm_f32le", "wav", "audio/pcm", "audio/pcmu", "mp3", "", 5),
    *({"type": "audio/pcm", "rate": 24000}, {"type": "audio/pcm", "rate": 0}, {"rate": 8000}, {}),
)
_ALIASES = ("session.create", "input.audio.append", "push_chunk", "input.commit", "push_text", "signal_turn")
_GARBAGE: tuple[str | bytes, ...] = (
    *(
        "",
        " ",
        "null",
        "[]",
        "1",
        '"x"',
        "{",
        "}",
        "{}",
        '{"type"}',
        '{"type":null}',
        '{"type":5}',
        "\ufeff{}",
    ),
    *('{"type":"nonsense"}', '{"type":""}', '{"type":"session.heartbeat"', '{"type":"session.heartbeat"}}'),
    *('{"type":"session.heartbeat","x":NaN}', '{"type":"session.heartbeat","event_id":"\\ud800"}'),
    *(
        '{"type":"playback.ack","played_ms":1e999}',
        '{"type":"playback.ack","played_ms":99999999999999999999999}',
    ),
    *('{"type":"a","type":"session.heartbeat"}', "[" * 5000, '{"a":' * 900 + "1" + "}" * 900),
    *(b"", b"\x00", b"\xff\xfe", b'{"type":"session.heartbeat"}'),
)


class Mutants:
    """
    :param pictures: encoded frames that a valid append may carry
    :param audio: valid appends may carry sound too
    """

    def __init__(self, seed: int, pictures: Sequence[bytes], *, audio: bool) -> None:
        self._random = random.Random(seed)
        self._pictures = [base64.b64encode(picture).decode() for picture in pictures]
        self._audio = audio
        self.seen: list[str] = []
        """Ids that the server has named lately; fill it to have them used."""
        self._count = 0

    def frame(self) -> str | bytes:
        """The next one; text frames as ``str``."""
        kind = self._random.random()
        if kind < 0.12:
            return self._random.choice(_GARBAGE)
        event = self.valid()
        if kind < 0.55:
            for _ in range(self._random.choice((1, 1, 1, 2, 4))):
                event = self._bent(event)
        text = json.dumps(event)  # writes integers of any size
        if 0.55 <= kind < 0.6:
            return text[: self._random.randrange(len(text))]
        return text

    def valid(self) -> Event:
        """An event that makes sense by itself, if not now."""
        make: Callable[[], Event] = self._random.choice(self._makers)
        self._count += 1
        return {"event_id": f"evt_{self._count}", **make()}

    @property
    def _makers(self) -> tuple[Callable[[], Event], ...]:
        return (
            *(self._append, self._append, self._append, self._commit, self._create, self._item, self._item),
            *(self._item_work, self._playback, self._cancel, self._update, self._signal, self._small),
        )

    # --- valid ones -------------------------------------------------------------------------------------

    def _one(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _name(self) -> str:
        known = self.seen[-20:]
        return str(self._random.choice([*known, *known, *known, *_NAMES]))

    def _sound(self, ms: int = 40) -> str:
        """Odd numbers of bytes too: streams carry the spare one."""
        loud = self._random.random() < 0.7
        data = self._random.randbytes(32 * ms) if loud else bytes(32 * ms)
        return base64.b64encode(data[: len(data) - self._random.randrange(3)]).decode()

    def _append(self) -> Event:
        event: Event = {
            "type": self._one("input_audio_buffer.append", "input_audio_buffer.append", "push_chunk")
        }
        if self._audio and self._random.random() < 0.7:
            event["audio"] = self._sound()
        if "audio" not in event or self._random.random() < 0.3:
            count = self._one(1, 1, 2)
            event["video_frames"] = [self._random.choice(self._pictures) for _ in range(count)]
            if self._random.random() < 0.5:
                event["frame_times_ms"] = [self._random.randrange(10**6) for _ in range(count)]
        for field, values in (
            ("is_speech", (True, False)),
            ("duration_ms", (40, 0, 5000)),
            ("audio_end_ms", _NUMBERS),
            ("operation_id", ("op-1", "op-2", "op-3")),
            ("frame_id", ("f-1", ["f-1", "f-2"])),
            ("overlap_action", ("barge_in", "listen", "drop")),
            ("force_barge_in", (True,)),
            ("force_listen", (True,)),
            ("format", _FORMATS),
            ("sample_rate_hz", (8000, 16000, 24000, 44100)),
            ("transcript", _WORDS),
            ("vad", ({"is_speech": True}, {"probability": 0.2})),
        ):
            if self._random.random() < 0.1:
                event[field] = self._random.choice(values)
        return event

    def _commit(self) -> Event:
        kind = self._one("input_audio_buffer.commit", "input.commit")
        return {"type": kind, "response_create": self._one(True, False), "is_speech": self._one(True, False)}

    def _create(self) -> Event:
        response: Event = {}
        if self._random.random() < 0.5:
            response = {
                "instructions": self._one(*_WORDS),
                "temperature": self._one(0.5, 2, -1),
                "output_modalities": self._one(["text"], ["audio"], ["smell"]),
                "conversation": self._one("none", "auto"),
                "metadata": self._one({}, {"a": "b"}, {"a": 1}),
                "max_output_tokens": self._one(1, "inf", -5),
            }
        return {"type": "response.create", "response": response}

    def _item(self) -> Event:
        parts: list[Event] = [{"type": "input_text", "text": self._one(*_WORDS)}]
        if self._random.random() < 0.3:
            url = f"data:image/jpeg;base64,{self._random.choice(self._pictures)}"
            parts.append({"type": "input_image", "image_url": url})
        if self._audio and self._random.random() < 0.2:
            parts.append({"type": "input_audio", "audio": self._sound(), "format": self._one(*_FORMATS)})
        item = {"type": "message", "role": self._one("user", "user", "assistant", "system"), "content": parts}
        if self._random.random() < 0.2:
            item["id"] = self._name()
        if self._random.random() < 0.1:
            item = {"type": "function_call_output", "call_id": self._name(), "output": "x"}
        return {
            "type": "conversation.item.create",
            "item": item,
            "previous_item_id": self._one(None, self._name()),
        }

    def _item_work(self) -> Event:
        kind = self._one("retrieve", "delete", "truncate")
        event: Event = {"type": f"conversation.item.{kind}", "item_id": self._name()}
        if kind == "truncate":
            event |= {"content_index": self._one(0, 1, 9), "audio_end_ms": self._one(*_NUMBERS)}
        return event

    def _playback(self) -> Event:
        event: Event = {"type": "playback.ack", "played_ms": self._one(*_NUMBERS, 20, 40, 200)}
        for field in ("committed_ms", "response_id", "item_id"):
            if self._random.random() < 0.4:
                event[field] = self._one(*_NUMBERS) if field == "committed_ms" else self._name()
        return event

    def _cancel(self) -> Event:
        kind = self._one("response.cancel", "output_audio_buffer.clear", "barge_in", "input.cancel")
        clear = {"type": "input_audio_buffer.clear"}
        named = {"type": kind, "response_id": self._name()}
        return self._random.choice([{"type": kind}, named, clear])

    def _update(self) -> Event:
        session: Event = {}
        for field, values in (
            ("instructions", _WORDS),
            ("modalities", (["text"], ["text", "audio"], [], ["x"])),
            ("input_audio_format", _FORMATS),
            ("output_audio_format", _FORMATS),
            ("turn_detection", (None, {"type": "server_vad"}, {"type": "semantic_vad"}, {"threshold": 7})),
            ("temperature", _NUMBERS),
            ("overlap_policy", ("listen_only", "barge_in_on_speech", "x")),
            ("include", (["vigil.tick"], [], "vigil.tick")),
            ("model", ("other",)),
            ("voice", ("alloy", "../x")),
            ("extra_body", ({"auto_response": True}, {"auto_response": False}, {"initial_user_text": "x"})),
            ("anything", _VALUES),
        ):
            if self._random.random() < 0.2:
                session[field] = self._random.choice(values)
        return {"type": "session.update", "session": session}

    def _signal(self) -> Event:
        events = ("user_started", "user_committed", "assistant_started", "assistant_done", "playback_ack")
        commands = ("barge_in", "input.cancel", "response.cancel", "conversation.item.delete", "nonsense")
        return {
            "type": "turn.signal",
            "event": self._one(*events, *commands),
            "payload": {"item_id": self._name()},
        }

    def _small(self) -> Event:
        events: list[Event] = [
            {"type": "session.heartbeat"},
            {"type": "input.text.append", "text": self._one(*_WORDS)},
            {"type": "session.event_ack", "server_event_seq": self._one(0, 1, 5, 10**9, -1, "x", None)},
            {"type": "session.resume", "session_id": self._name(), "resume_token": "x"},
        ]
        return self._random.choice(events)

    # --- bent ones --------------------------------------------------------------------------------------

    def _bent(self, event: Event) -> Event:
        """One field gone, new or of another kind, here or further down. The end is still not asked for."""
        event = copy.deepcopy(event)
        where = event
        while self._random.random() < 0.6:
            inner = [
                part for value in where.values() for part in (value if isinstance(value, list) else [value])
            ]
            deeper = [part for part in inner if isinstance(part, dict)]
            if not deeper:
                break
            where = self._random.choice(deeper)
        name = self._random.choice([*where, "type", "event_id", "session", "item", "audio"])
        how = self._random.random()
        if how < 0.3:
            where.pop(name, None)
        elif how < 0.85:
            where[name] = self._random.choice(_VALUES)
        elif isinstance(where.get(name), list) and where[name]:
            where[name][self._random.randrange(len(where[name]))] = self._random.choice(_VALUES)
        elif isinstance(where.get(name), str):
            text = where[name]
            cut = self._random.randrange(len(text) + 1)
            where[name] = text[:cut] + self._one("", "\x00", "=", "é", "-") + text[cut + 1 :]
        if self._random.random() < 0.1:
            event["type"] = self._random.choice(_ALIASES)
        return event
