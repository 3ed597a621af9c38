"""Files that are never seen half written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """What is written to it is there as the block ends; where that raises, nothing is. Raises ``OSError``."""
    draft = path.with_name(path.name + ".part")
    try:
        with draft.open("wb") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Raises ``OSError``."""
    with whole_file(path) as file:
        file.write(content)
