"""Why the service cannot start, and the exit codes that say so."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of ``vigil serve``; ``vigil replay`` uses the same numbers for the same things."""

    OK = 0
    FAILED = 1
    USAGE = 2
    ENGINE_UNREACHABLE = 5
    MODEL_MISSING = 6


class SetupError(Exception):
    """:param code: stable machine-readable code
    :param message: what is wrong and what to change
    """

    def __init__(self, message: str, code: str, exit_code: Exit) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.exit_code = exit_code
