"""The engines that the settings name: which are served, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from engine_launch import duplex_check as checks
from engine_launch import duplex_trial
from orchestrator.duplex_spec import duplex_for_family
from orchestrator.exits import Exit, SetupError
from orchestrator.native_setup import NativeEngines, native_family, prepare_native
from orchestrator.settings import Settings
from tests.engine_launch.real_engine import free_port
from tests.engine_launch.scripted_duplex import ScriptedDuplex, error, speaking

FAMILY = "minicpmo_4_5"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEARTBEAT_S", "MOMENT_S"):
        monkeypatch.setattr(duplex_trial, name, 0.3)
    monkeypatch.setattr(duplex_trial, "LISTEN_MS", 160)
    monkeypatch.setattr(checks, "CLOSE_S", 0.3)


@pytest.fixture
def engines() -> Iterator[list[ScriptedDuplex]]:
    """Two that fit."""
    spec = duplex_for_family(FAMILY)
    assert spec is not None
    with ExitStack() as stack:
        yield [stack.enter_context(speaking(ScriptedDuplex(spec))) for _ in range(2)]


def prepared(*targets: str, **more: Any) -> tuple[NativeEngines, list[str]]:
    told: list[str] = []
    settings = Settings(engine=",".join(targets), family=FAMILY, **more)
    return prepare_native(settings, FAMILY, told.append), told


def refused(*targets: str) -> SetupError:
    with pytest.raises(SetupError) as problem:
        prepared(*targets)
    return problem.value


def test_engines_of_one_model_are_served_together(engines: list[ScriptedDuplex]) -> None:
    urls = [engine.url for engine in engines]
    found, _ = prepared(*urls)
    assert (found.urls, found.model, found.profile.family) == (tuple(urls), "m", FAMILY)


def test_one_that_does_not_answer_is_kept_beside_one_that_does(engines: list[ScriptedDuplex]) -> None:
    away = f"http://127.0.0.1:{free_port()}"
    found, told = prepared(engines[0].url, away)
    assert found.urls == (engines[0].url, away)
    assert any(away in line and "nothing answers" in line for line in told)
    assert refused(away).code == "engine_unreachable"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("session.update", "unsupported_audio_format"),
        ("session.update", "invalid_duplex_runtime_config"),
        ("input_audio_buffer.append", "bad_event"),
    ],
)
def test_one_that_refuses_a_session_or_its_unit_is_unfit(
    engines: list[ScriptedDuplex], kind: str, code: str
) -> None:
    engines[0].answers[kind] = lambda call: [error(code)]
    problem = refused(engines[0].url, engines[1].url)
    assert (problem.code, problem.exit_code) == ("engine_unfit", Exit.MODEL_MISSING) and code in str(problem)


def test_one_whose_places_are_all_taken_fits(engines: list[ScriptedDuplex]) -> None:
    engines[0].answers["session.update"] = lambda call: [error("resource_exhausted")]
    found, told = prepared(engines[0].url)
    assert found.model == "m" and any("in use" in line for line in told)


def test_another_unit_is_unfit_and_another_model_is_none(engines: list[ScriptedDuplex]) -> None:
    engines[0].capabilities["chunk_period_ms"] = 80
    assert refused(engines[0].url).code == "engine_unfit"
    with pytest.raises(SetupError) as problem:
        prepared(engines[1].url, model="other")
    assert problem.value.code == "model_not_found"


def test_a_socket_without_a_known_family_asks_for_one(engines: list[ScriptedDuplex]) -> None:
    there, away = engines[0].url.replace("http", "ws"), f"ws://127.0.0.1:{free_port()}"
    for targets in (there, f"{away},{there}"):
        with pytest.raises(SetupError) as problem:
            native_family(Settings(engine=targets))
        assert problem.value.code == "family_required" and FAMILY in str(problem.value)
    with pytest.raises(SetupError) as problem:
        native_family(Settings(engine="ws://127.0.0.1:1", family="joyvl"))
    assert problem.value.code == "family_required"


def test_a_socket_that_is_not_there_is_told_of_before_its_family_is_asked_for() -> None:
    away = [f"ws://127.0.0.1:{free_port()}" for _ in range(2)]
    with pytest.raises(SetupError) as problem:
        native_family(Settings(engine=",".join(away)))
    assert (problem.value.code, problem.value.exit_code) == ("engine_unreachable", Exit.ENGINE_UNREACHABLE)
    assert all(f"can't reach {target}" in str(problem.value) for target in away)
