"""The small model's tokenizer, and the layout of a conversation in its tokens."""

from __future__ import annotations

import json
import pydoc_data.topics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
BEFORE, PICTURE, AFTER = "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"
CONTROL = (
    PAD, START, END, "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>",
    "<|quad_start|>", "<|quad_end|>", BEFORE, AFTER, "<|vision_pad|>", PICTURE, "<|video_pad|>",
)  # fmt: skip
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
VOCABULARY = 1280
PICTURE_TOKENS, PICTURE_PLACES = 16, 4

Ints = npt.NDArray[np.int64]
Shorts = npt.NDArray[np.int16]


def train_tokenizer(texts: Iterable[str], tags: Sequence[str]) -> Tokenizer:
    """Byte-level BPE that encodes any text: the words of ``texts`` in one token each, then English prose."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [*CONTROL, *tags]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(special),
        show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator([*texts, *pydoc_data.topics.topics.values()], trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    if tokenizer.get_vocab_size(with_added_tokens=True) > VOCABULARY:
        raise ValueError("the vocabulary is too small for its words")
    return tokenizer


def conversation_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the checkpoint's chat template makes of ``messages``."""
    return "".join(f"{START}{m['role']}\n{_content(m['content'])}{END}\n" for m in messages)


def _content(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(
        part["text"] if part["type"] == "text" else f"{BEFORE}{PICTURE}{AFTER}" for part in content
    )


# Codes: what a token is to the loss.
NOTHING, SILENCE, SPEAK, WORD, NOTES = range(5)


@dataclass(frozen=True, slots=True)
class Tokens:
    """One conversation. ``codes``: for each token, what it is as a thing to be said.

    :param answers: which answer it belongs to, or -1
    :param places: ``3 x T``, positions in time, row and column
    :param pictures: index of each picture's first token; ``ticks``: of the token after each picture
    """

    ids: Shorts
    codes: npt.NDArray[np.int8]
    answers: Shorts
    places: Shorts
    pictures: Ints
    ticks: Ints


class Layout:
    """Conversations as tokens."""

    def __init__(self, tokenizer: Tokenizer, silence: str) -> None:
        self._tokenizer = tokenizer
        self.ids = {name: self._one(name) for name in CONTROL}
        self._silence = self._one(silence)
        opening = self._encode(f"{START}assistant\n")
        self._opening = opening

    def _one(self, token: str) -> int:
        (number,) = self._encode(token)
        return number

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def tokens(self, messages: Sequence[Mapping[str, Any]], weights: Sequence[float], notes: bool) -> Tokens:
        """``weights``: of each answer; one of 0 is not taught. ``notes``: they are notes, not decisions."""
        flat = np.array(self._encode(conversation_text(messages)), np.int64)
        picture = self.ids[PICTURE]
        counts = np.where(flat == picture, PICTURE_TOKENS, 1)
        starts = np.cumsum(counts) - counts
        ids = np.repeat(flat, counts)
        codes = np.zeros(len(ids), np.int8)
        owners = np.full(len(ids), -1, np.int16)
        end, size = self.ids[END], len(self._opening)
        answers = [
            i for i in np.flatnonzero(flat == self._opening[0]) if list(flat[i : i + size]) == self._opening
        ]
        if len(answers) != len(weights):
            raise ValueError("a text poses as an answer")
        for number, (at, weight) in enumerate(zip(answers, weights, strict=True)):
            stop = at + size + int(np.argmax(flat[at + size :] == end))
            if weight:
                said = slice(int(starts[at + size]), int(starts[stop]) + 1)
                owners[said] = number
                codes[said] = NOTES if notes else WORD
                if not notes:
                    codes[said.start] = SILENCE if ids[said.start] == self._silence else SPEAK
        pictures = starts[flat == picture]
        places = self._places(flat, counts).astype(np.int16)
        return Tokens(ids.astype(np.int16), codes, owners, places, pictures, pictures + PICTURE_TOKENS)

    def _places(self, flat: Ints, counts: Ints) -> Ints:
        """Text goes on by one; a picture's tokens share one time, stand in a square, and take its side."""
        steps = np.where(counts > 1, PICTURE_PLACES, 1)
        begins = np.cumsum(steps) - steps
        places = np.repeat(begins, counts)[None].repeat(3, 0)
        offset = np.arange(len(places[0])) - np.repeat(np.cumsum(counts) - counts, counts)
        many = np.repeat(counts > 1, counts)
        places[1] += np.where(many, offset // PICTURE_PLACES, 0)
        places[2] += np.where(many, offset % PICTURE_PLACES, 0)
        return places


def load_tokenizer(text: str) -> Tokenizer:
    return Tokenizer.from_str(text)


def tokenizer_text(tokenizer: Tokenizer) -> str:
    return json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
