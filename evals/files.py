"""Files of runs: JSON, and lines that grow as a run goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from orchestrator.files import write_whole


class BadFile(Exception):
    """A file of a run is not what it should be. The message says which, and which key of it is wrong."""


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object. Raises ``BadFile``, or ``OSError``."""
    try:
        found = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise BadFile(f"{path}: no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadFile(f"{path}: no JSON object")
    return found


def write_json(path: Path, data: Any) -> None:
    write_whole(path, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")


def whole_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number, from 1, and content of each line of a file that grows by lines.

    Whoever was killed, or had no room left, while it wrote its last one has left a piece of it without an
    end: that one was never written. Raises ``OSError``.
    """
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.endswith(b"\n"):
                yield number, line
