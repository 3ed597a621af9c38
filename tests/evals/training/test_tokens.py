"""The shipped tokenizer, and conversations laid out in its tokens."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine_launch.paths import PACKAGE
from engine_launch.profile import load_profile
from evals.training.examples import lesson, names, session
from evals.training.tokens import (
    CONTROL,
    NOTES,
    NOTHING,
    PICTURE,
    PICTURE_TOKENS,
    SILENCE,
    Layout,
    conversation_text,
    load_tokenizer,
)
from prompts.loader import load_pack

PACK = load_pack("standin")
CHECKPOINT = PACKAGE / str(load_profile("standin-cpu").model.shipped)
TOKENIZER = load_tokenizer((CHECKPOINT / "tokenizer.json").read_text())
LAYOUT = Layout(TOKENIZER, PACK.tags.silence)


def test_the_shipped_model_is_small_and_complete() -> None:
    assert sum(file.stat().st_size for file in CHECKPOINT.iterdir()) < 20_000_000
    config = json.loads((CHECKPOINT / "config.json").read_text())
    assert config["architectures"] == ["Qwen3VLForConditionalGeneration"]
    assert config["text_config"]["vocab_size"] == TOKENIZER.get_vocab_size(with_added_tokens=True)
    assert config["image_token_id"] == TOKENIZER.token_to_id(PICTURE)
    pictures = json.loads((CHECKPOINT / "preprocessor_config.json").read_text())
    assert pictures["size"]["shortest_edge"] == PACK.pixels.min, "the engine resizes nothing that Vigil sends"


def test_tags_and_marks_are_one_token_each() -> None:
    for text in (*PACK.tags.all, *CONTROL):
        assert len(TOKENIZER.encode(text).ids) == 1, text


@pytest.mark.parametrize("text", ["Größe — 温度 🚲", "\n\n  x\ty", "<12.0 seconds>", "12-47 red circle."])
def test_any_text_is_encoded(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids) == text


def test_what_is_to_be_said_is_marked_and_nothing_else() -> None:
    for example in session(3, PACK)[1]:
        weights = [said.weight for said in example.said]
        tokens = LAYOUT.tokens(example.messages, weights, example.kind != "window")
        for number, said in enumerate(example.said):
            own = tokens.answers == number
            taught = said.text + "<|im_end|>" if said.weight else ""
            assert TOKENIZER.decode(list(tokens.ids[own]), skip_special_tokens=False) == taught
        assert (tokens.codes[tokens.answers < 0] == NOTHING).all()
        if example.kind == "window":
            silent = sum(s.weight > 0 and s.text == PACK.tags.silence for s in example.said)
            assert (tokens.codes == SILENCE).sum() == silent
        else:
            assert set(tokens.codes[tokens.codes != NOTHING]) == {NOTES}


def test_pictures_take_their_tokens_and_their_places() -> None:
    example = session(3, PACK)[1][0]
    tokens = LAYOUT.tokens(example.messages, [said.weight for said in example.said], notes=False)
    assert len(tokens.pictures) == len(example.frames)
    plain = TOKENIZER.encode(conversation_text(example.messages)).ids
    assert len(tokens.ids) == len(plain) + (PICTURE_TOKENS - 1) * len(example.frames)
    at = int(tokens.pictures[0])
    time, row, column = tokens.places[:, at : at + PICTURE_TOKENS]
    assert (time == time[0]).all() and row.max() - time[0] == column.max() - time[0] == 3
    assert tokens.places[0, at + PICTURE_TOKENS] == time[0] + 4, "text goes on after the picture's side"
    assert (np.diff(tokens.places[0]) >= 0).all()


def test_a_lesson_labels_its_pictures() -> None:
    taught = lesson(3, PACK, LAYOUT)
    assert taught.pictures.shape[1:] == (128, 128, 3) and taught.pictures.dtype == np.uint8
    assert taught.shown.shape == (len(taught.pictures), len(names()))
    assert all(task.frames.max(initial=0) < len(taught.pictures) for task in taught.tasks)
