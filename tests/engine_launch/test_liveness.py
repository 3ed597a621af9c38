"""Alive, slow, wedged and dead are told apart by a real answer in time; /health says 200 in all of these."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from engine_launch.liveness import Liveness, probe
from tests.engine_launch.real_engine import free_port
from tests.engine_launch.scripted_engine import SILENT, Answer, ScriptedEngine, refusal, serving


@pytest.fixture
def engine() -> Iterator[ScriptedEngine]:
    scripted = ScriptedEngine()
    with serving(scripted):
        yield scripted


def mute(_: dict[str, Any]) -> Answer:
    return SILENT


def test_an_answer_in_time_is_alive_and_a_late_one_slow(engine: ScriptedEngine) -> None:
    assert probe(engine.url, expected_s=60.0).liveness is Liveness.ALIVE
    late = probe(engine.url, "m", expected_s=0.0)
    assert late.liveness is Liveness.SLOW and late.seconds is not None


def test_no_answer_and_no_work_done_is_wedged(engine: ScriptedEngine) -> None:
    engine.routes["/v1/chat/completions"] = mute
    assert probe(engine.url, deadline_s=0.3).liveness is Liveness.WEDGED


def test_no_answer_while_other_work_goes_on_is_slow(engine: ScriptedEngine) -> None:
    steps = count(1)
    engine.routes["/v1/chat/completions"] = mute
    engine.routes["/metrics"] = lambda _: (200, f'vllm:generation_tokens_total{{m="x"}} {next(steps)}.0\n')
    assert probe(engine.url, deadline_s=3.0).liveness is Liveness.SLOW


@pytest.mark.parametrize("path", ["/v1/models", "/metrics"])
def test_a_front_end_that_hangs_is_wedged(engine: ScriptedEngine, path: str) -> None:
    engine.routes[path] = mute
    engine.routes["/v1/chat/completions"] = mute
    assert probe(engine.url, deadline_s=0.3).liveness is Liveness.WEDGED


@pytest.mark.parametrize(("health", "state"), [(503, Liveness.DEAD), (200, Liveness.WEDGED)])
def test_a_front_end_that_outlives_its_core(engine: ScriptedEngine, health: int, state: Liveness) -> None:
    engine.routes["/v1/chat/completions"] = lambda _: (500, {"error": {"message": "EngineDeadError"}})
    engine.routes["/health"] = lambda _: (health, {})
    found = probe(engine.url)
    assert found.liveness is state and "EngineDeadError" in found.detail


def test_nobody_there_is_dead() -> None:
    assert probe(f"http://127.0.0.1:{free_port()}").liveness is Liveness.DEAD


def test_a_refusal_is_an_answer(engine: ScriptedEngine) -> None:
    engine.routes["/v1/chat/completions"] = lambda _: refusal("wrong key")
    found = probe(engine.url)
    assert found.liveness is Liveness.ALIVE and "wrong key" in found.detail
