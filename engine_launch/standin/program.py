"""Turn a script into a table of next-token logits.

The checkpoint's blocks are zeroed, so its last hidden state is the embedding of the last token and nothing
else. Each token that occurs in a script therefore needs one meaning: it may stand in one place of one line
(or at the same place of lines that begin alike). Words that occur in several places are glued to their
neighbours until the piece is unique; the tokenizer is built to keep such a piece in one token.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from engine_launch.standin.script import Line, Script

END = "<|im_end|>"
OPENINGS: Mapping[str, str] = {"decide": "\n", "summary": "\n\n", "rollup": "</think>"}
"""The last token of the generation prompt, by kind of request: this is how the kinds are told apart."""

NEVER = -30.0
"""Logit of every token that is not an alternative; no penalty or temperature in use lifts it."""

TEMPERATURE = 0.8
REPETITION_PENALTY = 1.1
"""Sampling for which the weights of a script come true (the best alternative has logit 0, which no
repetition penalty moves; the others are negative and are multiplied by it once they were seen)."""


class ScriptError(ValueError):
    """The script can't be programmed; the message says which words are in the way."""


@dataclass(frozen=True, slots=True)
class Program:
    """A script as tokens.

    :param pieces: texts that must be single tokens, longest first
    :param edges: (previous token, next token, logit)
    """

    pieces: tuple[str, ...]
    edges: tuple[tuple[str, str, float], ...]


def compile_script(script: Script) -> Program:
    """Pieces and edges of ``script``. Raises :class:`ScriptError` when two lines can't be kept apart."""
    pieces_of = pieces_by_line(script)
    weights: dict[str, dict[str, float]] = {}
    for kind, lines in _kinds(script).items():
        for line in lines:
            tokens = [OPENINGS[kind], *pieces_of[line.text], END]
            for before, after in pairwise(tokens):
                successors = weights.setdefault(before, {})
                successors[after] = successors.get(after, 0.0) + line.weight
    edges = [
        (before, after, _logit(weight / max(successors.values())))
        for before, successors in weights.items()
        for after, weight in successors.items()
    ]
    atoms = set(script.tags) if script.single_token_tags else set()
    pieces = {p for tokens in pieces_of.values() for p in tokens} - atoms
    return Program(tuple(sorted(pieces, key=lambda p: (-len(p), p))), tuple(edges))


def pieces_by_line(script: Script) -> dict[str, list[str]]:
    """How each line of ``script`` is cut into tokens. Raises :class:`ScriptError`."""
    units = {line.text: _units(line.text, script) for lines in _kinds(script).values() for line in lines}
    return {text: _glue(text, units[text], units) for text in units}


def _kinds(script: Script) -> Mapping[str, Sequence[Line]]:
    return {"decide": script.decide, "summary": script.summary, "rollup": script.rollup}


def _logit(share_of_best: float) -> float:
    return TEMPERATURE * math.log(share_of_best) / REPETITION_PENALTY


def _units(text: str, script: Script) -> list[str]:
    """The smallest pieces a line may be cut into: tags (or their two halves) and words with their space."""
    if not text:
        raise ScriptError("a line of the script is empty")
    marks = "|".join(re.escape(tag) for tag in script.tags)
    if script.single_token_tags:
        return re.findall(rf"{marks}|(?: ?(?:(?!{marks})\S)+)|\s", text)
    units: list[str] = []
    for unit in re.findall(rf" ?(?:{marks})|(?: ?(?:(?!{marks})\S)+)|\s", text):
        if unit.strip() in script.tags:
            first, rest = re.match(r"(\s*\W+)(.*)", unit, re.DOTALL).groups()  # type: ignore[union-attr]
            units += [first, rest]
        else:
            units.append(unit)
    return units


def _glue(text: str, units: Sequence[str], all_units: Mapping[str, Sequence[str]]) -> list[str]:
    """Join neighbouring units until each piece stands in one place only."""
    pieces: list[str] = []
    at = 0
    while at < len(units):
        end = at + 1
        while end < len(units) and len(_places("".join(units[at:end]), all_units)) > 1:
            end += 1
        piece = "".join(units[at:end])
        if (
            len(_places(piece, all_units)) > 1
        ):  # the line ends before its tail is unique: widen it to the left
            if not pieces:
                raise ScriptError(f"{text!r} can't be told apart from a part of another line")
            pieces[-1] += piece
        else:
            pieces.append(piece)
        at = end
    return pieces


def _places(piece: str, all_units: Mapping[str, Sequence[str]]) -> set[str]:
    """The distinct left contexts in which ``piece`` stands on unit borders, over all lines."""
    found: set[str] = set()
    for text, units in all_units.items():
        borders = {0, *_running(units)}
        for at in borders:
            if text.startswith(piece, at) and at + len(piece) in borders:
                found.add(text[:at])
    return found


def _running(units: Iterable[str]) -> Iterable[int]:
    total = 0
    for unit in units:
        total += len(unit)
        yield total
