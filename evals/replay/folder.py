"""The files of a run: ``decisions.jsonl`` as it goes, ``summary.json`` and ``report.html`` at its end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from evals.files import whole_lines
from evals.report.render import render
from evals.report.summary import RunFacts, summarise
from evals.report.thumbs import Filmstrip
from evals.shapes import OPEN, read_shaped, row_fault
from evals.stats import COLUMNS, Row
from orchestrator.files import write_whole

DECISIONS, SUMMARY, REPORT = "decisions.jsonl", "summary.json", "report.html"


class BadRow(ValueError):
    """A line of ``decisions.jsonl`` is none. The message says which, and which key of it is wrong."""


class RunFolder:
    """Writes one run. A run killed at any point leaves whole lines; files of an earlier run are replaced."""

    def __init__(self, path: Path) -> None:
        """Create the folder and an empty ``decisions.jsonl``. Raises ``OSError`` where that can't be."""
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        for stale in (SUMMARY, REPORT):
            (path / stale).unlink(missing_ok=True)
        # Unbuffered: each line reaches the kernel in one write, so a kill can't leave half of one.
        self._decisions = (path / DECISIONS).open("wb", buffering=0)
        self._film = Filmstrip()
        self.ticks = 0

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._decisions.close()

    def add(self, record: Mapping[str, Any], picture: bytes | None) -> None:
        """Append a tick's row; ``picture`` is its newest frame, for the report."""
        row = {name: record.get(name) for name in COLUMNS}
        self._decisions.write(orjson.dumps(row, default=str) + b"\n")
        self.ticks += 1
        spoke = row["action"] in ("response", "delegate")
        self._film.add(int(row["tick"] or 0), picture, spoke=spoke)

    def finish(self, run: RunFacts) -> dict[str, Any]:
        """Write the summary and the report of all rows so far; return the summary."""
        rows = read_rows(self.path / DECISIONS)
        summary = summarise(rows, run)
        pretty = orjson.dumps(summary, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)
        write_whole(self.path / SUMMARY, pretty + b"\n")
        write_whole(self.path / REPORT, render(summary, rows, self._film.thumbs()).encode())
        return summary


def read_rows(path: Path) -> list[Row]:
    """The rows of a ``decisions.jsonl``.

    :raises BadRow: a line is damaged; the last one may be cut short, and is left out
    """
    rows: list[Row] = []
    for number, line in whole_lines(path):
        rows.append(row_of(line, f"{path}:{number}"))
    return rows


class _Summary(TypedDict):
    __pydantic_config__ = OPEN  # type: ignore[misc]

    outcome: str


_SUMMARY = TypeAdapter[Any](_Summary)


def read_summary(folder: Path) -> dict[str, Any]:
    """``summary.json`` of a folder. Raises ``BadFile``: it is none; ``OSError``: it is not there."""
    return read_shaped(folder / SUMMARY, _SUMMARY)


def row_of(line: bytes, place: str) -> Row:
    """Raises ``BadRow``, which names ``place``."""
    try:
        row: Row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise BadRow(f"{place}: no JSON: {error}") from error
    if (wrong := row_fault(row)) is not None:
        raise BadRow(f"{place}: no row of a run: {wrong}")
    return row
