"""Vigil's own format: one clip a line, the fields of ``evals.readers.clip.Clip``.

Empty lines and lines that begin with ``#`` are skipped.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from evals.readers.clip import Clip
from orchestrator.files import whole_file


class DatasetError(Exception):
    """A data set can't be read.

    :param file: which file; ``line``: from 1, where it has lines or records; ``field``: dotted path in it
    :param problem: what is wrong, and where it helps what would be right
    """

    def __init__(self, file: str, line: int | None, field: str, problem: str) -> None:
        place = ":".join([file, *([str(line)] if line is not None else [])])
        super().__init__(f"{place}: {f'{field}: ' if field else ''}{problem}")
        self.file, self.line, self.field, self.problem = file, line, field, problem


def read_clips(path: Path) -> Iterator[Clip]:
    """The clips of a file, in order.

    :raises DatasetError: with the line and the field that is wrong; also where two clips have one id
    """
    seen: dict[str, int] = {}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if not line.strip() or line.lstrip().startswith(b"#"):
                    continue
                clip = parse_clip(line, path.name, number)
                if clip.id in seen:
                    problem = f"{clip.id!r} is the id of line {seen[clip.id]} too"
                    raise DatasetError(path.name, number, "id", problem)
                seen[clip.id] = number
                yield clip
    except OSError as error:
        raise DatasetError(str(path), None, "", error.strerror or str(error)) from error


def parse_clip(line: bytes | str, file: str, number: int | None = None) -> Clip:
    """One clip. Raises ``DatasetError``, which names ``file`` and line ``number``."""
    try:
        return parse_record(orjson.loads(line), file, number)
    except orjson.JSONDecodeError as error:
        raise DatasetError(file, number, "", f"no JSON: {error}") from error


def parse_record(value: Any, file: str, number: int | None = None) -> Clip:
    """A clip from a JSON object. Raises ``DatasetError``."""
    try:
        return Clip.model_validate(value)
    except ValidationError as error:
        raise invalid(error, file, number) from error


def dump_clip(clip: Clip) -> bytes:
    """A line, without its end. What has its default value is left out, the format apart."""
    told = clip.model_dump(mode="json", exclude_defaults=True)
    return orjson.dumps({"format": clip.format, **told})


def write_clips(path: Path, clips: Iterable[Clip]) -> int:
    """Write a file of clips, whole or not at all; how many they were."""
    count = 0
    with whole_file(path) as out:
        for clip in clips:
            out.write(dump_clip(clip) + b"\n")
            count += 1
    return count


def invalid(error: ValidationError, file: str, number: int | None) -> DatasetError:
    """The first of what a validation found, as a ``DatasetError``."""
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    return DatasetError(file, number, field, first["msg"].removeprefix("Value error, "))
