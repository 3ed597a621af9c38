"""Records of a data set's files, each with its place, and what readers share in taking them apart."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from evals.readers.clip import Clip
from evals.readers.jsonl import DatasetError, invalid

T = TypeVar("T")

LARGEST_FILE = 512 * 1024 * 1024
"""An annotation file beyond this is something else."""


@dataclass(frozen=True, slots=True)
class Record:
    """One annotated object. ``number``: its line, or its place in a JSON list, from 1."""

    file: str
    number: int
    value: Mapping[str, Any]

    def wrong(self, field: str, problem: str) -> DatasetError:
        return DatasetError(self.file, self.number, field, problem)

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of these fields that is there, as text. Raises ``DatasetError``."""
        for name in names:
            value = self.value.get(name)
            if isinstance(value, str) and value.strip():
                return value.strip()
            if isinstance(value, int | float) and not isinstance(value, bool):
                return f"{value:g}"
        if default is not None:
            return default
        raise self.wrong(names[0], "is missing or empty; expected text")

    def seconds(self, *names: str) -> float | None:
        """The first of these fields that holds a number of seconds, or text that is one."""
        for name in names:
            if (found := to_seconds(self.value.get(name))) is not None:
                return found
        return None

    def list_of(self, name: str) -> Sequence[Any]:
        value = self.value.get(name)
        if not isinstance(value, list):
            raise self.wrong(name, "expected a list")
        return value

    @contextmanager
    def checked(self) -> Iterator[None]:
        """What is made of this record in here and doesn't hold together is a ``DatasetError``."""
        try:
            yield
        except ValidationError as error:
            found = invalid(error, self.file, self.number)
            made = [] if error.title == Clip.__name__ else [error.title.lower()]
            raise self.wrong(
                ".".join([*made, *([found.field] if found.field else [])]), found.problem
            ) from error


def read_records(path: Path, name: str) -> Iterator[Record]:
    """Objects of a JSONL file, or of a JSON file: a list, one object, or an object with a list in ``data``.

    :param name: what the file is called in errors
    :raises DatasetError: it can't be read, or holds something else
    """
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise DatasetError(name, None, "", "is too large for a file of annotations")
        raw = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DatasetError(name, None, "", error.strerror or str(error)) from error
    values: Sequence[Any]
    if path.suffix == ".jsonl":
        lines = [(n, line) for n, line in enumerate(raw.splitlines(), 1) if line.strip()]
        lines = [(n, line) for n, line in lines if not line.lstrip().startswith(b"#")]
        for number, line in lines:
            yield _record(name, number, _loads(line, name, number))
        return
    whole = _loads(raw, name, None)
    if isinstance(whole, Mapping):
        inner = whole.get("data", whole.get("samples"))
        values = inner if isinstance(inner, list) else [whole]
    else:
        values = whole if isinstance(whole, list) else [whole]
    for number, value in enumerate(values, 1):
        yield _record(name, number, value)


def _record(file: str, number: int, value: Any) -> Record:
    if not isinstance(value, Mapping):
        raise DatasetError(file, number, "", "expected an object")
    return Record(file, number, value)


def _loads(raw: bytes, file: str, number: int | None) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise DatasetError(file, number, "", f"no JSON: {error}") from error


def to_seconds(value: Any) -> float | None:
    """Seconds of a number, of text that is one, or of ``hh:mm:ss``; ``None`` where it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    if not isinstance(value, str):
        return None
    parts = value.strip().strip("[]").split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        return None
    seconds = 0.0
    for number in numbers:
        seconds = seconds * 60 + number
    return seconds if math.isfinite(seconds) else None


def clip_id(*parts: object) -> str:
    """An id that may name a folder, of the parts that tell a clip from others."""
    joined = "-".join(str(part) for part in parts)
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", joined).strip("._-")
    return safe[:150] or "clip"


def lanes(items: Sequence[T], span: Callable[[T], tuple[float, float]]) -> list[list[T]]:
    """Items in as few rows as need be, so that in a row none begins before the one ahead of it is over.

    One stream has one standing query: what is asked at the same time needs a stream of its own.
    """
    rows: list[list[T]] = []
    for item in sorted(items, key=lambda one: span(one)):
        start = span(item)[0]
        row = next((row for row in rows if span(row[-1])[1] <= start), None)
        if row is None:
            rows.append([item])
        else:
            row.append(item)
    return rows
