"""Files of runs, written so that they are never seen half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson


def write_whole(path: Path, content: bytes) -> None:
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(content)
    draft.replace(path)


def write_json(path: Path, data: Any) -> None:
    write_whole(path, orjson.dumps(data, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS) + b"\n")
