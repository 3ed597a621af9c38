"""The protocol without a socket: what an engine says goes in, what we would write comes out."""

from __future__ import annotations

import itertools
from typing import Any

import orjson

from bridges.duplex_client.link import EngineEvent, LinkOptions
from bridges.duplex_client.outgoing import Frame
from bridges.duplex_client.protocol import DuplexProtocol

Json = dict[str, Any]
OPTIONS = LinkOptions("ws://engine:1", "m")
AUTO = {"modalities": ["text", "audio"], "extra_body": {"auto_response": True}}
TURN = {"modalities": ["text", "audio"]}


class Talk:
    """One protocol and its time. ``hear`` numbers events unless told otherwise."""

    def __init__(self, session: Json = AUTO, options: LinkOptions = OPTIONS, *, live: bool = True) -> None:
        counter = itertools.count(1)
        self.now = 100.0
        self.protocol = DuplexProtocol(options, lambda: f"evt_{next(counter):032x}")
        self.seq = 0
        self.opening = self.protocol.open(session)
        self.protocol.connected(self.now)
        if live:
            self.write()
            self.hear("session.created", session={"id": "duplex-1"}, resume_token="t1", seq=None)
            self.hear("session.updated", session={"id": "duplex-1"})
            self.settled()

    def hear(self, type_: str, *, seq: int | str | None = "next", **fields: Any) -> list[EngineEvent]:
        if seq == "next":
            self.seq += 1
            seq = self.seq
        event = {"type": type_, "event_id": "event_x", **fields}
        if seq is not None:
            event["server_event_seq"] = seq
        return self.raw(orjson.dumps(event).decode())

    def raw(self, text: str | bytes) -> list[EngineEvent]:
        self.protocol.receive(text, self.now)
        return self.events()

    def events(self) -> list[EngineEvent]:
        found = list(self.protocol.events)
        self.protocol.events.clear()
        return found

    def frames(self) -> list[Frame]:
        """Write all there is to write now."""
        frames = []
        while (frame := self.protocol.next_frame(self.now)) is not None:
            self.protocol.written(frame, self.now)
            frames.append(frame)
        return frames

    def write(self) -> list[Json]:
        return [orjson.loads(frame.text) for frame in self.frames()]

    def settled(self) -> dict[str, Any]:
        found = dict(self.protocol.replies.settled)
        self.protocol.replies.settled.clear()
        return found

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.protocol.poll(self.now)

    def respond(self, name: str = "r1") -> None:
        """A response is open and told of."""
        self.hear("response.created", response_id=name, response={"id": name})
        self.hear("response.output_item.added", response_id=name, item={"type": "message"})
