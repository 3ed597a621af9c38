"""One engine session, sans-IO: commands, received text and the time go in; frames and events come out.

The shell writes what ``next_frame`` gives, reports it ``written`` or ``unwritten``, hands over what it
``receive``s, and calls ``poll`` when ``due``. ``broken`` says that the socket must go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from bridges.duplex_client import commands, decode
from bridges.duplex_client.decode import Malformed, OutputAudio, Said, mapping
from bridges.duplex_client.link import (
    EngineEvent,
    EngineFault,
    Heard,
    InputCommitted,
    LinkCode,
    LinkError,
    LinkLost,
    LinkOptions,
    LinkResumed,
    OpenedSession,
    UserSpeech,
)
from bridges.duplex_client.outgoing import Json, Outgoing, Phase
from bridges.duplex_client.responses import Responses
from bridges.duplex_client.sequence import Verdict

MAX_HELD, MAX_HELD_BYTES = 1024, 16 * 2**20
"""Events that may come before ``session.resumed``; an engine keeps fewer for us."""
GONE = frozenset({"session_resume_expired"})
"""Answers to a resume that say the session is over at the engine."""
FATAL_RESUME = GONE | {
    "invalid_session_resume",
    "unsupported_session_resume",
    "invalid_resume_token",
    "session_resume_conflict",
}
_TOLERATED = {
    ("response.cancel", "response_not_active"),
    ("playback.ack", "playback_ack_too_late"),
}
_UNREAD = frozenset(
    {
        "conversation.item.done",
        "conversation.item.deleted",
        "conversation.item.retrieved",
        "conversation.item.truncated",
        "output_audio_buffer.cleared",
        "overlap.decision",
        "playback.acknowledged",
        "rate_limits.updated",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.output_item.done",
        "response.output_text.done",
        "turn.event",
    }
)
_BETA = {
    "response.audio.delta": "response.output_audio.delta",
    "response.audio.done": "response.output_audio.done",
    "response.audio_transcript.delta": "response.output_audio_transcript.delta",
    "response.audio_transcript.done": "response.output_audio_transcript.done",
    "response.text.delta": "response.output_text.delta",
    "response.text.done": "response.output_text.done",
}


class DuplexProtocol(Outgoing):
    """The whole of it: what ``Outgoing`` says of commands, and what the engine answers."""

    def __init__(self, options: LinkOptions, ids: Callable[[], str]) -> None:
        super().__init__(options, ids)
        self.broken: str | None = None
        self.session_id: str | None = None
        self.session: Mapping[str, Any] = {}
        self._held: list[tuple[Json, int]] = []
        self._opening_update = False
        self._heard_at = 0.0
        self._paused = False
        self._open_by: float | None = None
        self._resume_by: float | None = None
        self._gap_at: int | None = None

    # --- the socket -----------------------------------------------------------------------------------

    def connected(self, now: float, resume_by: float | None = None) -> None:
        """A fresh socket. ``resume_by``: when a resume must have been answered."""
        self.broken, self._heard_at, self._paused = None, now, False
        if self.session_id is None:
            self._open_by = now + self._options.open_s
            hello = commands.opening(self._opening, self._options.model)
            self._hello = self._frame(hello, self._opening_id, command=False)
            self.replies.wrote(self._opening_id, now, 0)
            return
        assert self.token is not None
        self.phase, self._resume_by = Phase.RESUMING, resume_by
        self._held.clear()
        hello = commands.resume(self.session_id, self.token, self.sequence.seen)
        self._hello = self._frame(hello, "", command=False)

    def lost(self, reason: str) -> None:
        """The socket is gone. Ends the link where it can't be taken up again."""
        if self.phase in (Phase.ENDED, Phase.LOST):
            return
        was, self._hello, self._writing, self._marker = self.phase, None, None, None
        if was is Phase.OPENING:
            told = f"the engine's socket broke before the session was open: {reason}"
            self.end(LinkCode.LINK_LOST, told, not self.reached)
        elif self.token is None:
            self.events.append(LinkLost(reason))
            self.end(LinkCode.LINK_LOST, f"the engine's socket broke: {reason}", False)
        else:
            self.phase = Phase.LOST
            self.replies.lost()
            self.counts["lost"] += was is Phase.LIVE
            if was is Phase.LIVE:
                self.events.append(LinkLost(reason))

    def pause(self) -> None:
        """Nothing is read for now: the engine's silence is ours."""
        self._paused = True

    def unpause(self, now: float) -> None:
        self._paused, self._heard_at = False, now

    # --- time -----------------------------------------------------------------------------------------

    def due(self) -> float | None:
        """When ``poll`` has something to do."""
        times: list[float | None] = [self.replies.due()]
        if self.phase is Phase.LIVE and self._writing is None:
            times += [self.sequence.ack_at(), self.confirming.beat_at(self._options.heartbeat_s)]
        if self.phase is Phase.LIVE and not self._paused:
            times.append(self._heard_at + self._options.silence_s)
        if self.phase is Phase.OPENING:
            times.append(self._open_by)
        if self.phase is Phase.RESUMING:
            times.append(self._resume_by)
        if self._writing is not None:
            times.append(self._writing[1] + self._options.write_s)
        return min((at for at in times if at is not None), default=None)

    def poll(self, now: float) -> None:
        self.replies.expire(now)
        if self.phase is Phase.OPENING and self._open_by is not None and now >= self._open_by:
            self.end(LinkCode.TIMEOUT, f"no session within {self._options.open_s:g} s", False)
        if self._writing is not None and now >= self._writing[1] + self._options.write_s:
            self.broken = "it takes nothing"
        quiet = not self._paused and now >= self._heard_at + self._options.silence_s
        if self.phase is Phase.LIVE and quiet:
            self.broken = f"not a word for {self._options.silence_s:g} s"
        if self.phase is Phase.RESUMING and self._resume_by is not None and now >= self._resume_by:
            self.broken = "no answer to the resume"

    # --- what the engine says -------------------------------------------------------------------------

    def receive(self, text: str | bytes, now: float) -> None:
        """One message. Nothing that an engine may say raises."""
        if self.broken is not None:
            return
        self._heard_at = now
        if isinstance(text, bytes):
            self.counts["binary"] += 1
            return
        try:
            event = orjson.loads(text)
            if not isinstance(event, dict) or not isinstance(event.get("type"), str):
                raise Malformed("an event is an object with a `type`")
            self._sort(event, len(text), now)
        except orjson.JSONDecodeError as bad:
            self._malformed(f"it is not JSON: {bad}")
        except Malformed as bad:
            self._malformed(str(bad))

    def _malformed(self, told: str, kind: str = "an event") -> None:
        self.counts["malformed"] += 1
        message = f"{kind}: {told}"[: decode.MAX_SAID_CHARS]
        if self.phase is Phase.OPENING:
            self.end(LinkCode.BAD_ENGINE_EVENT, message, False)
        elif self.phase is Phase.RESUMING:
            self.broken = message
        elif self.phase is Phase.LIVE:
            self.events.append(EngineFault(decode.BAD, message))

    def _sort(self, event: Json, size: int, now: float) -> None:
        early = event["type"] not in _ABOUT_RESUME or "server_event_seq" in event
        if self.phase is Phase.RESUMING and early:
            self._held.append((event, size))
            held_bytes = sum(size for _, size in self._held)
            if len(self._held) > MAX_HELD or held_bytes > MAX_HELD_BYTES:
                self.broken = "events, but no answer to the resume"
            return
        seq = event.get("server_event_seq")
        if seq is not None and not self._in_order(seq, size):
            return
        if self.phase in (Phase.OPENING, Phase.RESUMING, Phase.LIVE):
            self._dispatch(event, now)

    def _in_order(self, seq: Any, size: int) -> bool:
        """True: this event is new and none before it is missing."""
        if isinstance(seq, bool) or not isinstance(seq, int) or seq < 1:
            raise Malformed("`server_event_seq` is a number from 1")
        verdict = self.sequence.judge(seq)
        if verdict is Verdict.REPEAT:
            self.counts["repeated"] += 1
            return False
        if verdict is Verdict.GAP:
            self.counts["gaps"] += 1
            missing = f"events {self.sequence.seen + 1} to {seq - 1} are missing"
            if self.token is not None and self._gap_at != self.sequence.seen:
                # The engine still has them: a resume brings them.
                self._gap_at = self.sequence.seen
                self.broken = missing
                return False
            if self.token is not None:
                self.end(LinkCode.BAD_ENGINE_EVENT, missing, False)
                return False
            self.events.append(EngineFault(decode.BAD, missing))
        self.sequence.take(seq, size)
        return True

    def _dispatch(self, event: Json, now: float) -> None:
        said = str(event["type"])
        kind = _BETA.get(said, said)
        handler = _HANDLERS.get(kind)
        first, self._opening_update = self._opening_update, False
        try:
            if handler is not None:
                handler(self, event, now)
            elif kind == "session.updated":
                self._updated(event, opening=first)
            elif kind in _OF_RESPONSES:
                self.events.extend(_OF_RESPONSES[kind](self._responses, event))
            elif kind not in _UNREAD and not kind.startswith("duplex."):
                self.counts["unknown"] += 1
        except Malformed as bad:
            self._malformed(str(bad), kind)

    def _created(self, event: Json, now: float) -> None:
        if self.phase is not Phase.OPENING:
            raise Malformed("the session is open already")
        session = event.get("session")
        if not isinstance(session, Mapping):
            raise Malformed("`session` is no object")
        found = session.get("id", session.get("session_id", event.get("session_id")))
        if not isinstance(found, str) or not found:
            raise Malformed("the session has no id")
        token = event.get("resume_token")
        self.session_id, self.phase = found, Phase.LIVE
        self.token = token if isinstance(token, str) and token else None
        self._keep(session)
        self._opening_update = True
        self.confirming.connected(now)
        self.replies.answer("open", OpenedSession(found, session, self.token is not None))

    def _keep(self, session: Mapping[str, Any]) -> None:
        self.session = session
        self._responses.audio = OutputAudio.of(session)

    def _updated(self, event: Json, *, opening: bool) -> None:
        """``opening``: it repeats what ``session.created`` said; nobody asked for it."""
        session = event.get("session")
        if not isinstance(session, Mapping):
            raise Malformed("`session` is no object")
        self._keep(session)
        if not opening:
            self._answer("update", session)

    def _answer(self, kind: str, value: Any = None, key: str | None = None) -> None:
        mark = self.replies.answer(kind, value, key)
        if mark is not None:
            self.confirming.confirm(mark)

    def _resumed(self, event: Json, now: float) -> None:
        if self.phase is not Phase.RESUMING:
            raise Malformed("nobody asked to resume")
        token, session = event.get("resume_token"), event.get("session")
        if not isinstance(token, str) or not token:
            raise Malformed("a resumed session has a `resume_token`")
        self.token, self.phase = token, Phase.LIVE
        if isinstance(session, Mapping):
            self._keep(session)
        self.counts["resumed"] += 1
        self.events.append(LinkResumed(self.confirming.give_up()))
        if self.confirming.connected(now):
            self._mark()
        self.sequence.repeat()
        self.replies.resumed(now)
        self._close_again()
        held, self._held = self._held, []
        for early, size in held:
            if self.broken is None:
                self._sort(early, size, now)

    def _error(self, event: Json, now: float) -> None:
        said = decode.error(event)
        error = LinkError(said.code, said.message, retryable=said.retryable)
        if self.phase is Phase.OPENING:
            self.replies.refuse(self._opening_id, error)
            self.end(said.code, said.message, True)
        elif self.phase is Phase.RESUMING:
            if said.code in FATAL_RESUME:
                self.token = None if said.code in GONE else self.token
                self.end(LinkCode.LINK_LOST, said.message, said.code in GONE, said.code)
            else:
                self.broken = f"{said.code}: {said.message}"
        else:
            self._refused(said, error)

    def _refused(self, said: Said, error: LinkError) -> None:
        """An error of a live session: for the one command that it names, or for nobody's."""
        if said.event_id is None:
            self.events.append(EngineFault(said.code, said.message, None, said.retryable))
            return
        if said.event_id == self._marker_id:
            self.confirming.caught_up()
            return
        if self.replies.refuse(said.event_id, error):
            return
        kind = self._issued.get(said.event_id)
        if kind is None:
            self.counts["unknown_error"] += 1
        elif kind == "session.heartbeat":
            # Answered as well as by its own event: what was written before it has arrived.
            self.confirming.answered()
            self.events.append(EngineFault(said.code, said.message, None, said.retryable))
        elif (kind, said.code) in _TOLERATED:
            self.counts["tolerated"] += 1
        elif kind in _ANSWERED:
            self.replies.late += 1
        else:
            self.confirming.refused(said.event_id)
            self.events.append(EngineFault(said.code, said.message, said.event_id, said.retryable))

    def _closed(self, event: Json, now: float) -> None:
        reason = event.get("reason")
        reason = reason if isinstance(reason, str) and reason else event["type"]
        self._answer("close", True)
        self.token = None
        self.end(LinkCode.LINK_CLOSED, f"the engine closed the session: {reason}", True, reason)

    def _replaced(self, event: Json, now: float) -> None:
        self.end(LinkCode.LINK_LOST, "another client took the session over", False, "session_replaced")

    def _resync(self, event: Json, now: float) -> None:
        """Events are lost for good, or can't be repeated from here on."""
        reason = event.get("reason")
        reason = reason if isinstance(reason, str) and reason else "resync_required"
        self.token = None
        if self.phase is Phase.RESUMING:
            self.end(LinkCode.LINK_LOST, f"the engine can't repeat its events: {reason}", False, reason)
        else:
            self.counts["resync"] += 1

    def _beaten(self, event: Json, now: float) -> None:
        if not self.confirming.answered():
            self.counts["unknown"] += 1

    def _committed(self, event: Json, now: float) -> None:
        item_id = decode.name_of(event, "item_id")
        self._answer("commit")
        self.events.append(InputCommitted(item_id, mapping(event.get("event"))))

    def _cleared(self, event: Json, now: float) -> None:
        self._answer("clear")

    def _item(self, event: Json, now: float) -> None:
        found = mapping(event.get("item")).get("id")
        if isinstance(found, str):
            self._answer("item", None, found)
        self._responses.item(event)

    def _response(self, event: Json, now: float) -> None:
        decode.response_id(event)
        self._answer("create")
        self.events.extend(self._responses.created(event))

    def _listen(self, event: Json, now: float) -> None:
        told = self._responses.listen(event)
        self._answer("create")
        self.events.extend(told)

    def _heard(self, event: Json, now: float) -> None:
        self.events.append(Heard(decode.name_of(event, "item_id"), decode.text(event, "transcript")))

    def _speech(self, event: Json, now: float) -> None:
        began = event["type"].endswith("started")
        at = decode.milliseconds(event, "audio_start_ms" if began else "audio_end_ms")
        self.events.append(UserSpeech(began, at))


_ABOUT_RESUME = frozenset({"session.resumed", "session.resync_required", "error"})
_ANSWERED = frozenset(
    {
        "session.update",
        "input_audio_buffer.commit",
        "input_audio_buffer.clear",
        "response.create",
        "conversation.item.create",
        "session.close",
    }
)
"""Commands somebody waits for: an error for one that is settled comes too late."""

_Handler = Callable[[DuplexProtocol, Json, float], None]
_HANDLERS: Mapping[str, _Handler] = {
    "session.created": DuplexProtocol._created,
    "session.resumed": DuplexProtocol._resumed,
    "session.closed": DuplexProtocol._closed,
    "session.expired": DuplexProtocol._closed,
    "session.replaced": DuplexProtocol._replaced,
    "session.resync_required": DuplexProtocol._resync,
    "session.heartbeat_ack": DuplexProtocol._beaten,
    "error": DuplexProtocol._error,
    "input_audio_buffer.committed": DuplexProtocol._committed,
    "input_audio_buffer.cleared": DuplexProtocol._cleared,
    "input_audio_buffer.speech_started": DuplexProtocol._speech,
    "input_audio_buffer.speech_stopped": DuplexProtocol._speech,
    "conversation.item.added": DuplexProtocol._item,
    "conversation.item.created": DuplexProtocol._item,
    "conversation.item.input_audio_transcription.completed": DuplexProtocol._heard,
    "response.created": DuplexProtocol._response,
    "response.listen": DuplexProtocol._listen,
}
_OF_RESPONSES: Mapping[str, Callable[[Responses, Json], list[EngineEvent]]] = {
    "response.output_item.added": Responses.item,
    "response.speak": Responses.speak,
    "response.output_audio.delta": Responses.sound,
    "response.output_audio_transcript.delta": lambda responses, event: responses.words(event, spoken=True),
    "response.output_text.delta": lambda responses, event: responses.words(event, spoken=False),
    "response.function_call_arguments.done": Responses.tool_call,
    "response.done": Responses.done,
}
