"""``vigil eval sweep``: the points of a grid of settings, each a run of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from orchestrator.settings import leaves

LONGEST_NAME = 200
"""Bytes of a run's folder."""


class GridError(ValueError):
    """What was to be varied can't be. The message says why."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run. ``name``: of its folder; ``changes``: settings by dotted name, as text."""

    name: str
    changes: Mapping[str, str]

    def over(self, flags: Mapping[str, Any]) -> dict[str, Any]:
        """Nested values of settings, with this point's over them."""
        nested = _copied(flags)
        for dotted, value in self.changes.items():
            *groups, leaf = dotted.split(".")
            table = nested
            for group in groups:
                table = table.setdefault(group, {})
            table[leaf] = value
        return nested


def axis_of(said: str) -> tuple[str, tuple[str, ...]]:
    """``memory.chunk_frames=50,100`` as a name and its values. Raises ``GridError``."""
    name, equals, values = said.partition("=")
    name = name.strip().replace("-", "_")
    listed = tuple(value.strip() for value in values.split(","))
    known = {".".join(path) for path, _ in leaves()}
    if not equals or not all(listed):
        raise GridError(f"{said!r} is not NAME=VALUE,VALUE")
    if name not in known:
        raise GridError(f"there is no setting {name!r}; see vigil serve --help")
    if len(set(listed)) < len(listed):
        raise GridError(f"{said!r} names a value twice")
    return name, listed


def points_of(axes: Sequence[tuple[str, tuple[str, ...]]], *, one_by_one: bool) -> list[Point]:
    """The first values of all axes first; what the others are held against.

    :param one_by_one: each further value alone, beside the first values of the other axes; else every
        combination
    """
    names = [name for name, _ in axes]
    if len(set(names)) < len(names):
        raise GridError("a setting is varied twice: name all its values at once")
    if one_by_one:
        first = tuple(values[0] for _, values in axes)
        rows = [first]
        for index, (_, values) in enumerate(axes):
            rows += [(*first[:index], value, *first[index + 1 :]) for value in values[1:]]
    else:
        rows = list(product(*(values for _, values in axes)))
    points = [Point(_name(names, row), dict(zip(names, row, strict=True))) for row in rows]
    called = [point.name for point in points]
    if twice := [name for name in called if called.count(name) > 1]:
        raise GridError(f"two runs would share the folder {twice[0]!r}: name values that differ in letters")
    if long := [name for name in called if len(name.encode()) > LONGEST_NAME]:
        raise GridError(f"{long[0][:40]!r}... is too long for a folder: name shorter values")
    return points


def _name(names: Sequence[str], values: Sequence[str]) -> str:
    """Short enough for a table and fit for a folder: ``chunk_frames=50,keep=all``."""
    short = [name.rpartition(".")[2] for name in names]
    shown = [s if short.count(s) == 1 else name for s, name in zip(short, names, strict=True)]
    told = ",".join(f"{name}={value}" for name, value in zip(shown, values, strict=True))
    return "".join(char if char.isalnum() or char in "=,._-" else "_" for char in told)


def _copied(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in table.items()}
