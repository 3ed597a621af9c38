"""A full-duplex engine of which every step is written down: for the odd cases of its check and its probe."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

from engine_launch.duplex_spec import DuplexSpec

Event = dict[str, Any]
Answer = Callable[["Call"], list[Event]]


class Call:
    """One client event, and the connection it came on."""

    def __init__(self, event: Event, socket: ServerConnection, number: int) -> None:
        self.event = event
        self.socket = socket
        self.number = number
        """How many of its type came before it."""


def audio(rate: int) -> Event:
    delta = base64.b64encode(bytes(480)).decode()
    return {"type": "response.output_audio.delta", "delta": delta, "sample_rate_hz": rate}


def error(code: str) -> Event:
    return {"type": "error", "error": {"code": code, "message": f"told {code}"}}


LISTEN: Event = {"type": "response.listen"}


class ScriptedDuplex:
    """Each client event has an answer in ``answers`` that a test may replace; ``health`` is of ``/health``.

    By default it is what the profile of ``spec`` says, and speaks at once.
    """

    def __init__(self, spec: DuplexSpec) -> None:
        self.spec = spec
        self.model = "m"
        self.health = HTTPStatus.OK
        self.capabilities: dict[str, Any] = dict(spec.capabilities)
        self.url = ""
        self.received: list[Event] = []
        self.ended = threading.Event()
        speech = [audio(spec.output_rate_hz)]
        self.answers: dict[str, Answer] = {
            "session.update": lambda call: [self.created()],
            "session.heartbeat": lambda call: [{"type": "session.heartbeat_ack"}],
            "session.close": lambda call: [{"type": "session.closed", "reason": "client_close"}],
            "input_audio_buffer.append": lambda call: [] if spec.turns else speech,
            "input_audio_buffer.commit": lambda call: [{"type": "response.created"}, *speech],
        }

    def created(self) -> Event:
        return {"type": "session.created", "session": {"id": "duplex-1", "capabilities": self.capabilities}}

    def handle(self, socket: ServerConnection) -> None:
        seen: dict[str, int] = {}
        try:
            for frame in socket:
                event = json.loads(frame)
                self.received.append(event)
                number = seen.get(event["type"], 0)
                seen[event["type"]] = number + 1
                for answer in self.answers[event["type"]](Call(event, socket, number)):
                    socket.send(json.dumps(answer))
        except ConnectionClosed:
            pass

    def http(self, socket: ServerConnection, request: Request) -> Response | None:
        path = request.path.partition("?")[0]
        if path == "/v1/realtime":
            return None
        if path == "/v1/models":
            return _json(HTTPStatus.OK, {"data": [{"id": self.model}]})
        return _json(self.health if path == "/health" else HTTPStatus.NOT_FOUND, {})


def _json(status: HTTPStatus, body: Any) -> Response:
    text = json.dumps(body).encode()
    headers = Headers(
        {"Content-Type": "application/json", "Content-Length": str(len(text)), "Connection": "close"}
    )
    return Response(status.value, status.phrase, headers, text)


@contextmanager
def speaking(engine: ScriptedDuplex) -> Iterator[ScriptedDuplex]:
    with serve(engine.handle, "127.0.0.1", 0, process_request=engine.http, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        engine.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        try:
            yield engine
        finally:
            engine.ended.set()
            server.shutdown()
            thread.join(10)
