"""The prompt plan: an immutable description of one request, and the wants memory may have.

::

    plan = head (frozen) + window (append-only, answered turns) + open turn (tail) + generation prompt
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class FrameRef:
    """A frame by identity. Bytes live in the frame store under ``uuid``."""

    frame_id: str
    uuid: str
    media_time_ms: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Image:
    frame: FrameRef


Part = Text | Image


@dataclass(frozen=True, slots=True)
class Section:
    """A named, frozen piece of the head: ``history`` (its header), ``long_term``, ``summaries``, ``qa`` or
    ``query``."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Head:
    """Frozen bytes for the life of a window: the system prompt and the memory sections in order.

    ``rendered``: see ``Turn``.
    """

    version: int
    system: str
    sections: tuple[Section, ...]
    rendered: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Turn:
    """One tick of the window. ``said`` is ``None`` for the open turn only.

    ``rendered``: what renderers have made of it; it never changes, nor does that.
    """

    tick: int
    user: tuple[Part, ...]
    said: str | None
    rendered: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """One request. The memory text of ``head`` is glued to the first user message when rendered.

    :param window: counter of windows; the prefix invariant holds among plans of one window
    :param continue_with: assistant text the reply must continue (``response.create``), else ``None``
    :param generate: False for prewarm plans: no generation prompt
    """

    window: int
    head: Head
    turns: tuple[Turn, ...]
    open_turn: Turn | None
    continue_with: str | None = None
    generate: bool = True

    @property
    def frames(self) -> tuple[FrameRef, ...]:
        """Every frame in prompt order, the open turn's last."""
        turns = (*self.turns, self.open_turn) if self.open_turn else self.turns
        return tuple(p.frame for t in turns for p in t.user if isinstance(p, Image))


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds within which windows are planned; the engine's part comes from the self-check.

    :param chunk_frames: frames per chunk (one summary each)
    :param max_images: images the engine takes in one prompt
    :param context_tokens: the engine's context length
    :param reply_tokens: kept free for the answer
    :param max_frames_per_tick: frames that may ride one tick before middle ones are thinned
    :param max_qa: entries of Q&A history; ``max_qa_tokens`` bounds their text
    :param rollup_chunks: summaries that become one long-term block
    :param long_term_max: blocks kept before the cut; ``long_term_keep``: blocks kept after it
    :param overlap_frames: frames carried into the next window
    :param query_limit: standing queries at a time
    :param keep: what a head tells of former windows: ``all``; ``answers``: no summaries are written, but
        what was asked and said is told; ``nothing``
    """

    chunk_frames: int = 100
    max_images: int = 256
    context_tokens: int = 32768
    reply_tokens: int = 256
    max_frames_per_tick: int = 4
    max_qa: int = 40
    max_qa_tokens: int = 2000
    rollup_chunks: int = 5
    long_term_max: int = 20
    long_term_keep: int = 15
    overlap_frames: int = 8
    query_limit: int = 1
    keep: Literal["all", "answers", "nothing"] = "all"


# --- wants: what memory asks of the backend. Carrying one out ends with a fact ------------------------


@dataclass(frozen=True, slots=True)
class WantDecision:
    """The open turn holds something new. ``urgent``: a tail fact; do not wait for a frame."""

    urgent: bool


@dataclass(frozen=True, slots=True)
class WantSummary:
    """Summarise a closed chunk; ends with ``summary_landed`` or ``summary_failed``."""

    chunk: int
    attempt: int
    start_ms: int
    end_ms: int
    frames: tuple[FrameRef, ...]


@dataclass(frozen=True, slots=True)
class WantRollup:
    """Merge summaries into one long-term block; ends with ``rollup_landed`` or ``rollup_failed``."""

    chunks: tuple[int, ...]
    attempt: int
    texts: tuple[str, ...]
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class WantPrewarm:
    """Send this plan (no generation prompt, one token) at low priority; ends with ``prewarmed``.

    ``turns``: how many turns it warms; negative while so many pieces of the head are still to come.
    ``open_tick``: the tick in flight whose pictures and words it warms besides.
    """

    head: int
    turns: int
    plan: Plan
    open_tick: int | None = None


Want = WantDecision | WantSummary | WantRollup | WantPrewarm


@dataclass(frozen=True, slots=True)
class Usage:
    """What the engine counted for one request, in tokens. ``cached`` is ``None`` where it does not say."""

    prompt: int
    completion: int
    cached: int | None = None


@dataclass(frozen=True, slots=True)
class AuditResult:
    """Promise against fact for one tick.

    :param expected: cached tokens the prefix property promises
    :param cached: cached tokens the engine reported
    :param shortfall: ``None``, or why: ``evicted``, or ``section/turn/byte`` of the first difference
    """

    expected: int
    cached: int | None
    shortfall: str | None = None
    details: dict[str, int | str] = field(default_factory=dict)
