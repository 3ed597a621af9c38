"""What can go wrong when an engine is launched; each error says what to do about it.

::

    LaunchError            message, remedy, code
    |- ProfileError        no such profile, or its file is wrong
    |- NoGpu               it needs a GPU, or a larger one, or more of them
    |- VenvError           the engine's virtual environment can't be made
    |- CheckpointError     the model is missing or can't be built
    |- PortTaken           another program listens there
    |- BootFailed          the engine ended, or was not ready in time; ``log_tail`` has its last lines
    `- NotRunning          nothing of that name was started here
"""

from __future__ import annotations


class LaunchError(Exception):
    """:param message: what happened; :param remedy: what the reader can change"""

    code = "engine_launch_failed"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(f"{message}\n{remedy}" if remedy else message)
        self.message = message
        self.remedy = remedy


class ProfileError(LaunchError):
    code = "engine_profile"


class NoGpu(LaunchError):
    code = "engine_no_gpu"


class VenvError(LaunchError):
    code = "engine_venv"


class CheckpointError(LaunchError):
    code = "engine_model"


class PortTaken(LaunchError):
    code = "engine_port_taken"


class BootFailed(LaunchError):
    code = "engine_boot_failed"

    def __init__(self, message: str, remedy: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.log_tail = log_tail


class NotRunning(LaunchError):
    code = "engine_not_running"
