"""The live window: one frozen head and the answered turns after it, append-only until the next switch."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from memory.open_turn import Note, Waiting
from memory.plan import FrameRef, Head, Image, Part, Plan, Text, Turn


@dataclass(frozen=True, slots=True)
class WindowTurn:
    """An answered turn. ``seq`` counts answered turns of the session; ``tokens`` is counted or estimated."""

    seq: int
    turn: Turn
    frames: tuple[Waiting, ...]
    notes: tuple[Note, ...]
    media_time_ms: int
    tokens: int


def frame_count(turns: Sequence[WindowTurn]) -> int:
    return sum(len(turn.frames) for turn in turns)


def token_count(turns: Sequence[WindowTurn]) -> int:
    return sum(turn.tokens for turn in turns)


def first_frame(turns: Sequence[WindowTurn]) -> FrameRef | None:
    return next((turn.frames[0].ref for turn in turns if turn.frames), None)


def newest(turns: Sequence[WindowTurn], frames: int, tokens: int) -> Sequence[WindowTurn]:
    """The longest tail of ``turns`` within both bounds."""
    start = len(turns)
    while start > 0:
        frames -= len(turns[start - 1].frames)
        tokens -= turns[start - 1].tokens
        if frames < 0 or tokens < 0:
            break
        start -= 1
    return turns[start:]


def user_parts(notes: Sequence[Note], tags: Sequence[str], frames: Sequence[FrameRef]) -> tuple[Part, ...]:
    """Notes, one a line, then the time tag and the pictures (or one tag before each picture)."""
    parts: list[Part] = [Text(note.text + "\n") for note in notes]
    if len(tags) == len(frames) > 1:
        for tag, frame in zip(tags, frames, strict=True):
            parts += (Text(tag), Image(frame))
    else:
        parts.append(Text(tags[0]))
        parts += (Image(frame) for frame in frames)
    return tuple(parts)


class Window:
    """Turns on a head.

    ``frames``: pictures of all turns; ``anchor``: tokens of head and turns as last counted by the engine
    """

    def __init__(self, index: int, head: Head, head_tokens: int, turns: Sequence[WindowTurn] = ()) -> None:
        self.index = index
        self.head = head
        self.head_tokens = head_tokens
        self.turns = list(turns)
        self.frames = frame_count(turns)
        self.anchor: int | None = None
        self.after_anchor = 0

    @property
    def tokens(self) -> int:
        """Tokens of head and answered turns: counted as far as the engine has, then estimated."""
        if self.anchor is not None:
            return self.anchor + self.after_anchor
        return self.head_tokens + token_count(self.turns)

    @property
    def before_turns(self) -> int:
        """Tokens of the head: what the engine counted less the turns, or as it was thought of."""
        return max(0, self.tokens - token_count(self.turns))

    def first_seq(self, otherwise: int) -> int:
        return self.turns[0].seq if self.turns else otherwise

    def append(self, turn: WindowTurn, counted: int | None) -> None:
        """Add an answered turn. ``counted``: prompt and answer tokens as the engine counted them."""
        self.turns.append(turn)
        self.frames += len(turn.frames)
        if counted is not None:
            self.anchor, self.after_anchor = counted, 0
        else:
            self.after_anchor += turn.tokens

    def since(self, seq: int) -> list[WindowTurn]:
        """The turns from ``seq`` on."""
        return self.turns[bisect_left(self.turns, seq, key=lambda turn: turn.seq) :]

    def plan(self, open_turn: Turn | None, continue_with: str | None = None) -> Plan:
        return Plan(self.index, self.head, tuple(t.turn for t in self.turns), open_turn, continue_with)
