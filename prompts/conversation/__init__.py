"""How a model is told what was said before: phrases and requests in each language, as immutable data."""

from __future__ import annotations

import string
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prompts.loader import PackError

_HERE = Path(__file__).parent
_SPAN = frozenset({"start", "end", "language", "target"})
PHRASES: Mapping[str, frozenset[str]] = {
    "header": frozenset({"now"}),
    "notice": frozenset(),
    "earlier": frozenset(),
    "recent": frozenset(),
    "user": frozenset({"time", "text"}),
    "model": frozenset({"time", "text"}),
    "interrupted": frozenset({"time", "text"}),
    "frames": frozenset({"time", "count"}),
    "seen": frozenset({"time", "count", "text"}),
    "looked_up": frozenset({"time", "text"}),
    "failed": frozenset({"time", "text"}),
    "tool": frozenset(),
    "tool_question": frozenset(),
    "question": frozenset(),
    "passage": frozenset({"start", "end", "text"}),
    "left_out": frozenset({"count"}),
    "forgotten": frozenset({"time"}),
    "untranscribed": frozenset(),
    "footer": frozenset(),
}
REQUESTS = ("summary", "rollup", "pictures")
NAMES: Mapping[str, str] = {"en": "English", "zh": "中文"}


@dataclass(frozen=True, slots=True)
class Telling:
    """One language.

    :param texts: the phrases of ``PHRASES``
    :param summary, rollup, pictures: requests to a summarizer, with fields start, end, language and target
    :param solver: what is wanted of a solver, with language and target
    """

    language: str
    texts: Mapping[str, str]
    summary: str
    rollup: str
    pictures: str
    solver: str

    def line(self, name: str, /, **fields: str) -> str:
        return self.texts[name].format(**fields)


def telling_languages() -> tuple[str, ...]:
    return tuple(sorted(path.name.split(".")[1] for path in _HERE.glob("phrases.*.toml")))


@cache
def telling(language: str) -> Telling:
    """Raises ``PackError`` for a language that does not ship, or files that are wrong."""
    if language not in telling_languages():
        known = ", ".join(telling_languages())
        raise PackError(f"a conversation can't be told in {language!r}; known: {known}")
    texts = tomllib.loads(_text(f"phrases.{language}.toml"))
    if texts.keys() != PHRASES.keys():
        raise PackError(
            f"phrases.{language}.toml: missing or unknown: {sorted(texts.keys() ^ PHRASES.keys())}"
        )
    for name, fields in PHRASES.items():
        _check(f"phrases.{language}.toml: {name}", texts[name], fields)
    requests = {name: _text(f"{name}.{language}.txt").strip() for name in REQUESTS}
    for name, request in requests.items():
        _check(f"{name}.{language}.txt", request, _SPAN)
    solver = _text(f"solver.{language}.txt").strip()
    _check(f"solver.{language}.txt", solver, frozenset({"language", "target"}))
    return Telling(language, texts, **requests, solver=solver)


def _text(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _check(where: str, text: str, fields: frozenset[str]) -> None:
    used = {field for _, field, _, _ in string.Formatter().parse(text) if field is not None}
    if used != fields:
        raise PackError(f"{where}: fields in braces that are missing or not allowed: {sorted(used ^ fields)}")
