"""The version of this build."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def vigil_version() -> str:
    """As the distribution says; ``0.0.0`` where it is not installed."""
    try:
        return version("vigil")
    except PackageNotFoundError:
        return "0.0.0"
