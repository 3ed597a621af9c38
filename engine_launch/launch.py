"""From a profile to an engine that has answered a real request."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine_launch import supervisor
from engine_launch.atomic import Progress, locked, silent
from engine_launch.client import EngineHttp, NoAnswer, Unreachable, image_part
from engine_launch.duplex_spec import DuplexSpec
from engine_launch.duplex_trial import probe_duplex
from engine_launch.errors import CheckpointError, LaunchError, NotRunning, ProfileError
from engine_launch.liveness import Liveness, Probe, probe
from engine_launch.paths import PACKAGE, cache_dir, run_dir
from engine_launch.profile import ImageCache, Profile, require_gpus
from engine_launch.standin.checkpoint import Recipe, build_checkpoint
from engine_launch.supervisor import Running
from engine_launch.textmodel.checkpoint import build_text_model
from engine_launch.venv import EngineVenv, engine_venv

MIB = 1024 * 1024
SHM = Path("/dev/shm")
STOP_S = 20.0
WATCH_EVERY_S, WATCH_DEADLINE_S, WATCH_MISSES = 20.0, 30.0, 3


WARM_UP_PARAMS: Mapping[str, Any] = {
    "max_tokens": 4,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 20,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.5,
    "seed": 1,
    "logprobs": True,
    "top_logprobs": 20,
}
"""Every step of a session's sampling: the first use of each takes seconds on a CPU, and a tick's deadline."""


def up(
    profile: Profile,
    *,
    name: str | None = None,
    host: str = "127.0.0.1",
    port: int | None = None,
    recipe: Recipe | None = None,
    environment: Mapping[str, str] | None = None,
    duplex: DuplexSpec | None = None,
    progress: Progress = silent,
) -> Running:
    """Start the engine of ``profile``, or hand back the one that runs already with the same settings.

    :param name: under which it is kept and found again; the profile's name by default
    :param recipe: another stand-in than the default one (profiles with a builder only)
    :param environment: on top of the profile's, for the engine alone
    :param duplex: what the native profile of the family says; a full-duplex engine can't do without
    Raises a :class:`LaunchError`; whatever it had started is stopped then.
    """
    if profile.duplex and duplex is None:
        raise ProfileError(
            f"{profile.title} is a full-duplex engine, and {profile.family} has no native profile"
        )
    require_gpus(profile)
    name = name or profile.name
    port = port or profile.port
    with locked(run_dir() / f"{name}.lock", lambda: progress("waiting", f"another start of {name}")):
        venv = engine_venv(profile.engine, progress)
        env = _environment(venv, profile, environment or {})
        model = _model(venv, env, profile, recipe or Recipe(), progress)
        cache, mib = _image_cache(profile.image_cache, progress)
        command = _command(venv, profile, model, host, port, cache, mib)
        digest = _digest(command, {**profile.environment, **(environment or {})}, profile)
        running = supervisor.find(name)
        if running is not None:
            if running.digest == digest and still_answers(running, duplex):
                progress("ready", f"{name} runs already")
                return running
            if running.digest != digest and running.alive():
                raise LaunchError(
                    f"{running.profile} runs already at {running.url} with other settings",
                    f"Stop it first: vigil engine down {name}",
                )
            progress("stopping", f"an engine called {name} that no longer answers")
            supervisor.stop(running, profile.deadlines.stop_s)
        supervisor.require_free_port(host, port)
        log = supervisor.log_file(name)
        pid, started = supervisor.spawn(command, {**env, **venv.head_start}, log)
        running = Running(
            name=name,
            profile=profile.title,
            family=profile.family,
            pid=pid,
            started=started,
            url=f"http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port}",
            model=profile.model.served_name,
            version=venv.version,
            digest=digest,
            image_cache=cache,
            image_cache_bytes=mib * MIB,
            priority=profile.priority,
            log=str(log),
            duplex=profile.duplex,
        )
        supervisor.remember(running)
        try:
            supervisor.wait_until_listening(running, profile.deadlines.boot_s, progress)
            if duplex is not None:
                warm_up_duplex(running, duplex, profile.deadlines.warmup_s, progress)
            else:
                warm_up(running, profile.deadlines.warmup_s, progress)
        except BaseException:
            supervisor.stop(running, profile.deadlines.stop_s)
            raise
    return running


def still_answers(running: Running, duplex: DuplexSpec | None = None) -> bool:
    """Whether a real request is answered, or others are: a busy engine is not given up."""
    return _probe(running, duplex, WATCH_DEADLINE_S).liveness in (Liveness.ALIVE, Liveness.SLOW)


def _probe(running: Running, duplex: DuplexSpec | None, deadline_s: float) -> Probe:
    """An answer by the deadline is no late one here: nothing is done about a slow engine."""
    url, model = running.url, running.model
    if duplex is not None:
        return probe_duplex(url, model, duplex, expected_s=deadline_s, deadline_s=deadline_s)
    return probe(url, model, expected_s=deadline_s, deadline_s=deadline_s)


def down(name: str, stop_s: float = STOP_S) -> Running:
    """Stop the engine of that name and all its processes. Raises :class:`NotRunning`."""
    running = supervisor.find(name)
    if running is None:
        others = ", ".join(other.name for other in supervisor.running_engines()) or "none"
        raise NotRunning(f"no engine called {name} runs", f"Running engines: {others}.")
    supervisor.stop(running, stop_s)
    return running


def watch(
    running: Running,
    duplex: DuplexSpec | None = None,
    *,
    every_s: float = WATCH_EVERY_S,
    deadline_s: float = WATCH_DEADLINE_S,
) -> str:
    """Block until the engine is dead, or wedged several times in a row; returns what was seen.

    A slow engine is left alone: it works. A full-duplex one is asked for a place of its own each time, and
    counts as alive when it has none left.
    """
    misses = 0
    while True:
        until = time.monotonic() + every_s
        while time.monotonic() < until:
            supervisor.reap(running.pid)
            if not running.alive():
                return f"{running.profile} ended"
            time.sleep(min(1.0, every_s))
        seen = _probe(running, duplex, deadline_s)
        misses = misses + 1 if seen.liveness in (Liveness.WEDGED, Liveness.DEAD) else 0
        if misses >= WATCH_MISSES:
            return f"{running.profile} is {seen.liveness}: {seen.detail}"


def warm_up(running: Running, deadline_s: float, progress: Progress = silent) -> None:
    """Real requests, text and (for a model that watches) image: the first of each kind is slow, or shows a
    broken engine.

    An engine that takes no images passes (the self-check says so); one that does not answer does not.
    """
    text, image = {"type": "text", "text": "."}, image_part(1, 224)
    requests = [("text", [text]), ("an image", [image, text])]
    until = time.monotonic() + deadline_s
    with EngineHttp(running.url) as engine:
        for what, content in requests if running.family else requests[:1]:
            progress("warming up", f"a first request with {what}")
            left = max(1.0, until - time.monotonic())
            try:
                message = {"role": "user", "content": content}
                reply = engine.chat(running.model, [message], deadline_s=left, **WARM_UP_PARAMS)
            except NoAnswer:
                raise supervisor.boot_failure(
                    running,
                    f"{running.profile} listens but did not answer a request within {deadline_s:.0f} s",
                ) from None
            except Unreachable:
                raise supervisor.boot_failure(
                    running, f"{running.profile} ended at its first request"
                ) from None
            if reply.status >= 500:
                raise supervisor.boot_failure(running, f"the first request with {what} failed: {reply.error}")


def warm_up_duplex(
    running: Running, duplex: DuplexSpec, deadline_s: float, progress: Progress = silent
) -> None:
    """One session and one answered unit. The engine lets nobody in before it has warmed itself up."""
    progress("warming up", "a first session")
    seen = probe_duplex(running.url, running.model, duplex, expected_s=deadline_s, deadline_s=deadline_s)
    if seen.seconds is None:
        what = f"{running.profile} listens, but its first session is {seen.liveness}: {seen.detail}"
        raise supervisor.boot_failure(running, what)


def _environment(venv: EngineVenv, profile: Profile, extra: Mapping[str, str]) -> dict[str, str]:
    env = venv.environment(os.environ)
    env.update(profile.environment)
    env.setdefault("VLLM_CACHE_ROOT", str(cache_dir() / "vllm"))
    env.update(extra)
    return env


def _model(
    venv: EngineVenv, env: Mapping[str, str], profile: Profile, recipe: Recipe, progress: Progress
) -> str:
    if profile.model.shipped is not None:
        return str(PACKAGE / profile.model.shipped)
    if profile.model.builder == "programmed":
        return str(build_checkpoint(venv.python, env, recipe, progress))
    if profile.model.builder == "smollm2":
        return str(build_text_model(venv, env, progress))
    if profile.model.path is None:
        raise CheckpointError(f"{profile.title} needs {profile.model.ask}", "Name it with --model FOLDER.")
    looks_local = profile.model.path.startswith((".", "/", "~"))
    path = Path(profile.model.path).expanduser()
    if looks_local and not (path / "config.json").is_file():
        raise CheckpointError(f"{path} holds no model", "Name a folder that has a config.json with --model.")
    return str(path.resolve()) if looks_local else profile.model.path


def _image_cache(wanted: ImageCache | None, progress: Progress) -> tuple[str, int]:
    """Kind and MiB of the image cache on this machine. Too little shared memory kills an engine in mid-run.

    Judged by the size of ``/dev/shm``, not by what is free, so that a second start comes to the same answer.
    """
    if wanted is None:
        return "none", 0
    if wanted.kind == "lru":
        return wanted.kind, wanted.mib
    room = shutil.disk_usage(SHM).total // MIB if SHM.is_dir() else 0
    if room >= wanted.mib:
        return wanted.kind, wanted.mib
    if wanted.fallback is None:
        raise LaunchError(
            f"/dev/shm holds {room} MiB, the image cache needs {wanted.mib}",
            f"Give it more (in a container: --shm-size {wanted.mib + 256}m), or lower image_cache.mib.",
        )
    progress("image cache", f"/dev/shm has only {room} MiB: using the {wanted.fallback} cache instead")
    return wanted.fallback, wanted.mib


def _command(
    venv: EngineVenv, profile: Profile, model: str, host: str, port: int, cache: str, mib: int
) -> list[str]:
    where = ["--served-model-name", profile.model.served_name, "--host", host, "--port", str(port)]
    if profile.duplex:
        return [
            str(venv.python),
            *("-m", "vllm_omni.entrypoints.cli.main", "serve", model, "--omni"),
            *("--deploy-config", str(profile.deploy_file)),
            *where,
            *profile.arguments(venv.version),
        ]
    images = ["--mm-processor-cache-type", cache, "--mm-processor-cache-gb", f"{mib / 1024:g}"]
    return [
        str(venv.python),
        # not `vllm serve`: that command looks for a distribution called vllm, and the CPU one isn't
        *("-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model),
        *where,
        *(images if profile.image_cache else []),
        *profile.arguments(venv.version),
    ]


def _digest(command: list[str], environment: Mapping[str, str], profile: Profile) -> str:
    stages = [profile.deploy_file.read_text()] if profile.duplex else []
    parts = [command, sorted(environment.items()), *stages]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
