"""One engine session: its commands in order, its model, its lease and its attachment."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.fakes.duplex_engine.channel import Channel, Json, Wire
from tests.fakes.duplex_engine.detector import Detector
from tests.fakes.duplex_engine.intake import EMPTY, Intake, Refused
from tests.fakes.duplex_engine.model import Model
from tests.fakes.duplex_engine.opening import Opening, session_object
from tests.fakes.duplex_engine.script import Director, Unit
from tests.fakes.duplex_engine.speech import Speech, SpokenResponse

if TYPE_CHECKING:
    from tests.fakes.duplex_engine.engine import DuplexEngine

MAILBOX = 256
WAITING_COMMITS = 4


class EngineSession:
    """What a test looks at: ``units`` the model got, ``acks`` of playback, ``responses`` it gave,
    ``received`` (every command, media left out), ``sent`` (every event, audio left out), ``closed`` (why)."""

    def __init__(self, engine: DuplexEngine, session_id: str, opening: Opening) -> None:
        self.engine, self.id, self.opening = engine, session_id, opening
        self.profile = engine.profile
        self.acks: list[Json] = []
        self.updates: list[Json] = []
        self.received: list[Json] = []
        self.items: list[Json] = []
        self.closed: str | None = None
        self.closing = False
        self.token = ""
        self.generation = 1
        self.detached_at: float | None = None
        self.touched_at = engine.lease_clock.now()
        self.channel = Channel(
            session_id,
            engine.lease_clock.now,
            engine.journal_bytes,
            engine.journal_s,
            lambda: not engine.running.is_set(),
            engine.changed,
        )
        self.intake = Intake(
            session_id,
            self.profile,
            opening.auto,
            opening.input_format,
            opening.rate_hz,
            opening.silence_rms,
            resend=engine.version == "0.30.0",
            force_listen=opening.force_listen,
        )
        self.speech = Speech(
            self.channel,
            opening.output_format,
            self.profile.output_rate_hz,
            opening.modalities,
            engine.version,
        )
        self.model = Model(
            self.profile,
            Director(engine.script),
            self.channel,
            self.speech,
            engine.clock,
            engine.faults,
            auto=opening.auto,
            keep_audio=engine.keep_audio,
            voice=engine.voice,
            ready=engine.running.wait,
            failed=self._stage_failed,
            refused=self._append_failed,
            took=engine.unit_taken,
            spoke=self.touch,
            ended=self._response_ended,
        )
        self._detector = Detector(opening.vad) if opening.vad is not None else None
        self._speaking = False
        self._overlap_ms = 0.0
        self._deferred = False
        self._commits = 0
        self._mailbox: asyncio.Queue[Json] = asyncio.Queue(MAILBOX)
        self._tasks: list[asyncio.Task[None]] = []

    # --- for tests ------------------------------------------------------------------------------------

    @property
    def units(self) -> list[Unit]:
        return self.model.units

    @property
    def responses(self) -> list[SpokenResponse]:
        return self.speech.spoken

    @property
    def sent(self) -> list[Json]:
        return self.channel.sent

    @property
    def attached(self) -> bool:
        return self.channel.wire is not None

    def commands(self, *types: str) -> list[Json]:
        return [event for event in self.received if event.get("type") in types]

    # --- life -----------------------------------------------------------------------------------------

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self.model.run())]

    async def stop(self) -> None:
        current = asyncio.current_task()
        others = [task for task in self._tasks if task is not current]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def touch(self) -> None:
        self.touched_at = self.engine.lease_clock.now()

    def public(self) -> Json:
        """The session object that events carry."""
        return session_object(self)

    async def submit(self, event: Json) -> None:
        """Queue one command behind the earlier ones."""
        if event["type"] == "input_audio_buffer.commit":
            if self._commits >= WAITING_COMMITS:
                self.error("input_backpressure", "too many commits wait", event, "rate_limit_error")
                return
            self._commits += 1
        await self._mailbox.put(event)

    async def _work(self) -> None:
        while True:
            event = await self._mailbox.get()
            await self.engine.running.wait()
            self.touch()
            media = {"audio", "delta", "video_frames"}
            self.received.append({key: value for key, value in event.items() if key not in media})
            try:
                await self._execute(event)
            except Refused as refused:
                self.error(refused.code, refused.message, event, refused.kind)
            self.engine.changed()

    async def _execute(self, event: Json) -> None:
        kind = event["type"]
        if self.closing:
            raise Refused("session_closed", "the session closes")
        handler = _COMMANDS.get(kind)
        if handler is None:
            raise Refused("unknown_event", f"unknown event {kind}")
        result = handler(self, event)
        if result is not None:
            await result

    def error(self, code: str, message: str, event: Mapping[str, Any] | None, kind: str) -> None:
        body: Json = {"type": kind, "code": code, "message": message}
        if event is not None and isinstance(event.get("event_id"), str):
            body["event_id"] = event["event_id"]
        self.channel.emit("error", error=body)

    def end(self, reason: str, *, expired: bool = False) -> None:
        """Say that the session is over and give its place back."""
        if self.closed is not None:
            return
        self.closed, self.closing = reason, True
        self.model.epoch += 1
        name = "session.expired" if expired else "session.closed"
        self.channel.emit(name, reason=reason, **({} if expired else {"event": {}}))
        if self.channel.wire is not None:
            self.channel.wire.close(1000, reason)
        self.engine.ended(self)

    def attach(self, wire: Wire) -> None:
        wire.generation = self.generation
        self.channel.wire = wire
        self.detached_at = None
        self.touch()

    def detach(self, wire: Wire) -> None:
        """The socket is gone. One that was displaced, or dropped, changes nothing but the clock."""
        if self.channel.wire is not wire and self.channel.wire is not None:
            return
        self.channel.wire = None
        self.engine.changed()
        if self.closed is not None or wire.generation != self.generation:
            return
        if not self.profile.resume:
            self.end("disconnect")
        elif self.detached_at is None:
            self.detached_at = self.engine.lease_clock.now()

    # --- commands -------------------------------------------------------------------------------------

    def _append(self, event: Json) -> None:
        media = self.intake.decode(event)
        if self._detector is not None and media.pcm.size:
            self._listen_in(media.pcm, media.duration_ms)
        elif media.is_speech and not self._speaking:
            self._speaking = True
            start = max(0, round((media.end_ms or 0) - media.duration_ms))
            self._speech_started(start)
        sees = bool(media.frames) and "audio" not in self.profile.required
        if not self.opening.auto and not media.is_speech and not sees:
            said: Json = {"object": "realtime.response", "status": "listening"}
            said["metadata"] = {"reason": "silence_or_noise", "model_listen": False}
            self.channel.emit("response.listen", epoch=self.model.epoch, response=said)
            return
        if self.model.open is not None and media.is_speech:
            self._overlap_ms += media.duration_ms
        for unit in self.intake.add(media):
            self.model.put(unit)

    def _listen_in(self, pcm: Any, duration_ms: float) -> None:
        assert self._detector is not None
        change = self._detector.hear(pcm, duration_ms)
        if change is None:
            return
        began, at_ms = change
        if began:
            self._speech_started(at_ms)
            if self.model.open is not None and self.profile.barge_in:
                self._stop_response("turn_detected")
        else:
            self.channel.emit(
                "input_audio_buffer.speech_stopped", audio_end_ms=at_ms, item_id=self._open_item()
            )
            if not self.opening.auto:
                vad = self.opening.vad or {}
                create = bool(vad.get("create_response", True))
                self._mailbox.put_nowait({"type": "input_audio_buffer.commit", "create_response": create})
                self._commits += 1

    def _speech_started(self, at_ms: int) -> None:
        self.channel.emit(
            "input_audio_buffer.speech_started", audio_start_ms=at_ms, item_id=self._open_item()
        )

    def _open_item(self) -> str:
        return f"item_{self.id[-8:]}_{len(self.items):023x}"

    def _commit(self, event: Json) -> None:
        self._commits -= 1
        if not (self.intake.appended or self.intake.speech):
            raise Refused("input_audio_buffer_empty", "nothing was appended")
        create = bool(event.get("response_create", event.get("create_response", False)))
        details: Json = {"is_speech": self.intake.speech, "create_response": create}
        if self._speaking and self._detector is None:
            self._speaking = False
            self.channel.emit("input_audio_buffer.speech_stopped", audio_end_ms=0, item_id=self._open_item())
        overlap, self._overlap_ms = self._overlap_ms, 0.0
        busy = not self.opening.auto and self.model.open is not None
        if busy and 0 < overlap <= self.opening.short_ack_ms:
            details.update(overlap_ack=True, no_response=True, is_speech=False)
            self.intake.clear()
        elif busy:
            details.update(overlap_deferred=True, response_create_deferred=create)
            self._deferred = create
        units = self.intake.commit()
        self._user_item(details)
        for unit in units:
            self.model.put(unit)
        if create and not busy and not self.opening.auto:
            self._answer()

    def _user_item(self, details: Json) -> None:
        item: Json = {
            "id": self._open_item(),
            "object": "realtime.item",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_audio", "is_speech": details["is_speech"]}],
        }
        self._add(item, lambda: self.channel.emit(
            "input_audio_buffer.committed", previous_item_id=None, item_id=item["id"], event=details
        ))  # fmt: skip

    def _add(self, item: Json, between: Any = None) -> None:
        self.items.append(item)
        for name in ("conversation.item.added", "conversation.item.created"):
            self.channel.emit(name, previous_item_id=None, item=item)
        if between is not None:
            between()
        self.channel.emit("conversation.item.done", previous_item_id=None, item=item)

    def _answer(self) -> None:
        """A response to the committed turn, visible before the model says anything."""
        units = self.intake.take_sealed()
        self.model.begin()
        for unit in units:
            self.model.put(unit)

    def _create(self, event: Json) -> None:
        options = event.get("response")
        refused = {"instructions", "voice", "temperature", "max_output_tokens", "tools"}
        if isinstance(options, Mapping) and refused & set(options):
            raise Refused(
                "unsupported_native_response_options", f"not taken: {sorted(refused & set(options))}"
            )
        if self.model.open is not None:
            raise Refused("response_already_active", "a response is active")
        asked = any(item.get("unanswered") for item in self.items)
        if not self.intake.sealed and not (asked and self.profile.capabilities(1)["supports_text_only_turn"]):
            if asked:
                raise Refused("text_only_turn_unsupported", "this model takes no turn of text")
            raise Refused("response_create_without_input", "nothing is committed")
        if not self.intake.sealed:
            self.model.begin()
            text = " ".join(_texts(item) for item in self.items if item.pop("unanswered", False))
            self.model.put(Unit(self.id, -1, EMPTY, creates=True, text=text))
            return
        self._answer()

    def _clear(self, event: Json) -> None:
        self.intake.clear()
        self.channel.emit("input_audio_buffer.cleared")

    async def _cancel(self, event: Json) -> None:
        wanted, active = event.get("response_id"), self.model.open
        known = {response.id for response in self.speech.spoken}
        if active is None and wanted is not None and wanted not in known:
            return
        if active is None or (wanted is not None and wanted != active.id):
            raise Refused("response_not_active", "no such response is active")
        await self._cancel_open("client_cancelled")

    async def _barge_in(self, event: Json) -> None:
        if event["type"] == "barge_in" and not self.profile.barge_in:
            raise Refused("barge_in_unsupported", "this model takes no barge-in")
        self.intake.clear()
        self.model.discard()
        if self.model.open is not None:
            await self._cancel_open("barge_in")
        else:
            self.model.epoch += 1
            self.channel.emit("input_audio_buffer.cleared")

    async def _clear_output(self, event: Json) -> None:
        active = self.model.open
        wanted = event.get("response_id") or (active.id if active else "")
        self.channel.emit("output_audio_buffer.cleared", response_id=wanted)
        if active is not None and active.id == wanted:
            await self._cancel_open("output_audio_buffer_clear")

    async def _cancel_open(self, reason: str) -> None:
        faults = self.engine.faults
        if faults.leak_on_cancel and faults.cancel_ms:
            await self.engine.clock.sleep(faults.cancel_ms / 1000)
            self._stop_response(reason)
            return
        self.model.epoch += 1
        response = self.model.release()
        if faults.cancel_ms:
            await self.engine.clock.sleep(faults.cancel_ms / 1000)
        self._say_cancelled(response, reason)

    def _stop_response(self, reason: str) -> None:
        self.model.epoch += 1
        self._say_cancelled(self.model.release(), reason)

    def _say_cancelled(self, response: SpokenResponse | None, reason: str) -> None:
        if response is not None:
            self.speech.end(response, "cancelled", {"type": "cancelled", "reason": reason}, {})
            self.model.late(response, self.engine.faults.late_after_cancel)

    def _ack(self, event: Json) -> None:
        played = event.get("played_ms")
        if not isinstance(played, int | float) or isinstance(played, bool):
            raise Refused("bad_event", "played_ms is a number")
        item_id, response_id = event.get("item_id"), event.get("response_id")
        if item_id is not None and response_id is not None and item_id != f"item_{response_id}":
            raise Refused("playback_item_mismatch", "item_id and response_id differ")
        found = [r for r in self.speech.spoken if response_id in (None, r.id)]
        if not found:
            raise Refused("playback_item_not_found", f"no response {response_id}")
        response = found[-1]
        response.played_ms = max(response.played_ms, int(played))
        committed = event.get("committed_ms", response.played_ms)
        response.committed_ms = max(response.committed_ms, int(committed))
        self.acks.append({key: event.get(key) for key in ("response_id", "played_ms", "committed_ms")})
        told = {"item_id": response.item_id, "playback": response.playback, "truncate": False}
        self.channel.emit("playback.acknowledged", event=told)

    def _item(self, event: Json) -> None:
        item = dict(event.get("item") or {})
        if not isinstance(item.get("type", "message"), str):
            raise Refused("bad_event", "an item has a type")
        item.setdefault("id", f"item_{len(self.items):032x}")
        defaults = {"object": "realtime.item", "type": "message", "status": "completed", "role": "user"}
        self._add({**defaults, "content": [], **item})
        if item.get("role", "user") == "user":
            self.items[-1]["unanswered"] = True

    def _retrieve(self, event: Json) -> None:
        found = [item for item in self.items if item["id"] == event.get("item_id")]
        if not found:
            raise Refused("item_not_found", f"no item {event.get('item_id')}")
        self.channel.emit("conversation.item.retrieved", item=found[0])

    def _update(self, event: Json) -> None:
        patch = event.get("session")
        patch = dict(patch) if isinstance(patch, Mapping) else {}
        self.opening.update(patch, self.profile, heard=bool(self.units), spoke=bool(self.responses))
        self.updates.append(patch)
        self.channel.emit("session.updated", session=self.public())

    def _heartbeat(self, event: Json) -> None:
        self.channel.emit("session.heartbeat_ack")

    async def _close(self, event: Json) -> None:
        self.closing = True
        self.engine.changed()
        faults = self.engine.faults
        self.model.epoch += 1
        if faults.close_silent:
            return
        if faults.close_ms:
            await self.engine.clock.sleep(faults.close_ms / 1000)
        self.end(str(event.get("reason") or "client_close"))

    # --- the model's troubles -------------------------------------------------------------------------

    def _stage_failed(self) -> None:
        self.error("runtime_data_plane_stream_failed", "scripted stage failure", None, "server_error")
        self.end("request_cleanup", expired=True)

    def _append_failed(self, unit: Unit) -> None:
        event = {"event_id": unit.event_ids[-1]} if unit.event_ids else None
        self.error("runtime_append_failed", "scripted refusal", event, "server_error")

    def _response_ended(self) -> None:
        """A turn that was committed over a response is answered after it."""
        if self._deferred and self.intake.sealed:
            self._deferred = False
            self._answer()


def _texts(item: Mapping[str, Any]) -> str:
    return " ".join(str(part.get("text", "")) for part in item.get("content", []))


_COMMANDS: Mapping[str, Any] = {
    "input_audio_buffer.append": EngineSession._append,
    "input_audio_buffer.commit": EngineSession._commit,
    "input_audio_buffer.clear": EngineSession._clear,
    "response.create": EngineSession._create,
    "response.cancel": EngineSession._cancel,
    "barge_in": EngineSession._barge_in,
    "input.cancel": EngineSession._barge_in,
    "output_audio_buffer.clear": EngineSession._clear_output,
    "playback.ack": EngineSession._ack,
    "conversation.item.create": EngineSession._item,
    "conversation.item.retrieve": EngineSession._retrieve,
    "session.update": EngineSession._update,
    "session.heartbeat": EngineSession._heartbeat,
    "session.close": EngineSession._close,
}
