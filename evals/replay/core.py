"""The composition root's core as a drive needs it, and the engine behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bridges.frames import FrameBounds
from evals.replay.drive import Sampling
from evals.replay.options import ReplayError, ReplayOptions
from orchestrator.app import Core, open_core
from orchestrator.engine_setup import Engine, prepare_engine
from orchestrator.exits import Exit, SetupError
from orchestrator.native_setup import native_family
from orchestrator.settings import Settings, SettingsError, load_settings


def settings_of(options: ReplayOptions) -> Settings:
    """The settings of file and environment, with the options on top. Raises ``ReplayError``."""
    decision = {"seed": options.seed, "threshold": options.threshold}
    solver = {"name": "solver", "url": options.solver, "model": options.solver_model}
    flags: dict[str, Any] = {
        "engine": options.engine,
        "model": options.model,
        "family": options.family,
        "persona": options.persona,
        "language": options.language,
        "solvers": [solver] if options.solver else None,
        "decision": {name: value for name, value in decision.items() if value is not None} or None,
    }
    try:
        return load_settings({name: value for name, value in flags.items() if value is not None})
    except SettingsError as error:
        raise ReplayError(Exit.USAGE, "invalid_settings", str(error)) from error


@contextmanager
def engine_of(settings: Settings, tell: Callable[[str], None]) -> Iterator[Engine]:
    """The engine of the settings, checked, and stopped at the end if it was started here. Blocks.

    Outside the event loop, so that Ctrl-C ends the wait for an engine at once.
    """
    try:
        if (family := native_family(settings)) is not None:
            raise SetupError(
                f"{settings.engine} is a full-duplex engine ({family}), which is not asked tick by tick:"
                " recordings are played to it by vigil eval run, or by vigil replay --audio and --server",
                "full_duplex",
                Exit.USAGE,
            )
        engine = prepare_engine(settings, tell)
    except SetupError as error:
        raise _ended(error) from error
    try:
        yield engine
    finally:
        engine.stop()


async def open_local(settings: Settings, engine: Engine) -> Core:
    """A core that lives as long as the run. Raises ``ReplayError``."""
    try:
        return await open_core(settings, engine, durable=False)
    except SetupError as error:
        raise _ended(error) from error


def sampling_of(engine: Engine) -> Sampling:
    """What frames the engine's model takes."""
    pixels = engine.pack.pixels
    return Sampling(engine.pack.period_ms, FrameBounds(pixels.min, pixels.max, pixels.multiple))


def _ended(error: SetupError) -> ReplayError:
    return ReplayError(error.exit_code, error.code, error.message)
