"""What we say to the engine: commands in call order, what is written of them, and who waits for what."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import orjson

from bridges.duplex_client import commands
from bridges.duplex_client.confirming import Confirming
from bridges.duplex_client.decode import mapping
from bridges.duplex_client.link import EngineEvent, EngineUnit, LinkCode, LinkEnded, LinkError, LinkOptions
from bridges.duplex_client.replies import Replies
from bridges.duplex_client.responses import Responses
from bridges.duplex_client.sequence import Sequence

Json = dict[str, Any]

MAX_UNWRITTEN, MAX_UNWRITTEN_BYTES = 512, 32 * 2**20
MARKER = "item_none"
REMEMBERED = 4096
"""Commands whose errors are still known as theirs."""


class Phase(Enum):
    NEW = auto()
    OPENING = auto()
    """There is a socket or will be one; commands wait for ``session.created``."""
    LIVE = auto()
    LOST = auto()
    """No socket; commands wait."""
    RESUMING = auto()
    ENDED = auto()


@dataclass(slots=True)
class Frame:
    """One message to write. ``command``: it waits for a socket, and is written on the next if need be."""

    text: str
    kind: str
    event_id: str
    command: bool = True
    response_id: str | None = None


class Outgoing:
    """The half of the protocol that writes.

    :param ids: makes the ``event_id`` of a command

    Commands return their event id; ``replies.settled`` tells what became of them. They raise ``LinkError``
    when they cannot be taken.
    """

    def __init__(self, options: LinkOptions, ids: Callable[[], str]) -> None:
        self._options, self._ids = options, ids
        self.counts: Counter[str] = Counter()
        self.replies = Replies()
        self.events: deque[EngineEvent] = deque()
        self.phase = Phase.NEW
        self.token: str | None = None
        self.confirmed: bool | None = None
        """Once ended: the engine itself said that the session is gone."""
        self.closing = False
        self.sequence = Sequence()
        self.confirming = Confirming()
        self._responses = Responses(self.counts)
        self._ended_as: tuple[str, str] | None = None
        self._opening: Mapping[str, Any] = {}
        self._opening_id = ""
        self._open_written = False
        self._unwritten: deque[Frame] = deque()
        self._unwritten_bytes = 0
        self._hello: Frame | None = None
        self._writing: tuple[Frame, float] | None = None
        self._close: Frame | None = None
        self._marker: Frame | None = None
        self._marker_id = ""
        self._issued: OrderedDict[str, str] = OrderedDict()
        self._on_write: set[str] = set()

    def end(self, code: str, message: str, confirmed: bool, reason: str | None = None) -> None:
        """The link is over: no command is taken any more, whoever waits is woken, and the reader is told."""
        if self.phase is Phase.ENDED:
            return
        self.phase, self.confirmed = Phase.ENDED, confirmed
        self._ended_as = (code, message)
        self._hello = self._marker = None
        self._unwritten.clear()
        self._unwritten_bytes = 0
        error = LinkError(code, message)
        self.replies.fail(error)
        self.replies.settled += [(event_id, error) for event_id in sorted(self._on_write)]
        self._on_write.clear()
        self.events.append(LinkEnded(reason or code, confirmed))

    # --- commands -------------------------------------------------------------------------------------

    def open(self, session: Mapping[str, Any]) -> str:
        self.phase = Phase.OPENING
        self._opening = dict(session)
        self._responses.auto = _answers_itself(session)
        self._opening_id = self._ids()
        self.replies.expect(self._opening_id, "open", None)
        return self._opening_id

    def append(self, unit: EngineUnit) -> str:
        return self._command(commands.append(unit), on_write=True)

    def commit(self, create_response: bool) -> str:
        return self._command(commands.commit(create_response), reply="commit")

    def create_response(self, options: Mapping[str, Any]) -> str:
        return self._command(commands.create_response(options), reply="create")

    def clear(self) -> str:
        return self._command({"type": "input_audio_buffer.clear"}, reply="clear")

    def add_item(self, item: Mapping[str, Any]) -> str:
        named = {**item, "id": item.get("id") or f"item_{self._ids().removeprefix('evt_')}"}
        return self._command(
            {"type": "conversation.item.create", "item": named}, reply="item", key=str(named["id"])
        )

    def update(self, session: Mapping[str, Any]) -> str:
        return self._command({"type": "session.update", "session": dict(session)}, reply="update")

    def cancel(self, response_id: str | None) -> str:
        return self._command(commands.cancel(response_id), on_write=True)

    def playback(self, response_id: str, played_ms: int, committed_ms: int) -> None:
        """Never waits; a newer one takes the place of one that is not yet written."""
        event = commands.playback(response_id, played_ms, committed_ms)
        for frame in self._unwritten:
            if frame.kind == event["type"] and frame.response_id == response_id:
                newer = self._frame(event, frame.event_id, command=True)
                self._unwritten_bytes += len(newer.text) - len(frame.text)
                frame.text = newer.text
                return
        self._command(event)

    def close(self, reason: str) -> str | None:
        """From here on no other command is taken. ``None``: it is asked for already."""
        if self.closing:
            return None
        event_id = self._command({"type": "session.close", "reason": reason}, reply="close")
        self._close = self._unwritten[-1]
        self.closing = True
        return event_id

    def _close_again(self) -> None:
        """Whether a close arrived on a lost socket is not known; a second one changes nothing."""
        if self._close is not None and self._close not in self._unwritten:
            self._unwritten.append(self._close)
            self._unwritten_bytes += len(self._close.text)

    def leave(self, event_id: str) -> None:
        """Whoever gave the command has gone away: if it is not yet written, it never will be."""
        for frame in self._unwritten:
            if frame.event_id == event_id:
                self._unwritten.remove(frame)
                self._unwritten_bytes -= len(frame.text)
                break
        if self._writing is not None and self._writing[0].event_id == event_id:
            # It may be whole already; if it is not, nobody wants it on the next socket.
            self._writing[0].command = False
        self._on_write.discard(event_id)
        self.replies.leave(event_id)

    # --- writing --------------------------------------------------------------------------------------

    def next_frame(self, now: float) -> Frame | None:
        """What to write now, one at a time: acknowledgements and heartbeats first."""
        frame = self._hello
        self._hello = None
        if frame is None and self.phase is Phase.LIVE:
            ack_at = self.sequence.ack_at()
            if self._marker is not None:
                frame, self._marker = self._marker, None
            elif ack_at is not None and now >= ack_at:
                ack = {"type": "session.event_ack", "server_event_seq": self.sequence.acknowledge(now)}
                frame = self._frame(ack, "", command=False)
            elif now >= self.confirming.beat_at(self._options.heartbeat_s):
                self.confirming.beat(now)
                frame = self._frame({"type": "session.heartbeat"}, self._ids(), command=False)
                self._remember(frame)
            elif self._unwritten:
                frame = self._unwritten.popleft()
                self._unwritten_bytes -= len(frame.text)
        if frame is not None:
            self._writing = (frame, now)
        return frame

    def written(self, frame: Frame, now: float) -> None:
        """All of it is with the socket: from here on it is never written again."""
        self._writing = None
        if frame.kind == "session.update" and not frame.command:
            self._open_written = True
        if frame.kind == "input_audio_buffer.append":
            self.confirming.wrote(frame.event_id)
        self.replies.wrote(frame.event_id, now, self.confirming.mark)
        if frame.event_id in self._on_write:
            self._on_write.discard(frame.event_id)
            self.replies.settled.append((frame.event_id, frame.event_id))

    def unwritten(self, frame: Frame) -> None:
        """The socket broke within it: the engine never got it whole."""
        self._writing = None
        if not frame.command or self.phase is Phase.ENDED:
            return
        self._unwritten.appendleft(frame)
        self._unwritten_bytes += len(frame.text)

    # --- inside ---------------------------------------------------------------------------------------

    def _command(
        self, event: Json, *, on_write: bool = False, reply: str | None = None, key: str | None = None
    ) -> str:
        if self.phase is Phase.ENDED or self.closing:
            code, message = self._ended_as or (LinkCode.LINK_CLOSED, "the link is being closed")
            raise LinkError(code, message)
        if self.phase is Phase.NEW:
            raise LinkError(LinkCode.LINK_CLOSED, "the link is not open")
        event_id = self._ids()
        frame = self._frame(event, event_id, command=True)
        room = self._unwritten_bytes + len(frame.text) <= MAX_UNWRITTEN_BYTES
        if (len(self._unwritten) >= MAX_UNWRITTEN or not room) and reply != "close":
            raise LinkError(LinkCode.BACKPRESSURE, "too much waits to be written", retryable=True)
        self._unwritten.append(frame)
        self._unwritten_bytes += len(frame.text)
        self._remember(frame)
        if on_write:
            self._on_write.add(event_id)
        if reply is not None:
            patience = self._options.close_s if reply == "close" else self._options.reply_s
            self.replies.expect(event_id, reply, patience, key)
        return event_id

    def _mark(self) -> None:
        """Ask for an item that is not there: of all refusals in order, the one that names its command."""
        event = {"type": "conversation.item.retrieve", "item_id": MARKER}
        self._marker = self._frame(event, self._ids(), command=False)
        self._marker_id = self._marker.event_id

    def _remember(self, frame: Frame) -> None:
        self._issued[frame.event_id] = frame.kind
        if len(self._issued) > REMEMBERED:
            self._issued.popitem(last=False)

    def _frame(self, event: Json, event_id: str, *, command: bool) -> Frame:
        body = {**event, "event_id": event_id} if event_id else event
        return Frame(orjson.dumps(body).decode(), event["type"], event_id, command, event.get("response_id"))

    @property
    def reached(self) -> bool:
        """The opening was written: the engine may have a session."""
        return self._open_written

    @property
    def unwritten_frames(self) -> int:
        return len(self._unwritten)


def _answers_itself(session: Mapping[str, Any]) -> bool:
    extra = mapping(session.get("extra_body"))
    return extra.get("auto_response") is True or extra.get("full_duplex") is True
