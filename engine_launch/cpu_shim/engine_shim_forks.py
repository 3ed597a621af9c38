"""Child processes that have imported the engine already.

vLLM starts its core as a fresh interpreter, which imports for as long as the process that starts it did
before. Here both import at once: a fork server loads the modules beside the first process, and what that one
then asks for as a fresh interpreter is a fork of the server instead, with the environment of its parent.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from multiprocessing import context, forkserver
from typing import Any


class Forked(context.ForkServerProcess):
    """A fork has the environment that its server began with; its parent has changed its own since."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._environment = dict(os.environ)

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class Forking(context.ForkServerContext):
    Process = Forked


def begin(modules: Sequence[str]) -> None:
    """Start the server; from now on ``get_context("spawn")`` means it. Missing modules don't matter."""
    get_context = multiprocessing.get_context
    forks = Forking()

    def context_of(method: str | None = None) -> Any:
        return forks if method == "spawn" else get_context(method)

    multiprocessing.set_forkserver_preload(list(modules))
    forkserver.ensure_running()
    multiprocessing.get_context = context_of
