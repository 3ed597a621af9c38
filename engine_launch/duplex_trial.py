"""A trial session with a full-duplex engine: is a unit answered, and how long does it take?"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine_launch.client import EngineHttp, NoAnswer, Unreachable
from engine_launch.duplex_socket import DuplexSocket, Refused, SocketGone
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.liveness import Liveness, Probe

LISTEN_MS = 4000
"""Audio given to a model that may choose to listen, before its output rate counts as not heard."""
MOMENT_S = 2.0
HEARTBEAT_S = 5.0
CLOSE_S = 10.0
FULL = "resource_exhausted"

_DECIDED = frozenset({"response.listen", "response.speak", "response.done"})
_SAID = frozenset(
    {"response.output_audio.delta", "response.output_audio_transcript.delta", "response.output_text.delta"}
)
_AUDIO = "response.output_audio.delta"


@dataclass(frozen=True, slots=True)
class Trip:
    """What came back for the units of a trial.

    :param seconds: from the first unit's last byte to the first decision or output; None: nothing came
    :param decision: ``listen`` or ``speak``, the first one
    :param output_rate_hz: as the first audio says; None when the model only listened
    :param fault: why the trial ended early, where it did
    """

    seconds: float | None
    decision: str | None = None
    output_rate_hz: int | None = None
    fault: str | None = None


def round_trip(socket: DuplexSocket, spec: DuplexSpec, deadline_s: float) -> Trip:
    """Send units at the pace of the stream until the model speaks, ``LISTEN_MS`` are over, or time is up.

    A model that answers commits gets one unit and its commit.
    """
    began = time.monotonic()
    units = 1 if spec.turns else max(1, LISTEN_MS // spec.unit_ms)
    seconds: float | None = None
    decision: str | None = None
    try:
        for number in range(units):
            socket.send(spec.append(number))
            if number == 0:
                began = time.monotonic()
            if spec.turns:
                socket.send({"type": "input_audio_buffer.commit", "final": True, "response_create": True})
            last = number == units - 1
            until = began + (number + 1) * spec.unit_ms / 1000
            if last:  # for the first sign of life until the deadline, for more of it only a moment
                until = began + deadline_s if seconds is None else time.monotonic() + MOMENT_S
            while (left := until - time.monotonic()) > 0:
                event = socket.receive(left)
                if event is None or event["type"] not in _DECIDED | _SAID:
                    continue
                if seconds is None:
                    seconds = time.monotonic() - began
                    decision = "speak" if event["type"] != "response.listen" else "listen"
                if event["type"] == _AUDIO:
                    return Trip(seconds, decision, _rate(event))
                if last and event["type"] in ("response.listen", "response.done"):
                    break
        return Trip(seconds, decision)
    except Refused as error:
        return Trip(seconds, decision, fault=f"refused: {error}")
    except SocketGone as gone:
        return Trip(seconds, decision, fault=gone.reason)


def probe_duplex(
    url: str,
    model: str,
    spec: DuplexSpec,
    *,
    expected_s: float = 5.0,
    deadline_s: float = 30.0,
    api_key: str | None = None,
) -> Probe:
    """Open a session and have one unit answered. An engine that is full is alive: others are being served.

    :param expected_s: an answer within this time is ALIVE, a later one SLOW
    """
    try:
        with DuplexSocket(url, model, api_key=api_key, deadline_s=deadline_s) as socket:
            socket.open(spec.opening(model), deadline_s)
            trip = round_trip(socket, spec, deadline_s)
            if trip.seconds is not None:
                socket.finish(CLOSE_S)
                late = trip.seconds > expected_s
                detail = f"one unit answered in {trip.seconds:.2f} s"
                return Probe(Liveness.SLOW if late else Liveness.ALIVE, trip.seconds, detail)
            return state_without_answer(socket, url, trip, deadline_s, api_key)
    except Refused as error:
        if error.code == FULL:
            return Probe(Liveness.ALIVE, None, "all its sessions are in use")
        return Probe(Liveness.ALIVE, None, f"refused: {error}")
    except Unreachable as error:
        return Probe(Liveness.DEAD, None, f"unreachable: {error}")
    except SocketGone as gone:
        return Probe(Liveness.DEAD, None, f"ended the connection: {gone.reason}")
    except NoAnswer as error:
        return Probe(Liveness.WEDGED, None, str(error))


def state_without_answer(
    socket: DuplexSocket, url: str, trip: Trip, deadline_s: float, api_key: str | None
) -> Probe:
    """Dead or wedged, where a unit was taken and nothing came back."""
    if trip.fault is None and socket.answers(HEARTBEAT_S):
        socket.finish(CLOSE_S)
        return Probe(
            Liveness.WEDGED, None, f"answers heartbeats, but no unit was answered in {deadline_s:g} s"
        )
    what = trip.fault or f"neither a unit in {deadline_s:g} s nor a heartbeat was answered"
    return Probe(Liveness.WEDGED if healthy(url, api_key) else Liveness.DEAD, None, what)


def healthy(url: str, api_key: str | None = None) -> bool:
    """Whether its front end says that its stages are there: 200 on ``/health``, for what that is worth."""
    try:
        with EngineHttp(url, api_key=api_key, deadline_s=HEARTBEAT_S) as engine:
            return engine.send("GET", "/health").status == 200
    except (Unreachable, NoAnswer):
        return False


def _rate(event: Mapping[str, Any]) -> int | None:
    rate = event.get("sample_rate_hz")
    return int(rate) if isinstance(rate, int | float) else None
