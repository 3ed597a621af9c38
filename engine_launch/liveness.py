"""Is an engine alive? Judged by a real answer in time: ``/health`` is 200 for engines that answer nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from engine_launch.client import EngineHttp, NoAnswer, Unreachable, metric_total

_PROGRESS = ("vllm:iteration_tokens_total_count", "vllm:generation_tokens_total", "vllm:prompt_tokens_total")


class Liveness(StrEnum):
    """ALIVE: answered as expected. SLOW: answered late, or busy and moving. WEDGED: accepts requests and
    does nothing. DEAD: not there, or says itself that its core is gone."""

    ALIVE = "alive"
    SLOW = "slow"
    WEDGED = "wedged"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Probe:
    """:param seconds: until the answer, None without one; :param detail: why, in a few words"""

    liveness: Liveness
    seconds: float | None
    detail: str


def probe(
    url: str,
    model: str | None = None,
    *,
    expected_s: float = 2.0,
    deadline_s: float = 15.0,
    api_key: str | None = None,
) -> Probe:
    """Ask for one token.

    :param expected_s: an answer within this time is ALIVE, a later one SLOW
    :param deadline_s: without an answer by then, the engine's own counters tell SLOW from WEDGED
    """
    with EngineHttp(url, api_key=api_key, deadline_s=deadline_s) as engine:
        before: float | None = None
        try:
            name = model or next((str(card["id"]) for card in engine.models()), None)
            if name is None:
                return Probe(Liveness.DEAD, None, "it serves no model")
            before = _work_done(engine)
            reply = engine.chat(name, [{"role": "user", "content": "."}])
        except Unreachable as error:
            return Probe(Liveness.DEAD, None, f"unreachable: {error}")
        except NoAnswer:
            return _without_answer(engine, deadline_s, before)
        if reply.status < 500:
            late = reply.seconds > expected_s
            detail = "a real answer" if reply.status == 200 else f"refused: {reply.error}"
            return Probe(Liveness.SLOW if late else Liveness.ALIVE, reply.seconds, detail)
        return _after_fault(engine, reply.error)


def _work_done(engine: EngineHttp) -> float:
    metrics = engine.metrics()
    return sum(metric_total(metrics, name) for name in _PROGRESS)


def _without_answer(engine: EngineHttp, deadline_s: float, before: float | None) -> Probe:
    try:
        if before is not None and _work_done(engine) > before:
            return Probe(
                Liveness.SLOW, None, f"no answer in {deadline_s:g} s, but it works on other requests"
            )
    except Unreachable as error:
        return Probe(Liveness.DEAD, None, f"went away: {error}")
    except NoAnswer:
        pass
    return Probe(Liveness.WEDGED, None, f"accepts requests, no answer and no work done in {deadline_s:g} s")


def _after_fault(engine: EngineHttp, error: str) -> Probe:
    """A 5xx for the simplest request: the front end may outlive its core for a moment."""
    try:
        healthy = engine.send("GET", "/health").status == 200
    except (Unreachable, NoAnswer):
        healthy = False
    state = Liveness.WEDGED if healthy else Liveness.DEAD
    return Probe(state, None, f"answers with an error: {error}")
