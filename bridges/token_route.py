"""How one engine takes prompts as token ids, and request bodies made from that. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from bridges.image_ledger import data_url

GENERATE = "/inference/v1/generate"

_SAMPLING = frozenset(
    (
        *("max_tokens", "min_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "ignore_eos"),
        *("repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias", "bad_words"),
        *("stop", "stop_token_ids", "skip_special_tokens", "spaces_between_special_tokens"),
        *("include_stop_str_in_output", "allowed_token_ids", "structured_outputs"),
    )
)
"""Parameters of a chat request that mean the same on the token route."""
_PROMPT = frozenset(("add_generation_prompt", "continue_final_message"))
_BESIDE = frozenset(("cache_salt", "priority"))
_LOGPROBS = frozenset(("logprobs", "top_logprobs"))


class Untranslatable(Exception):
    """This request can't be said in token ids. The message says why."""


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation whose ids are known: what a message adds to it are that message's ids."""

    messages: tuple[Mapping[str, Any], ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenRoute:
    """What the self-check learned of an engine's token route.

    :param kind: ``content_parts``: pictures ride along as parts; ``features``: they are registered before
    :param image_text: what stands for a picture in text, such that its ids are a picture's with one pad
    :param pad: the id that stands for a picture, once for each of its tokens in a whole prompt
    :param asked: a conversation that ends with a user's message; ``answered``: one that ends with a reply
    :param defaults: sampling that the engine's chat route uses where a request says nothing
    :param spelled: how the engine writes tokens whose logprobs matter, with their ids
    """

    kind: Literal["content_parts", "features"]
    image_text: str
    pad: int
    asked: Known
    answered: Known
    defaults: Mapping[str, Any] = field(default_factory=dict)
    spelled: Mapping[str, int] = field(default_factory=dict)

    def params(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        """A chat request's parameters as the token route's.

        :raises Untranslatable: one of them has no counterpart there
        """
        unknown = chat.keys() - _SAMPLING - _PROMPT - _BESIDE - _LOGPROBS
        if unknown:
            raise Untranslatable(f"no token route for {', '.join(sorted(unknown))}")
        sampling = {**self.defaults, **{k: v for k, v in chat.items() if k in _SAMPLING and v is not None}}
        stops = (*(chat.get("stop_token_ids") or ()), *(self.defaults.get("stop_token_ids") or ()))
        if stops:
            sampling["stop_token_ids"] = list(dict.fromkeys(stops))
        if chat.get("logprobs"):
            if not self.spelled:
                raise Untranslatable("logprobs come by text, and no token's text is known")
            sampling["logprobs"] = chat.get("top_logprobs") or 0
        return {"sampling_params": sampling, **{k: v for k, v in chat.items() if k in _BESIDE}}


@dataclass(frozen=True, slots=True)
class Piece:
    """Ids between two pictures as JSON without brackets, and how many they are."""

    ids: bytes
    tokens: int

    @classmethod
    def of(cls, ids: Sequence[int]) -> Piece:
        return cls(b",".join(b"%d" % number for number in ids), len(ids))


def collapsed(ids: Sequence[int], pad: int) -> tuple[tuple[Piece, ...], tuple[int, ...]]:
    """A whole prompt without its pictures: the pieces between them, and how many pads each picture had."""
    pieces: list[Piece] = []
    lengths: list[int] = []
    begun = at = 0
    while at < len(ids):
        if ids[at] != pad:
            at += 1
            continue
        pieces.append(Piece.of(ids[begun:at]))
        begun = at
        while at < len(ids) and ids[at] == pad:
            at += 1
        lengths.append(at - begun)
        begun = at
    return (*pieces, Piece.of(ids[begun:])), tuple(lengths)


def content_parts(
    pieces: Sequence[Piece], images: Sequence[tuple[str, bytes | None]], pad: int
) -> dict[str, Any]:
    """The prompt in a body. ``images``: uuid, and the bytes where the engine does not have them yet."""
    parts = [
        {"type": "image_url", "url": None if data is None else data_url(data), "uuid": uuid}
        for uuid, data in images
    ]
    ids = _joined(pieces, [b"%d" % pad] * len(images))
    return {"token_ids": ids, "content_parts": parts}


def features(
    pieces: Sequence[Piece], images: Sequence[str], lengths: Sequence[int], pad: int
) -> dict[str, Any]:
    """The prompt in a body, every picture registered. ``lengths``: tokens of each."""
    at = 0
    ranges = []
    for piece, length in zip(pieces, lengths, strict=False):
        at += piece.tokens
        ranges.append({"offset": at, "length": length})
        at += length
    runs = {length: b",".join([b"%d" % pad] * length) for length in set(lengths)}
    return {
        "token_ids": _joined(pieces, [runs[length] for length in lengths]),
        "features": {
            "mm_hashes": {"image": list(images)},
            "mm_placeholders": {"image": ranges},
            "kwargs_data": {"image": [None] * len(images)},
        },
    }


def _joined(pieces: Sequence[Piece], between: Sequence[bytes]) -> orjson.Fragment:
    parts: list[bytes] = []
    for index, piece in enumerate(pieces):
        if piece.tokens:
            parts.append(piece.ids)
        if index < len(between):
            parts.append(between[index])
    return orjson.Fragment(b"[" + b",".join(parts) + b"]")
