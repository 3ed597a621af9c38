"""The real CPU engine for tests: booted once per run, shared by its workers, stopped at its end."""

from __future__ import annotations

import os
import random
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from engine_launch import launch, supervisor
from engine_launch.atomic import locked
from engine_launch.facts import EngineFacts
from engine_launch.paths import run_dir
from engine_launch.profile import Profile, load_profile
from engine_launch.selfcheck import SelfCheck, TagSpec, self_check
from engine_launch.standin.checkpoint import Recipe
from engine_launch.standin.script import Script, default_script
from engine_launch.supervisor import Running

TAGS = TagSpec({"silence": "</silence>", "response": "</response>", "delegation": "</delegation>"})
PORTS = range(15_000, 32_000)
DEV_MODE: Mapping[str, str] = {"VLLM_SERVER_DEV_MODE": "1"}  # /reset_prefix_cache and its like


@dataclass
class RealEngine:
    """A booted engine.

    :param url: without ``/v1``; ``model``: served name; ``profile``: as started, None behind a foreign URL
    """

    url: str
    model: str
    facts: EngineFacts
    profile: Profile | None = None
    _running: Running | None = None
    _boot: Callable[[], Running] | None = field(default=None, repr=False)

    def kill(self) -> None:
        """End it at once, as a crash would: every process, no clean-up, its state file stays."""
        processes = supervisor.members(self._own())
        segments = supervisor.shared_memory(processes)
        for process in processes:
            process.kill()
        supervisor.wait_until_gone(self._own(), 20.0)
        for segment in segments:  # what a reboot would clear
            segment.unlink(missing_ok=True)

    def restart(self) -> None:
        """Start it again after :meth:`kill`, same address, empty caches. Blocks until it answers."""
        if self._boot is None:
            raise RuntimeError("this engine was not started by the tests")
        self._running = self._boot()

    def freeze(self) -> None:
        """Stop its core: it goes on accepting requests and answers none, with /health still 200."""
        self._signal_core(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_core(signal.SIGCONT)

    def self_check(self) -> SelfCheck:
        return self_check(self.url, model=self.model, tags=TAGS, launched=self._running)

    @property
    def launched(self) -> Running | None:
        """How it was started, where the tests did."""
        return self._running

    def _signal_core(self, sign: signal.Signals) -> None:
        for process in supervisor.members(self._own()):
            if process.pid != self._own().pid:
                process.send_signal(sign)

    def _own(self) -> Running:
        if self._running is None:
            raise RuntimeError("this engine was not started by the tests")
        return self._running


def at_url(url: str) -> RealEngine:
    """An engine that runs already. Its launch facts are known if this machine's launcher started it."""
    launched = supervisor.find_by_url(url)
    base = url.rstrip("/").removesuffix("/v1")
    checked = self_check(base, tags=TAGS, launched=launched)
    assert checked.facts is not None, checked.checks
    return RealEngine(base, checked.facts.model, checked.facts)


def boot(
    name: str,
    *,
    profile: str = "programmed-cpu",
    image_cache: str | None = None,
    context: int | None = None,
    images: int | None = None,
    script: Script | None = None,
    flags: Mapping[str, bool | int | str] | None = None,
) -> RealEngine:
    """Start a profile, or join the one of that name that another worker of this run started.

    :param image_cache: its kind, in place of the profile's
    :param context: tokens; ``images``: in one prompt; ``script``: what the model may say; ``flags``: others
    """
    loaded = load_profile(profile)
    if image_cache is not None:
        loaded = loaded.changed(image_cache={"kind": image_cache})
    changed: dict[str, object] = dict(flags or {})
    if context is not None:
        changed["max-model-len"] = context
    if images is not None:
        changed["limit-mm-per-prompt"] = {"image": images, "video": 0}
    if changed:
        loaded = loaded.changed(flags=changed)
    recipe = Recipe(script=script or default_script())
    instance = f"{run_prefix()}{name}"

    def start() -> Running:
        with locked(run_dir() / f"{instance}.test.lock", lambda: None):
            known = supervisor.find(instance)
            port = int(known.url.rpartition(":")[2]) if known else ports.setdefault(instance, free_port())
            return launch.up(loaded, name=instance, port=port, recipe=recipe, environment=DEV_MODE)

    ports: dict[str, int] = {}
    running = start()
    checked = self_check(running.url, model=running.model, tags=TAGS, launched=running)
    assert checked.facts is not None, checked.checks
    ports[instance] = int(running.url.rpartition(":")[2])
    return RealEngine(running.url, running.model, checked.facts, loaded, running, start)


def boot_words() -> Running:
    """Start ``text-cpu`` for this worker: ``url`` and ``model``."""
    return launch.up(load_profile("text-cpu"), name=f"{run_prefix()}words-{os.getpid()}", port=free_port())


def run_prefix() -> str:
    """Begins the name of every engine of this test run; the run's workers share it."""
    return f"test-{os.environ['VIGIL_TEST_RUN']}-"


def stop_all(prefix: str) -> None:
    """Stop the engines of one test run; forget its lock files."""
    for running in supervisor.running_engines():
        if running.name.startswith(prefix):
            supervisor.stop(running, 15.0)
    for leftover in run_dir().glob(f"{prefix}*"):
        leftover.unlink(missing_ok=True)


def stop_orphans() -> None:
    """Stop the engines of test runs that were killed before they could."""
    for running in supervisor.running_engines():
        run = running.name.split("-")
        if run[0] == "test" and len(run) > 2 and run[1].isdigit() and not psutil.pid_exists(int(run[1])):
            supervisor.stop(running, 15.0)


def free_port() -> int:
    """One below those that the system hands out by itself: no other test gets it before it is used."""
    for port in random.SystemRandom().sample(PORTS, 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("a hundred ports are taken")
