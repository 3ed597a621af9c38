"""Start, find and stop engines: one process group each, in a session of its own, with a state file.

The state file is what ``down`` and a second ``up`` know of an engine. A process is only believed to be ours
while its pid *and* its start time match, so a reused pid is never signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from engine_launch.atomic import Progress
from engine_launch.client import EngineHttp, NoAnswer, Unreachable
from engine_launch.errors import BootFailed, PortTaken
from engine_launch.paths import run_dir
from engine_launch.remedies import remedy_for, telling_lines

TAIL_LINES, FAULT_LINES = 25, 500
POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class Running:
    """A started engine, as its state file has it.

    :param name: instance name, by which it is found again; ``profile``: the profile's title
    :param started: the process's own start time; with ``pid`` it identifies the group leader
    :param digest: of everything the engine was started with: an equal one may be reused
    :param family: None: a model of words alone
    :param image_cache: ``shm`` or ``lru``, as started; ``none`` for a model of words and a full-duplex one
    :param duplex: it is spoken to over one long session
    """

    name: str
    profile: str
    family: str | None
    pid: int
    started: float
    url: str
    model: str
    version: str
    digest: str
    image_cache: str
    image_cache_bytes: int
    priority: bool
    log: str
    duplex: bool = False

    def alive(self) -> bool:
        """The leader of the group is still that very process (it may be wedged: see ``liveness``)."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.started) < 1.0
            return same and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def state_file(name: str) -> Path:
    return run_dir() / f"{name}.json"


def log_file(name: str) -> Path:
    return run_dir() / f"{name}.log"


def find(name: str) -> Running | None:
    """The engine of that name if any process of it is left; a stale state file is removed."""
    path = state_file(name)
    try:
        running = Running(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None
    if running.alive() or members(running):
        return running
    path.unlink(missing_ok=True)
    return None


def running_engines() -> list[Running]:
    """Every engine started from this cache folder that is still there."""
    found = (find(path.stem) for path in sorted(run_dir().glob("*.json")))
    return [running for running in found if running is not None]


def find_by_url(url: str) -> Running | None:
    wanted = EngineHttp(url).base_url
    return next((running for running in running_engines() if running.url == wanted), None)


def remember(running: Running) -> None:
    path = state_file(running.name)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(asdict(running), indent=1))
    aside.replace(path)


def require_free_port(host: str, port: int) -> None:
    """Raises :class:`PortTaken`, naming who listens where that can be seen."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError:
            raise PortTaken(
                f"port {port} is taken by {_listener(port)}",
                "Stop that program, or choose another port with --port.",
            ) from None


def spawn(command: Sequence[str], env: Mapping[str, str], log: Path) -> tuple[int, float]:
    """Start the engine detached, output to ``log``. Returns pid and start time of the group's leader."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=run_dir(),
        )
    _CHILDREN[process.pid] = process
    return process.pid, psutil.Process(process.pid).create_time()


_CHILDREN: dict[int, subprocess.Popen[bytes]] = {}
"""Engines this very process started: they must be reaped, or they stay as zombies until it ends."""


def wait_until_listening(running: Running, deadline_s: float, progress: Progress) -> None:
    """Until ``/health`` answers. Raises :class:`BootFailed` when the engine ends or the time is up."""
    began = time.monotonic()
    with EngineHttp(running.url, deadline_s=5.0) as engine:
        while True:
            reap(running.pid)
            if not running.alive():
                raise boot_failure(running, f"{running.profile} ended while it was starting")
            try:
                if engine.send("GET", "/health").status == 200:
                    return
            except (Unreachable, NoAnswer):
                pass
            spent = time.monotonic() - began
            if spent > deadline_s:
                raise boot_failure(running, f"{running.profile} was not ready after {deadline_s:.0f} s")
            progress("starting the engine", f"{spent:.0f} s; {_last_line(Path(running.log))}")
            time.sleep(POLL_S)


def boot_failure(running: Running, message: str) -> BootFailed:
    tail = log_tail(Path(running.log), FAULT_LINES)
    return BootFailed(message, f"{remedy_for(tail)}\nWhole log: {running.log}", telling_lines(tail))


def stop(running: Running, deadline_s: float) -> None:
    """End the whole group: TERM, then KILL for what is left after ``deadline_s``. Forgets its state file.

    Shared memory that a killed engine could not give back is removed: each kill would cost an image cache.
    """
    segments = shared_memory(members(running))
    for sign, patience_s in ((signal.SIGTERM, deadline_s), (signal.SIGKILL, 10.0)):
        left = members(running)
        for process in left:
            _signal(process, sign)
        if sign == signal.SIGTERM:
            for process in left:  # a stopped process acts on TERM only once it goes on
                _signal(process, signal.SIGCONT)
        if wait_until_gone(running, patience_s):
            break
    for segment in segments:
        segment.unlink(missing_ok=True)
    reap(running.pid)
    state_file(running.name).unlink(missing_ok=True)


def members(running: Running) -> list[psutil.Process]:
    """Processes of the engine's session. Its id outlives the leader, and is not reused while one is left."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) != running.pid or process.create_time() < running.started - 1.0:
                continue
            if process.pid == running.pid and not running.alive():
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def shared_memory(processes: Sequence[psutil.Process]) -> set[Path]:
    """Segments in ``/dev/shm`` that these processes have mapped."""
    found: set[Path] = set()
    for process in processes:
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        except OSError:
            continue
        found |= {Path(word) for word in maps.split() if word.startswith("/dev/shm/")}
    return found


def _signal(process: psutil.Process, sign: signal.Signals) -> None:
    with contextlib.suppress(psutil.Error):
        process.send_signal(sign)  # psutil checks the start time again, so a reused pid is safe


def wait_until_gone(running: Running, patience_s: float) -> bool:
    """Whether every process of the engine has ended within ``patience_s``."""
    until = time.monotonic() + patience_s
    while True:
        reap(running.pid)
        if not members(running):
            return True
        if time.monotonic() > until:
            return False
        time.sleep(0.1)


def reap(pid: int) -> None:
    """Read the exit status of an engine this process started, if it has ended."""
    child = _CHILDREN.get(pid)
    if child is not None and child.poll() is not None:
        del _CHILDREN[pid]


def log_tail(path: Path, lines: int = TAIL_LINES) -> tuple[str, ...]:
    try:
        with path.open(errors="replace") as handle:
            return tuple(line.rstrip("\n")[:400] for line in deque(handle, maxlen=lines))
    except OSError:
        return ()


def _last_line(path: Path) -> str:
    tail = log_tail(path, 1)
    return tail[0][:120] if tail else ""


def _listener(port: int) -> str:
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.pid
                and tuple(connection.laddr)[1:] == (port,)
            ):
                process = psutil.Process(connection.pid)
                return f"{process.name()} (pid {process.pid})"
    except psutil.Error:
        pass
    return "another program"
