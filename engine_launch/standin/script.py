"""What the stand-in model may say: weighted lines per kind of request. Data alone."""

from __future__ import annotations

from dataclasses import dataclass

SUMMARY_CUE = "[Summary request]"
ROLLUP_CUE = "[Merge request]"


@dataclass(frozen=True, slots=True)
class Line:
    """One possible answer and its share among the answers of its kind (any positive unit)."""

    weight: float
    text: str


@dataclass(frozen=True, slots=True)
class Script:
    """Everything a checkpoint is programmed to say.

    :param decide: answers to an ordinary request
    :param summary: answers to a request whose first text begins with :data:`SUMMARY_CUE`
    :param rollup: answers to a request whose first text begins with :data:`ROLLUP_CUE`
    :param tags: marks of the grammar, kept whole when the lines are split into tokens
    :param single_token_tags: each tag is one special token, as in a model trained with action marks;
        otherwise the tags are plain text that shares its first token
    """

    decide: tuple[Line, ...]
    summary: tuple[Line, ...]
    rollup: tuple[Line, ...]
    tags: tuple[str, ...] = ("</silence>", "</response>", "</delegation>")
    single_token_tags: bool = True


# The weights keep every alternative inside top_p 0.9 at each fork, and one sentence far ahead of the
# others, so that a run repeats itself now and then.
_DECIDE = (
    Line(64, "</silence>"),
    Line(20, "</response> Something is moving in the picture now."),
    Line(4, "</response> There is a person close to the door."),
    Line(3, "</response> There is a person beside some furniture."),
    Line(3, "</response> There was a slight change of light."),
    Line(
        3, "</response> One moment, let me look that up </delegation> Which make of car fits what was shown?"
    ),
    Line(
        3, "</response> One moment, let me look that up </delegation> What do signs like these usually mean?"
    ),
)
_SUMMARY = (
    Line(
        5,
        "The camera keeps a fixed view while ordinary activity continues; one subject crosses from left to"
        " right, nothing irreversible happens, and no readable text appears before the end of this stretch.",
    ),
    Line(
        3,
        "A calm stretch with several small movements: the main subject stays near the centre, lighting"
        " remains even, colours hold, and the last state equals the first one.",
    ),
    Line(
        2,
        "People and objects come into view one after another, pause briefly, then leave again; the background"
        " never changes and the scene is handed over empty.",
    ),
)
_ROLLUP = (
    Line(
        3,
        "Taken together, the earlier minutes show one place under quiet conditions; the state at handover is"
        " an unchanged scene with a single subject still present.",
    ),
    Line(
        2,
        "Across all of these stretches the same room was watched: short visits, no lasting change, and a"
        " steady final picture.",
    ),
)


def default_script(*, single_token_tags: bool = True) -> Script:
    """About 64 % silence, 30 % speech and 6 % delegation at temperature 0.8; greedy decoding is silent."""
    return Script(_DECIDE, _SUMMARY, _ROLLUP, single_token_tags=single_token_tags)


def say(text: str, *, single_token_tags: bool = True) -> Script:
    """A model that always answers ``text``, whatever it is shown or asked."""
    only = (Line(1, text),)
    return Script(only, only, only, single_token_tags=single_token_tags)
