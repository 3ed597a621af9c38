"""The fake engine's tokens, chat template, prefix cache and image cache.

A token is four bytes: text is cut every ``bytes_per_token`` bytes from the start of its piece (padded with
0xff, which no UTF-8 text holds), a control token is one token, an image is a run of equal tokens made from
its identity. So appending text or turns keeps a token prefix, and a prompt is one flat ``bytes`` whose blocks
hash quickly.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 4
PAD = "<|image_pad|>"
CONTROL = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    PAD,
    "<|endoftext|>",
)


class Tokenizer:
    """``tags``: texts that are one token each, wherever they stand."""

    def __init__(self, bytes_per_token: int = 4, tags: Sequence[str] = ()) -> None:
        if not 1 <= bytes_per_token <= WIDTH:
            raise ValueError("bytes_per_token must be 1 to 4")
        self._cut = bytes_per_token
        self.special = {
            text: b"\xff\xff\xff" + bytes([n]) for n, text in enumerate((*CONTROL, *tags), start=1)
        }
        self._texts = {token: text.encode() for text, token in self.special.items()}
        self._controls = {self.special[text] for text in CONTROL}
        self._split = re.compile("(" + "|".join(re.escape(text) for text in self.special) + ")")

    def encode(self, text: str) -> bytes:
        if "<" not in text:
            return self._plain(text)
        return b"".join(
            self.special.get(piece) or self._plain(piece) for piece in self._split.split(text) if piece
        )

    def _plain(self, text: str) -> bytes:
        raw = text.encode()
        if self._cut == WIDTH:
            return raw + b"\xff" * (-len(raw) % WIDTH)
        cut = self._cut
        return b"".join(raw[at : at + cut].ljust(WIDTH, b"\xff") for at in range(0, len(raw), cut))

    def decode(self, token: bytes) -> bytes:
        """Bytes of one token; control tokens have none (``skip_special_tokens``)."""
        if token in self._controls:
            return b""
        return self._texts.get(token) or token.rstrip(b"\xff")

    def ids(self, tokens: bytes) -> list[int]:
        return [int.from_bytes(tokens[at : at + WIDTH], "big") for at in range(0, len(tokens), WIDTH)]

    def id_of(self, text: str, index: int = 0) -> int:
        """Id of one token of ``text``."""
        return self.ids(self.encode(text))[index]


@dataclass(frozen=True)
class Prompt:
    """``tokens``: with each picture's own, so that they tell prompts apart; ``shown``: with pads, as ids are
    told."""

    tokens: bytes
    continued: str
    shown: bytes

    def __len__(self) -> int:
        return len(self.tokens) // WIDTH


def template(
    tokenizer: Tokenizer, body: Mapping[str, Any], image_tokens: Callable[[Mapping[str, Any]], bytes]
) -> Prompt:
    """Render messages as the Qwen chat template does; ``image_tokens`` gives the pads of an image part."""
    start, end = tokenizer.special["<|im_start|>"], tokenizer.special["<|im_end|>"]
    seen_start, seen_end = tokenizer.special["<|vision_start|>"], tokenizer.special["<|vision_end|>"]
    newline = tokenizer.encode("\n")
    messages = body["messages"]
    last = len(messages) - 1
    open_end = bool(body.get("continue_final_message"))
    out: list[bytes] = []
    pads: dict[int, bytes] = {}
    for index, message in enumerate(messages):
        out += (start, tokenizer.encode(message["role"] + "\n"))
        content = message.get("content") or ""
        if isinstance(content, str):
            out.append(tokenizer.encode(content))
        else:
            text = ""
            for part in content:
                if part["type"] == "text":
                    text += part["text"]
                    continue
                out += (tokenizer.encode(text), seen_start, image_tokens(part), seen_end)
                pads[len(out) - 2] = tokenizer.special[PAD] * (len(out[-2]) // WIDTH)
                text = ""
            out.append(tokenizer.encode(text))
        if not (open_end and index == last):
            out += (end, newline)
    if body.get("add_generation_prompt", True) and not open_end:
        out += (start, tokenizer.encode("assistant\n"))
    continued = messages[-1].get("content") if open_end else ""
    shown = b"".join(pads.get(index, piece) for index, piece in enumerate(out))
    return Prompt(b"".join(out), continued if isinstance(continued, str) else "", shown)


class PrefixCache:
    """Blocks of KV by chained hash, least recently used first. ``None`` capacity: without end."""

    def __init__(self, block: int, capacity_tokens: int | None) -> None:
        self.block = block
        self._capacity = None if capacity_tokens is None else max(1, capacity_tokens // block)
        self._held: OrderedDict[int, None] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        return len(self._held)

    def chain(self, tokens: bytes, salt: str | None, begun: Sequence[int] = ()) -> list[int]:
        """Hashes of the full blocks of ``tokens``; ``begun``: those of its first blocks, if known."""
        size = self.block * WIDTH
        out = list(begun)
        link = out[-1] if out else hash(salt)
        for at in range(len(out) * size, len(tokens) - size + 1, size):
            link = hash((link, tokens[at : at + size]))
            out.append(link)
        return out

    def cached(self, chain: Sequence[int], prompt_tokens: int) -> int:
        """Tokens of a prompt that need no prefill: whole blocks, and never the last token."""
        most = (prompt_tokens - 1) // self.block
        found = 0
        for link in chain[:most]:
            if link not in self._held:
                break
            found += 1
        return found * self.block

    def keep(self, chain: Sequence[int]) -> None:
        """These blocks were computed or used; the tail of a prompt is dropped before its head."""
        for link in reversed(chain):
            self._held[link] = None
            self._held.move_to_end(link)
        while self._capacity is not None and len(self._held) > self._capacity:
            self._held.popitem(last=False)
            self.evicted += 1

    def clear(self) -> None:
        self._held.clear()


class ImageCache:
    """Processed images by identity: how many tokens each costs. Least recently used first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._held: OrderedDict[str, int] = OrderedDict()
        self.queries = 0
        self.hits = 0

    def __contains__(self, key: str) -> bool:
        return key in self._held

    def __len__(self) -> int:
        return len(self._held)

    def tokens(self, key: str) -> int:
        return self._held[key]

    def use(self, key: str, tokens: int) -> None:
        self.queries += 1
        self.hits += key in self._held
        self._held[key] = tokens
        self._held.move_to_end(key)
        while len(self._held) > self.capacity:
            self._held.popitem(last=False)

    def drop(self, key: str) -> None:
        self._held.pop(key, None)

    def clear(self) -> None:
        self._held.clear()


def image_pads(key: str, count: int) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=WIDTH).digest() * count
