"""The rooms keep their arrows: who may import whom, and what the pure rooms may never touch."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = ("orchestrator", "memory", "bridges", "engine_launch", "prompts", "evals")
PURE = (ROOT / "orchestrator/session", ROOT / "memory", ROOT / "orchestrator/wire")
IMPURE_MODULES = {"asyncio", "anyio", "time", "random", "secrets", "socket", "threading", "httpx", "os"}
# The engine's launch room builds models inside the engine's own venv, and training runs in one like it;
# nobody else may touch these.
ENGINE_ONLY = {"torch", "vllm", "transformers"}
MODEL_NAMES = re.compile(r"joyvl|joyai|minicpm|personaplex|nemotron|moshi|qwen|\baura\b", re.IGNORECASE)


def sources(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(p for p in folder.rglob("*.py") if "__pycache__" not in p.parts)


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0]


def test_import_contracts() -> None:
    """The contracts in pyproject.toml ([tool.importlinter]) are the arrows of ARCHITECTURE.md."""
    lint = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(lint)], cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr


def pure_files() -> list[Path]:
    rooms = [p for p in sources(*PURE) if "store" not in p.relative_to(ROOT).parts]
    return [*rooms, ROOT / "orchestrator/api/quota.py", ROOT / "orchestrator/api/origins.py"]


@pytest.mark.parametrize("path", pure_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_pure_rooms_do_no_io(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not IMPURE_MODULES & set(imported(tree))
    assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Await | ast.AsyncFor | ast.AsyncWith)]


def test_no_room_but_the_engine_launcher_imports_the_engine() -> None:
    for path in sources(*(ROOT / r for r in ROOMS)):
        found = ENGINE_ONLY & set(imported(ast.parse(path.read_text())))
        allowed = any(path.is_relative_to(ROOT / room) for room in ("engine_launch", "evals/training"))
        assert not found or allowed, (path, found)


def test_one_file_knows_how_traces_are_sent() -> None:
    """It is an extra: what imports it is imported only where somebody asks for traces."""
    for path in sources(*(ROOT / r for r in ROOMS)):
        found = "opentelemetry" in imported(ast.parse(path.read_text()))
        assert not found or path == ROOT / "bridges/traces.py", path


def test_no_code_branches_on_a_models_name() -> None:
    """Profiles and prompt packs are data; session, runtime, memory and backends never name a model."""
    folders = (ROOT / "orchestrator/session", ROOT / "orchestrator/runtime", ROOT / "orchestrator/backends")
    for path in sources(*folders, ROOT / "memory", ROOT / "bridges"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare | ast.Match):
                assert not MODEL_NAMES.search(ast.unparse(node)), (path, node.lineno)


def test_no_machine_paths_or_registry_hosts() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    wrong = re.compile(r"--(?:extra-)?index-url[ =]+http|python" + "hosted|/" + "simple/|/" + "root/")
    for name in listed:
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ".yml", ".yaml", ".cfg", ""} and path.is_file():
            text = path.read_text(encoding="utf-8", errors="ignore")
            assert not wrong.search(text), name
