"""Where the launcher keeps things: one cache folder outside any checkout."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def cache_dir() -> Path:
    """``$VIGIL_CACHE``, else ``vigil`` in the user's cache folder; created on first use."""
    named = os.environ.get("VIGIL_CACHE")
    base = (
        Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vigil"
    )
    base.mkdir(parents=True, exist_ok=True)
    return base.resolve()


def requirements_file(kind: str) -> Path:
    """Pinned requirements of an engine kind (``cpu``, ``gpu``, ``omni``), or of ``text-model``.

    Raises ``FileNotFoundError``.
    """
    path = PACKAGE.parent / "requirements" / f"engine-{kind}.txt"
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} is missing: run Vigil from its checkout (an editable install), or name an interpreter "
            "that has vLLM with VIGIL_ENGINE_PYTHON"
        )
    return path


def run_dir() -> Path:
    """State and log files of started engines."""
    path = cache_dir() / "run"
    path.mkdir(exist_ok=True)
    return path
