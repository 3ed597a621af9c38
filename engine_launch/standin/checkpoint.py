"""Build the stand-in checkpoint in the cache, once per recipe."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine_launch.atomic import Progress, build_once, silent
from engine_launch.builder import run_builder
from engine_launch.paths import PACKAGE, cache_dir
from engine_launch.standin.files import SMALLEST_PICTURE, processors, tokenizer_config
from engine_launch.standin.program import NEVER, compile_script, pieces_by_line
from engine_launch.standin.script import ROLLUP_CUE, SUMMARY_CUE, Script, default_script

BUILDER = PACKAGE / "standin" / "build.py"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Shape of the language model. The defaults give about 4 MB; ``head_dim`` must suit CPU attention."""

    trained_vocab: int = 3200
    hidden: int = 192
    layers: int = 2
    head_dim: int = 64
    positions: int = 262144


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything a checkpoint follows from."""

    script: Script = field(default_factory=default_script)
    sizes: Sizes = field(default_factory=Sizes)

    def program(self) -> Mapping[str, Any]:
        """The JSON that ``build.py`` reads. Raises ``ScriptError``."""
        compiled = compile_script(self.script)
        template = (PACKAGE / "standin" / "chat_template.jinja").read_text()
        template = template.replace("@SUMMARY_CUE@", SUMMARY_CUE).replace("@ROLLUP_CUE@", ROLLUP_CUE)
        config = tokenizer_config(template, self.sizes.positions)
        return {
            "pieces": compiled.pieces,
            "edges": compiled.edges,
            "lines": pieces_by_line(self.script),
            "never": NEVER,
            "tags": self.script.tags,
            "single_token_tags": self.script.single_token_tags,
            "sizes": asdict(self.sizes),
            "chat_template": template,
            "files": {"tokenizer_config.json": config, **processors(SMALLEST_PICTURE)},
        }


def build_checkpoint(
    python: Path, env: Mapping[str, str], recipe: Recipe, progress: Progress = silent
) -> Path:
    """Folder of the checkpoint, built with the engine's ``python`` if the cache doesn't have it.

    :param env: the environment the engine itself runs in (it carries the CPU workaround where needed)
    """
    program = json.dumps(recipe.program(), sort_keys=True)
    digest = hashlib.sha256(program.encode() + BUILDER.read_bytes()).hexdigest()[:16]

    def build(folder: Path) -> None:
        progress("building the stand-in model", "a tiny checkpoint with programmed weights")
        folder.mkdir()
        program_file = folder / "program.json"
        program_file.write_text(program)
        command = [str(python), str(BUILDER), str(program_file), str(folder)]
        run_builder("the stand-in model", command, env)

    return build_once(
        cache_dir() / "models" / f"standin-{digest}", build, progress, "building the stand-in model"
    )
