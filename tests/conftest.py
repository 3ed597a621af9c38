"""Fixtures that every room may use: the real engine, booted once per run.

``VIGIL_TEST_ENGINE_URL`` names an engine that runs already, in place of the one that would be booted for
``engine``; ``VIGIL_TEST_WORDS_URL`` one in place of ``words_engine``.
"""

from __future__ import annotations

import os
import signal
import zlib
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, settings

from orchestrator.engines import room
from tests.engine_launch import real_engine
from tests.engine_launch.real_engine import RealEngine

ENGINE_TEST_TIMEOUT_S = 1200
"""Of a test with an engine, its boot included (the first also builds the engine's environment)."""

PATIENT_PERIODS = 60.0
SHIPPED = room.LATE, room.RECOVERED, room.NEAR

# Speed is asserted in benches; here a busy machine must not fail a property.
settings.register_profile("vigil", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vigil")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("VIGIL_TEST_RUN", str(os.getpid()))  # xdist's workers inherit it
    # A shell's background jobs ignore it, and so would every program that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("engine") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(ENGINE_TEST_TIMEOUT_S))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # the run itself, not one of xdist's workers
        real_engine.stop_all(real_engine.run_prefix())


@pytest.fixture(scope="session", autouse=True)
def _busy_machines_admit() -> Iterator[None]:
    """Speed is for the benches: where the machine is busy, engines that are fakes are no reason to refuse a
    session. ``admits_as_shipped`` is for tests of that very thing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "LATE", PATIENT_PERIODS)
        patch.setattr(room, "RECOVERED", PATIENT_PERIODS)
        patch.setattr(room, "NEAR", PATIENT_PERIODS)
        yield


@pytest.fixture
def admits_as_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "LATE", SHIPPED[0])
    monkeypatch.setattr(room, "RECOVERED", SHIPPED[1])
    monkeypatch.setattr(room, "NEAR", SHIPPED[2])


@pytest.fixture(scope="session")
def engine() -> RealEngine:
    """The stand-in on stock vLLM: ``url``, ``model``, ``facts``, ``profile``, ``kill()``, ``restart()`` ...

    A test that kills or freezes it must bring it back: others use it after.
    """
    url = os.environ.get("VIGIL_TEST_ENGINE_URL")
    if url:
        return real_engine.at_url(url)
    real_engine.stop_orphans()
    return real_engine.boot("main")


@pytest.fixture(scope="module")
def words_engine() -> Iterator[str]:
    """URL of a small real language model on stock vLLM, served as ``smollm2``: it answers in words.

    Takes about 3.6 GB beside ``engine``, so it runs no longer than one file of tests needs it.
    """
    url = os.environ.get("VIGIL_TEST_WORDS_URL")
    if url:
        yield url
        return
    running = real_engine.boot_words()
    yield running.url
    real_engine.stop_all(running.name)


@pytest.fixture(scope="session")
def small_engine() -> Iterator[Callable[..., RealEngine]]:
    """``small_engine(context=8192, images=32)``: an engine with little room, kept until another is asked for.

    Takes what ``real_engine.boot`` takes: ``script=say("...")`` gives one that always says the same.
    """
    booted: list[tuple[str, RealEngine]] = []

    def get(**options: object) -> RealEngine:
        name = f"small-{zlib.crc32(repr(sorted(options.items())).encode())}-{os.getpid()}"
        if booted and booted[-1][0] == name:
            return booted[-1][1]
        if booted:
            real_engine.stop_all(f"{real_engine.run_prefix()}{booted.pop()[0]}")
        booted.append((name, real_engine.boot(name, **options)))  # type: ignore[arg-type]
        return booted[-1][1]

    yield get
    if booted:
        real_engine.stop_all(f"{real_engine.run_prefix()}{booted.pop()[0]}")
