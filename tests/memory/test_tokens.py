"""Estimates that size windows, and a local encoding for views."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.plan import FrameRef, Image, Text, Usage
from memory.tokens import TokenMeter, clip, estimate, load_encoding, text_scale, usage_of


@given(st.text(max_size=400), st.integers(0, 60))
def test_a_clipped_text_keeps_its_bound_and_its_beginning(text: str, tokens: int) -> None:
    short = clip(text, tokens)
    assert estimate(short) <= tokens
    assert text.strip().startswith(short.removesuffix("…").rstrip())


def test_a_text_within_its_bound_stays() -> None:
    assert clip("  two words ", 10) == "two words"


def test_other_scripts_cost_more() -> None:
    assert estimate("数" * 100) >= 100 > estimate("a" * 100)


def test_scales_follow_up_fast_and_down_slowly() -> None:
    meter = TokenMeter(1 / 1024)
    meter.saw_turn(100, 200)
    up = meter.turn_scale
    assert up == 1.5
    meter.saw_turn(150, 100)
    assert 1.4 < meter.turn_scale < up


@given(st.lists(st.tuples(st.integers(-5, 10**6), st.integers(-5, 10**6))))
def test_scales_stay_sane_whatever_an_engine_reports(counts: list[tuple[int, int]]) -> None:
    meter = TokenMeter(1 / 1024)
    for estimated, counted in counts:
        meter.saw_turn(estimated, counted)
        meter.saw_text(estimated, counted)
    assert 0.25 <= meter.turn_scale <= 4 and 0.25 <= meter.text_scale <= 4


def test_a_turn_counts_text_and_pictures() -> None:
    meter = TokenMeter(1 / 1024)
    frame = FrameRef("f", "u", 0, 512, 512)
    assert meter.pixels(512 * 512) == 258
    assert 258 < meter.turn((Text("<0.0 seconds>"), Image(frame)), "</silence>", 258) < 300


def test_usage() -> None:
    assert usage_of(None) is None
    assert usage_of({"completion": 3}) is None
    assert usage_of({"prompt": 10, "completion": 3, "cached": 5}) == Usage(10, 3, 5)
    assert usage_of({"prompt": 10}) == Usage(10, 0, None)


def _tokenizer(folder: Path, **model: object) -> Path:
    letters = {chr(byte): byte - 97 for byte in range(97, 123)}
    vocab = letters | {"Ġ": 26, "do": 27, "or": 28, "door": 29}
    path = folder / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "model": {"type": "BPE", "vocab": vocab} | model,
                "added_tokens": [{"id": 400, "content": "<|im_end|>"}],
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": r" ?\p{L}+|\s+|[^\s\p{L}]+"}}]},
            }
        )
    )  # fmt: skip
    return path


def test_an_encoding_from_the_models_own_file(tmp_path: Path) -> None:
    encoding = load_encoding(_tokenizer(tmp_path))
    assert encoding.encode("door") == [29]
    assert encoding.decode(encoding.encode("a door! 数")) == "a door! 数"
    assert encoding.encode("<|im_end|>", allowed_special="all") == [400]


@pytest.mark.parametrize("model", [{"type": "Unigram"}, {"vocab": {}}, {"vocab": {"数": 0}}])
def test_another_kind_of_tokenizer_is_refused(tmp_path: Path, model: dict) -> None:
    with pytest.raises(ValueError, match="BPE"):
        load_encoding(_tokenizer(tmp_path, **model))


def test_a_tokenizer_says_how_far_estimates_are_off(tmp_path: Path) -> None:
    encoding = load_encoding(_tokenizer(tmp_path))
    sample = "door " * 70
    assert text_scale(encoding, sample) == pytest.approx(len(encoding.encode(sample)) / estimate(sample))
    assert text_scale(encoding, "") == 1.0
    assert text_scale(encoding, "<|im_end|>") > 1, "what looks like a control token is text here"
