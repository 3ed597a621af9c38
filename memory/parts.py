"""The parts of one session's memory, and the questions that need several of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from memory.budget import PASSAGE_MARKS, Budget, LimitsTooSmall, derive
from memory.chunks import Chunks
from memory.facts import MemoryOpened
from memory.handover import Draft, Handover
from memory.head import system_text
from memory.history import SUMMARIES_MAX, History
from memory.lines import Lines
from memory.open_turn import OpenTurn
from memory.plan import Head, Limits
from memory.qa import QaHistory
from memory.queries import Queries
from memory.tokens import TokenMeter, clip
from memory.window import Window
from prompts.pack import Pack

TURN_TEXT_TOKENS = 24  # time tag, role marks and a short answer, before anything was counted
SMALLEST_TURN = 16
SMALLEST_ROOM = 512  # what a learned context leaves for pictures and memory, at the least


@dataclass(slots=True)
class Settings:
    """Who the model is told to be. ``changes`` counts what needs a new head."""

    persona: str
    language: str
    instructions: str | None
    changes: int = 0


@dataclass(slots=True)
class Learned:
    """Sizes that answers taught. ``turn``: tokens of a turn with one picture, moving average."""

    turn: float
    measured: bool = False

    def saw(self, tokens: float) -> None:
        speed = 1.0 if not self.measured else 0.5 if tokens > self.turn else 0.1
        self.turn += speed * (tokens - self.turn)
        self.measured = True


@dataclass(slots=True)
class Deleted:
    """What the user deleted; stripped from the window at the rebuild, which is then due."""

    frames: set[str] = field(default_factory=set)
    queries: set[str] = field(default_factory=set)
    rebuild: bool = False


class Parts:
    """State of the fold. Built from ``memory_opened``; raises ``KeyError`` for an unknown persona or
    language and ``LimitsTooSmall`` where nothing fits."""

    def __init__(self, pack: Pack, opened: MemoryOpened) -> None:
        self.pack = pack
        self.limits = Limits(**_known_limits(opened.limits))
        self.jitter = min(0.2, max(-0.2, opened.jitter))
        self.settings = Settings(opened.persona, opened.language, opened.instructions)
        self.lines = Lines(pack, opened.language)
        self.meter = TokenMeter(pack.tokens_per_pixel)
        self.learned = Learned(self.meter.pixels(pack.pixels.max) + TURN_TEXT_TOKENS)
        self.open = OpenTurn()
        self.chunks = Chunks()
        self.history = History()
        self.queries = Queries(self.limits.query_limit)
        self.qa = QaHistory()
        self.deleted = Deleted()
        self.window: Window | None = None
        self.live: Draft | None = None
        self.handover: Handover | None = None
        self.heads = 0
        self.next_seq = 0
        self.last_tick = -1
        self.now_ms = 0
        self.warm_seq = 0
        self.planned_tick: int | None = None
        self.system = self._system()
        self._budget: tuple[tuple[int, int, Limits], Budget] | None = None
        self._derive(self.meter.message(self.system), round(self.learned.turn))

    def _derive(self, system_tokens: int, turn_tokens: int) -> Budget:
        target = self.pack.summary_span_tokens
        return derive(
            self.limits, system_tokens=system_tokens, turn_tokens=turn_tokens, summary_target=target
        )

    def _system(self) -> str:
        settings = self.settings
        persona = self.pack.persona(settings.persona, settings.language)
        room = self.limits.context_tokens // 4
        return system_text(persona, self.lines.clean(clip(settings.instructions or "", room)))

    def configure(self, persona: str, language: str, instructions: str | None) -> None:
        """New settings; they show at the next head. Raises as the constructor does, and
        changes nothing then."""
        old = self.settings, self.lines, self.system
        try:
            self.settings = Settings(persona, language, instructions, self.settings.changes)
            self.lines = Lines(self.pack, language)
            self.system = self._system()
            self._derive(self.meter.message(self.system), round(self.learned.turn))
        except (KeyError, LimitsTooSmall):
            self.settings, self.lines, self.system = old
            raise
        if (self.system, language) != (old[2], old[0].language):
            self.settings.changes += 1

    @property
    def budget(self) -> Budget:
        """The shares as they follow from what is known now. Counts that outgrow a session's limits shrink
        its window rather than end it."""
        whole = self.limits.context_tokens * 49 // 50 - 48 - self.limits.reply_tokens
        system = min(self.meter.message(self.system), whole - SMALLEST_ROOM // 2)
        turn = max(SMALLEST_TURN, min(round(self.learned.turn), (whole - system) // 3))
        known = system, turn, self.limits
        if self._budget is None or self._budget[0] != known:
            self._budget = known, self._derive(system, turn)
        return self._budget[1]

    @property
    def live_window(self) -> Window:
        """The window once the first head is live; raises ``RuntimeError`` before its moves were applied."""
        if self.window is None:
            raise RuntimeError("no window yet: log and apply what moves() returns first")
        return self.window

    @property
    def head(self) -> Head:
        return self.live_window.head

    def chunk_target(self) -> int:
        """New frames after which the open chunk closes; the first one is jittered."""
        frames = self.budget.chunk_frames
        return max(1, round(frames * (1 + self.jitter))) if self.chunks.open.index == 0 else frames

    def shown_end_ms(self) -> int:
        """Where media time goes on after the newest shown frame."""
        tail = self.open.tail_ms
        return (0 if tail is None else tail) + self.pack.period_ms

    def trim_history(self) -> None:
        budget = self.budget
        self.history.trim(
            blocks_max=budget.long_term_max, blocks_keep=budget.long_term_keep,
            block_tokens=budget.long_term_tokens, all_tokens=budget.history_tokens,
            summaries_max=SUMMARIES_MAX * self.limits.rollup_chunks,
            count=lambda text: self.meter.text(text) + PASSAGE_MARKS,
        )  # fmt: skip
        if self.history.forgotten_before_ms is not None:
            self.chunks.forget_before(self.history.forgotten_before_ms)

    def shrink(self, *, max_images: int | None = None, context_tokens: int | None = None) -> None:
        """The engine turned out smaller than planned. Never below what holds a few words and a picture."""
        limits = self.limits
        if max_images is not None:
            limits = replace(limits, max_images=max(1, min(limits.max_images, max_images)))
        if context_tokens is not None:
            floor = self.meter.message(self.system) + limits.reply_tokens + SMALLEST_ROOM
            tokens = min(limits.context_tokens, max(floor, context_tokens))
            limits = replace(limits, context_tokens=tokens)
        self.limits = limits


def _known_limits(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name in Limits.__dataclass_fields__}
