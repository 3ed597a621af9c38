"""How commands end: the exit codes of all of them, and why the service cannot start."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Of every command; ``MEANINGS`` says what each stands for. ``vigil engine`` imports nothing from here,
    and has the same numbers for the same things."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_SOURCE = 3
    NO_VIDEO = 4
    ENGINE_UNREACHABLE = 5
    MODEL_MISSING = 6
    NOT_STARTED = 7
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[Exit, str] = {
    Exit.OK: "all went well",
    Exit.FAILED: "it broke off, was refused, or found something wrong; files hold what there was until then",
    Exit.USAGE: "wrong flags, values, settings or keys, or nothing can be written there",
    Exit.NO_SOURCE: "a file or a stream that is to be read is not there, or can't be read",
    Exit.NO_VIDEO: "the source holds no video stream and no pictures",
    Exit.ENGINE_UNREACHABLE: "the engine or the service does not answer, or does not run",
    Exit.MODEL_MISSING: "that model is not served, or not as it has to be",
    Exit.NOT_STARTED: "the engine could not be started",
    Exit.INTERRUPTED: "interrupted (Ctrl-C); files are complete up to there",
    Exit.TERMINATED: "terminated; files are complete up to there",
}
"""As ``docs/operations.md`` has them."""


_UNREACHABLE = frozenset(
    {"connection_failed", "connection_lost", "open_timeout", "engine_unavailable", "engine_unreachable"}
    | {"engine_lost", "shutting_down", "draining"}
)
_USAGE = frozenset({"invalid_url", "invalid_api_key", "invalid_token", "token_expired"})
_NO_VIDEO = frozenset({"no_video", "unreadable", "unsupported"})


def exit_of_session(code: str) -> Exit:
    """What it means that a session could not be had, or was lost, by the code of ``ClientError``."""
    if code == "model_not_found":
        return Exit.MODEL_MISSING
    if code in _UNREACHABLE:
        return Exit.ENGINE_UNREACHABLE
    return Exit.USAGE if code in _USAGE else Exit.FAILED


def exit_of_source(code: str) -> Exit:
    """What it means that something can't be watched, by the code of ``MediaError``."""
    return Exit.NO_VIDEO if code in _NO_VIDEO else Exit.NO_SOURCE


class SetupError(Exception):
    """:param code: stable machine-readable code
    :param message: what is wrong and what to change
    """

    def __init__(self, message: str, code: str, exit_code: Exit) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.exit_code = exit_code
