"""The self-check of a full-duplex engine: a session is opened, compared with the profile, used and closed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_launch.client import EngineHttp, NoAnswer, Unreachable
from engine_launch.duplex_socket import DuplexSocket, Refused, SocketGone
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.duplex_trial import CLOSE_S, FULL, round_trip, state_without_answer
from engine_launch.facts import EngineFacts
from engine_launch.selfcheck import Check, SelfCheck, Status

LEVEL, PERIOD = "implementation_level", "chunk_period_ms"
REQUIRED, OPTIONAL = "required_input_modalities", "optional_input_modalities"
SEVERAL = "supports_multi_session"
_OWN_LINES = frozenset({LEVEL, PERIOD, REQUIRED, OPTIONAL, SEVERAL, f"{SEVERAL}_same_replica"})
_OTHER_PROFILE = "Name the profile that fits this model, or an engine that serves it in duplex mode."
_LOG = "See the engine's log; where it was started here, start it again."


@dataclass(slots=True)
class _Run:
    url: str
    spec: DuplexSpec
    api_key: str | None
    deadline_s: float
    model: str = ""
    version: str | None = None
    checks: list[Check] = field(default_factory=list)

    def note(self, name: str, status: Status, detail: str, remedy: str = "") -> None:
        self.checks.append(Check(name, status, detail, remedy))


def duplex_check(
    url: str,
    spec: DuplexSpec,
    *,
    model: str | None = None,
    api_key: str | None = None,
    deadline_s: float = 30.0,
) -> SelfCheck:
    """Check the full-duplex engine at ``url`` against its profile, with a session of its own.

    :param model: served name; the first one served when omitted
    :param deadline_s: of each wait; an engine that warms up holds new connections for minutes
    """
    run = _Run(url, spec, api_key, deadline_s)
    if not _reachable(run, model):
        return SelfCheck(None, tuple(run.checks))
    try:
        with DuplexSocket(url, run.model, api_key=api_key, deadline_s=deadline_s) as socket:
            alive = _session(run, socket)
    except Unreachable as error:
        run.note("engine", Status.FAIL, f"it takes no duplex session: {error}", _OTHER_PROFILE)
        alive = False
    except NoAnswer as error:
        run.note("engine", Status.FAIL, f"it is wedged: {error}", _LOG)
        alive = False
    return SelfCheck(EngineFacts(model=run.model, version=run.version) if alive else None, tuple(run.checks))


def _reachable(run: _Run, wanted: str | None) -> bool:
    try:
        with EngineHttp(run.url, api_key=run.api_key, deadline_s=run.deadline_s) as engine:
            served = [str(card["id"]) for card in engine.models()]
            told = engine.send("GET", "/version").json.get("version")
    except Unreachable as error:
        run.note(
            "reachable",
            Status.FAIL,
            f"nothing answers at {run.url}: {error}",
            "Start it (vigil engine up PROFILE), or correct the address.",
        )
        return False
    except NoAnswer as error:
        run.note("engine", Status.FAIL, f"it is wedged: no answer in {run.deadline_s:g} s ({error})", _LOG)
        return False
    run.note("reachable", Status.OK, run.url)
    run.version = str(told) if told else None
    if not served or (wanted is not None and wanted not in served):
        known = ", ".join(served) or "none"
        run.note("model", Status.FAIL, f"{wanted or 'a model'} is not served", f"Served models: {known}.")
        return False
    run.model = wanted or served[0]
    run.note("model", Status.OK, run.model)
    return True


def _session(run: _Run, socket: DuplexSocket) -> bool:
    """Open, compare, send, close; whether the engine gave a real answer."""
    began = time.monotonic()
    try:
        session = socket.open(run.spec.opening(run.model), run.deadline_s)
    except Refused as error:
        _refused(run, error)
        return True
    except SocketGone as gone:
        run.note("engine", Status.FAIL, f"it is dead: it ended the connection, {gone.reason}", _LOG)
        return False
    run.note("session", Status.OK, f"opened in {(time.monotonic() - began) * 1000:.0f} ms")
    found = session.get("capabilities")
    _compare(run, found if isinstance(found, Mapping) else {})
    return _unit(run, socket)


def _refused(run: _Run, error: Refused) -> None:
    if error.code == FULL:
        run.note(
            "places",
            Status.FAIL,
            f"all its sessions are in use: {error.message}",
            "Check again when one has ended, or raise max_sessions and max_num_seqs of its deploy file.",
        )
    else:
        run.note("session", Status.FAIL, f"refused with {error}", _OTHER_PROFILE)


def _compare(run: _Run, found: Mapping[str, Any]) -> None:
    wanted = run.spec.capabilities
    _line(run, "level", found.get(LEVEL), wanted.get(LEVEL), "")
    _modalities(run, found)
    _line(run, "unit", found.get(PERIOD), run.spec.unit_ms, " ms")
    several = bool(found.get(SEVERAL))
    if several or run.spec.max_sessions == 1:
        run.note(
            "sessions", Status.OK, "several at a time" if several else "one at a time, as its profile has it"
        )
    else:
        run.note(
            "sessions",
            Status.WARN,
            f"one at a time, its profile has {run.spec.max_sessions}",
            "Raise max_sessions of its deploy file, and max_num_seqs of each stage with it.",
        )
    other = [
        f"{name}: {found.get(name)!r} for {value!r}"
        for name, value in sorted(wanted.items())
        if name not in _OWN_LINES and _plain(found.get(name)) != _plain(value)
    ]
    if other:
        run.note(
            "capabilities",
            Status.WARN,
            "; ".join(other),
            "Sessions follow the engine. If it is newer than the profile, bring the profile up to date.",
        )
    else:
        run.note(
            "capabilities", Status.OK, f"the other {len(wanted) - len(_OWN_LINES)} as its profile has them"
        )


def _line(run: _Run, name: str, found: object, wanted: object, unit: str) -> None:
    if found == wanted:
        run.note(name, Status.OK, f"{found}{unit}")
    else:
        run.note(name, Status.FAIL, f"{found}{unit}, its profile has {wanted}{unit}", _OTHER_PROFILE)


def _modalities(run: _Run, found: Mapping[str, Any]) -> None:
    """An engine fits when it insists on nothing that a session may leave out, and takes all one may send."""
    required, optional = set(found.get(REQUIRED) or ()), set(found.get(OPTIONAL) or ())
    seen = f"required {_list(required)}, optional {_list(optional)}"
    mine, besides = set(run.spec.required), set(run.spec.optional)
    if required <= mine and mine | besides <= required | optional:
        run.note("modalities", Status.OK, seen)
    else:
        wanted = f"required {_list(mine)}, optional {_list(besides)}"
        run.note("modalities", Status.FAIL, f"{seen}; its profile has {wanted}", _OTHER_PROFILE)


def _unit(run: _Run, socket: DuplexSocket) -> bool:
    spec = run.spec
    trip = round_trip(socket, spec, run.deadline_s)
    if trip.seconds is None:
        if trip.fault is not None and trip.fault.startswith("refused"):
            run.note("round trip", Status.FAIL, f"a unit was {trip.fault}", _OTHER_PROFILE)
            return True
        state = state_without_answer(socket, run.url, trip, run.deadline_s, run.api_key)
        run.note("engine", Status.FAIL, f"it is {state.liveness}: {state.detail}", _LOG)
        return False
    took = f"a unit of {spec.unit_ms} ms was answered in {trip.seconds * 1000:.0f} ms: {trip.decision}"
    slow = not spec.turns and trip.seconds * 1000 > max(spec.unit_ms, 1000)
    run.note(
        "round trip",
        Status.WARN if slow else Status.OK,
        took,
        "Slower than real time: fewer sessions, a faster card, or other programs off this one."
        if slow
        else "",
    )
    if trip.fault is not None:
        run.note("engine", Status.FAIL, f"the session broke off: {trip.fault}", _LOG)
        return True
    _rates(run, trip.output_rate_hz)
    _close(run, socket)
    return True


def _rates(run: _Run, heard_hz: int | None) -> None:
    spec = run.spec
    taken = f"{spec.input_format} at {spec.input_rate_hz} Hz in"
    if heard_hz is None:
        run.note(
            "rates",
            Status.WARN,
            f"{taken}; it chose to listen, so its output was not heard",
            f"Nothing, if it speaks at {spec.output_rate_hz} Hz: a session compares that again.",
        )
    elif heard_hz != spec.output_rate_hz:
        wanted = f"its profile has {spec.output_rate_hz} Hz"
        run.note("rates", Status.FAIL, f"{taken}, {heard_hz} Hz out; {wanted}", _OTHER_PROFILE)
    else:
        run.note("rates", Status.OK, f"{taken}, {heard_hz} Hz out")


def _close(run: _Run, socket: DuplexSocket) -> None:
    began = time.monotonic()
    reason = socket.finish(CLOSE_S)
    if reason is None:
        run.note(
            "close",
            Status.FAIL,
            f"not confirmed in {CLOSE_S:g} s: its place may stay taken",
            "The engine frees it when its idle time is over; " + _LOG[0].lower() + _LOG[1:],
        )
    else:
        run.note("close", Status.OK, f"confirmed in {(time.monotonic() - began) * 1000:.0f} ms ({reason})")


def _list(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _plain(value: object) -> object:
    """Lists as sets where order says nothing."""
    return sorted(map(str, value)) if isinstance(value, list | tuple) else value
