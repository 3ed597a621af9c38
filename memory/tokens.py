"""Token counts between answers: estimates that the engine's own usage corrects. They size windows and
texts and never become part of a prompt.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.plan import Image, Part, Usage

if TYPE_CHECKING:
    import tiktoken

MESSAGE_TOKENS = 5  # role marks and line ends of one message, about
IMAGE_MARKS = 2  # start and end marks around an image
_SLOW, _FAST = 0.1, 0.5  # how quickly a scale follows: down slowly, up fast, since too little is the error


def estimate(text: str) -> int:
    """A careful guess without a tokenizer: about 3.5 ASCII characters a token, one of any other."""
    if not text:
        return 0
    others = sum(1 for char in text if ord(char) > 127) if not text.isascii() else 0
    return math.ceil((len(text) - others) / 3.5 + others * 1.1)


def clip(text: str, tokens: int, scale: float = 1.0) -> str:
    """``text``, cut so that its estimate is at most ``tokens``; a cut is marked with an ellipsis."""
    text = text.strip()
    if math.ceil(estimate(text) * scale) <= tokens:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if math.ceil(estimate(text[:middle] + "…") * scale) <= tokens:
            low = middle
        else:
            high = middle - 1
    return text[:low].rstrip() + "…" if low else ""


def usage_of(data: dict[str, Any] | None) -> Usage | None:
    """The ``usage`` of a ``tick_answered`` fact: keys ``prompt``, ``completion`` and ``cached``."""
    if not data or data.get("prompt") is None:
        return None
    return Usage(int(data["prompt"]), int(data.get("completion") or 0), data.get("cached"))


class TokenMeter:
    """Estimates scaled by what the engine counted: one scale for texts, one for turns with pictures."""

    def __init__(self, tokens_per_pixel: float, text_scale: float = 1.0) -> None:
        self._per_pixel = tokens_per_pixel
        self.text_scale = text_scale
        self.turn_scale = 1.0

    def pixels(self, area: int) -> int:
        return math.ceil(area * self._per_pixel) + IMAGE_MARKS

    def text(self, text: str) -> int:
        return math.ceil(estimate(text) * self.text_scale)

    def message(self, text: str) -> int:
        return self.text(text) + MESSAGE_TOKENS

    def turn(self, parts: tuple[Part, ...], said: str, frame_tokens: int) -> int:
        """A user message and its answer. ``frame_tokens``: what its pictures cost together."""
        text = sum(estimate(part.text) for part in parts if not isinstance(part, Image))
        return math.ceil((text + frame_tokens + estimate(said) + 2 * MESSAGE_TOKENS) * self.turn_scale)

    def saw_turn(self, estimated: int, counted: int) -> None:
        """One more turn made the prompt grow by ``counted`` where ``estimated`` was foreseen."""
        self.turn_scale = _follow(self.turn_scale, estimated, counted)

    def saw_text(self, estimated: int, counted: int) -> None:
        """The same for a head."""
        self.text_scale = _follow(self.text_scale, estimated, counted)


def _follow(scale: float, estimated: int, counted: int, speed: float | None = None) -> float:
    if estimated <= 0 or counted <= 0:
        return scale
    seen = scale * counted / estimated
    speed = speed or (_FAST if seen > scale else _SLOW)
    return min(4.0, max(0.25, scale + speed * (seen - scale)))


def text_scale(encoding: tiktoken.Encoding, sample: str) -> float:
    """How many times its estimate ``sample`` really takes, for texts of its kind and language."""
    return _follow(1.0, estimate(sample), len(encoding.encode(sample, disallowed_special=())), speed=1.0)


def load_encoding(tokenizer_json: Path) -> tiktoken.Encoding:
    """A local encoding from a served model's byte-level BPE ``tokenizer.json``.

    It may split otherwise than the serving tokenizer, so counts are estimates all the same.
    Raises ``ValueError`` for a file of another kind.
    """
    import tiktoken

    data = json.loads(tokenizer_json.read_text(encoding="utf-8"))
    model = data.get("model", {})
    if model.get("type") != "BPE" or not model.get("vocab"):
        raise ValueError(f"{tokenizer_json.name}: not a BPE tokenizer")
    unmapped = {char: byte for byte, char in _byte_characters().items()}
    try:
        ranks = {bytes(unmapped[c] for c in token): rank for token, rank in model["vocab"].items()}
    except KeyError as error:
        raise ValueError(f"{tokenizer_json.name}: not a byte-level BPE tokenizer") from error
    for byte in range(256):
        ranks.setdefault(bytes([byte]), len(ranks))
    special = {t["content"]: t["id"] for t in data.get("added_tokens", ()) if t["content"]}
    taken = set(special.values())
    return tiktoken.Encoding(
        name=tokenizer_json.parent.name,
        pat_str=_split_pattern(data.get("pre_tokenizer") or {}),
        mergeable_ranks={token: rank for token, rank in ranks.items() if rank not in taken},
        special_tokens=special,
    )


def _split_pattern(pre: dict[str, Any]) -> str:
    for step in (pre, *pre.get("pretokenizers", ())):
        pattern = step.get("pattern") or {}
        if step.get("type") == "Split" and "Regex" in pattern:
            return str(pattern["Regex"])
    return r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+(?!\S)|\s+"


def _byte_characters() -> dict[int, str]:
    """The printable character that stands for each byte in byte-level vocabularies (as in GPT-2)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {byte: chr(byte) for byte in printable}
    rest = (byte for byte in range(256) if byte not in shown)
    return shown | {byte: chr(256 + i) for i, byte in enumerate(rest)}
