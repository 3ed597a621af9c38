"""Scripts become tables in which every token has one meaning, or are refused."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_launch.standin.checkpoint import Recipe
from engine_launch.standin.program import END, OPENINGS, Program, ScriptError, compile_script, pieces_by_line
from engine_launch.standin.script import Line, Script, default_script, say

BOTH = pytest.mark.parametrize("single", [True, False], ids=["single-token tags", "plain tags"])


def sample(program: Program, kind: str, temperature: float, seed: int) -> str:
    """What the programmed model says: only the last token decides about the next."""
    rng = random.Random(seed)
    state, text = OPENINGS[kind], ""
    for _ in range(200):
        choices = {after: logit for before, after, logit in program.edges if before == state}
        weights = [math.exp(logit / temperature) for logit in choices.values()]
        state = rng.choices(list(choices), weights)[0]
        if state == END:
            return text
        text += state
    raise AssertionError("the model never ends")


@BOTH
@pytest.mark.parametrize("kind", ["decide", "summary", "rollup"])
def test_only_lines_of_the_script_are_said_and_by_their_weights(single: bool, kind: str) -> None:
    script = default_script(single_token_tags=single)
    program = compile_script(script)
    lines: tuple[Line, ...] = getattr(script, kind)
    said = Counter(sample(program, kind, 0.8 / 1.1, seed) for seed in range(2000))
    assert set(said) == {line.text for line in lines}
    total = sum(line.weight for line in lines)
    for line in lines:
        assert said[line.text] / 2000 == pytest.approx(line.weight / total, abs=0.035)


@BOTH
def test_the_best_alternative_has_logit_zero_and_none_is_cut_by_top_p(single: bool) -> None:
    edges = compile_script(default_script(single_token_tags=single)).edges
    for before in {edge[0] for edge in edges}:
        shares = sorted((math.exp(logit / 0.8) for b, _, logit in edges if b == before), reverse=True)
        assert shares[0] == 1.0, "neither penalty moves the best one"
        assert sum(shares[:-1]) / sum(shares) < 0.9 or len(shares) == 1, "the last alternative survives top_p"


@BOTH
def test_every_kind_ends_and_has_its_own_opening(single: bool) -> None:
    program = compile_script(default_script(single_token_tags=single))
    befores = {before for before, _, _ in program.edges}
    assert set(OPENINGS.values()) <= befores
    assert not befores & {END}


def test_tags_are_tokens_or_share_their_first_token() -> None:
    single = pieces_by_line(default_script())
    assert single["</silence>"] == ["</silence>"]
    plain = pieces_by_line(default_script(single_token_tags=False))
    assert plain["</silence>"] == ["</", "silence>"]
    assert {pieces[0] for pieces in plain.values() if pieces[0].startswith("<")} == {"</"}


@pytest.mark.parametrize(
    "text", ["yes", "yes yes it is yes.", "</response> a a a", "</silence>", "</response> 好 的"]
)
@BOTH
def test_any_text_can_be_always_said(text: str, single: bool) -> None:
    program = compile_script(say(text, single_token_tags=single))
    assert {sample(program, kind, 1.0, 1) for kind in OPENINGS} == {text}


def test_lines_that_cannot_be_told_apart_are_refused() -> None:
    lines = (Line(1, "go on"), Line(1, "</response>go on</response>"))
    with pytest.raises(ScriptError):
        compile_script(Script(lines, lines, lines))
    with pytest.raises(ScriptError, match="empty"):
        compile_script(say(""))


WORDS = st.lists(st.sampled_from(["a", "bee", "sees", "the", "red", "car."]), min_size=1, max_size=8)


@settings(max_examples=80, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=5))
def test_whatever_is_compiled_says_only_its_lines(lines: list[list[str]]) -> None:
    texts = {" ".join(words) for words in lines}
    script = Script(*(tuple(Line(1, text) for text in sorted(texts)),) * 3)
    try:
        program = compile_script(script)
    except ScriptError:
        return
    for seed in range(20):
        assert sample(program, "decide", 1.0, seed) in texts


def test_a_recipe_is_the_same_bytes_every_time() -> None:
    assert Recipe().program() == Recipe().program()
    assert Recipe().program() != Recipe(script=say("x")).program()
    assert "[Summary request]" in Recipe().program()["chat_template"]
