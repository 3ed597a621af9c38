"""An engine's prefix cache, counted in tokens: what of a plan is new to it."""

from __future__ import annotations

from collections.abc import Iterator

from memory.head import BETWEEN
from memory.plan import FrameRef, Image, Plan, Text

MARKS = 10  # characters that stand for a message's role marks


def picture_tokens(frame: FrameRef, largest: int) -> int:
    """What a picture costs where one of 512 x 512 pixels costs ``largest``."""
    return max(1, largest * frame.width * frame.height // 512**2)


class PrefixCache:
    """Remembers the last ``held`` sequences. Texts count four characters a token, pictures of 512 x 512
    pixels ``frame``."""

    def __init__(self, frame: int = 256, block: int = 16, held: int = 6) -> None:
        self._frame = frame
        self._block = block
        self._held: list[list[tuple[str, int]]] = []
        self._keep = held
        self.prefilled = 0

    def ask(self, plan: Plan, generated: str = "") -> tuple[int, int]:
        """(prompt tokens, cached tokens) of a request; its keys and its answer's are held afterwards."""
        pieces = list(self._pieces(plan))
        size = sum(weight for _, weight in pieces)
        best = max((self._shared(pieces, other) for other in self._held), default=0)
        prompt = size // 4
        cached = min(prompt - 1, best // 4) // self._block * self._block
        self.prefilled += prompt - cached
        pieces.append((generated, len(generated)))
        self._held = [*self._held, pieces][-self._keep :]
        return prompt, cached

    def forget(self) -> None:
        self._held.clear()

    @staticmethod
    def _shared(one: list[tuple[str, int]], other: list[tuple[str, int]]) -> int:
        size = min(len(one), len(other))
        low, high = 0, size
        while low < high:
            middle = (low + high + 1) // 2
            if one[low:middle] == other[low:middle]:
                low = middle
            else:
                high = middle - 1
        return sum(weight for _, weight in one[:low])

    def _pieces(self, plan: Plan) -> Iterator[tuple[str, int]]:
        yield from self._chars("S" * MARKS + plan.head.system)
        glue = "U" * MARKS + "".join(s.text + BETWEEN for s in plan.head.sections)
        turns = (*plan.turns, plan.open_turn) if plan.open_turn else plan.turns
        for turn in turns:
            yield from self._chars(glue)
            glue = "U" * MARKS
            for part in turn.user:
                if isinstance(part, Text):
                    yield from self._chars(part.text)
                else:
                    assert isinstance(part, Image)
                    yield part.frame.uuid, 4 * picture_tokens(part.frame, self._frame)
            if turn.said is not None:
                yield "A" * MARKS, MARKS
                yield turn.said, len(turn.said)
        if not turns:
            yield from self._chars(glue)
        if plan.generate:
            yield "A" * MARKS, MARKS

    @staticmethod
    def _chars(text: str) -> Iterator[tuple[str, int]]:
        """A text in pieces of one length, so that a common beginning counts."""
        return ((text[i : i + 16], len(text[i : i + 16])) for i in range(0, len(text), 16))
