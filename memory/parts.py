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
from memory.open_turn import Flight, OpenTurn
from memory.plan import Head, Limits
from memory.qa import QaHistory
from memory.queries import Queries
from memory.tokens import TokenMeter, clip
from memory.window import Window
from prompts.pack import Pack

TURN_TEXT_TOKENS = 24  # time tag, role marks and a short answer, before anything was counted
SMALLEST_TURN = 16
SMALLEST_ROOM = 512  # what a learned context leaves for pictures and memory, at the least


@dataclass(frozen=True, slots=True)
class Settings:
    """What a window is made with. ``max_pixels``: area of the largest picture, if that is asked for."""

    pack: Pack
    persona: str
    language: str
    instructions: str | None
    max_pixels: int | None

    @property
    def pixels(self) -> int:
        """Area of the largest picture, within what the pack allows."""
        bounds = self.pack.pixels
        return bounds.max if self.max_pixels is None else max(bounds.min, min(bounds.max, self.max_pixels))


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
    language and ``LimitsTooSmall`` where nothing fits.

    ``live_settings`` and ``limits`` are those of the window, ``settings`` and ``next_limits`` those that the
    next one will have. ``lines`` write the window's turns, ``next_lines`` the next head.
    """

    def __init__(self, pack: Pack, opened: MemoryOpened) -> None:
        self.limits = self.next_limits = limits_of(opened.limits)
        self.jitter = min(0.2, max(-0.2, opened.jitter))
        self.settings = self.live_settings = Settings(
            pack, opened.persona, opened.language, opened.instructions, opened.max_pixels
        )
        self.lines = self.next_lines = Lines(pack, opened.language)
        self.meter = TokenMeter(pack.tokens_per_pixel, opened.text_scale)
        self.learned = Learned(self._first_turn(self.settings))
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
        self.changes = 0
        self.system = _system(self.settings, self.next_lines, self.limits)
        self.composed: Flight | None = None
        """What the next tick would show, once asked for; a fact resets it."""
        self._budget: tuple[tuple[int, int, Limits], Budget] | None = None
        self._measured: tuple[str, float, int] | None = None
        self._derive(self.limits, pack, self.meter.message(self.system), round(self.learned.turn))

    @property
    def pack(self) -> Pack:
        """The pack of the live window."""
        return self.live_settings.pack

    def _derive(self, limits: Limits, pack: Pack, system_tokens: int, turn_tokens: int) -> Budget:
        target = pack.summary_span_tokens
        return derive(limits, system_tokens=system_tokens, turn_tokens=turn_tokens, summary_target=target)

    def _first_turn(self, settings: Settings) -> float:
        """Tokens of a turn with one picture, before any was counted."""
        meter = TokenMeter(settings.pack.tokens_per_pixel)
        return meter.pixels(settings.pixels) + TURN_TEXT_TOKENS

    def configure(self, new: Settings, limits: Limits | None = None) -> bool:
        """New settings, and limits where a new pack brings them. True if they need a new head, where they
        show. Raises as the constructor does, and changes nothing then."""
        old, lines = self.settings, Lines(new.pack, new.language)
        limits = limits or self.next_limits
        system = _system(new, lines, limits)
        turn = round(self._first_turn(new) if self._resized(new) else self.learned.turn)
        tokens = self.meter.message(system)
        try:
            self._derive(limits, new.pack, tokens, turn)
        except LimitsTooSmall:
            # What takes no more than before is no worse, whatever was learned of the engine since.
            if tokens > self.meter.message(self.system) or turn > round(self.learned.turn):
                raise
        same = (system, new.language, new.pixels, new.pack.digest, limits) == (
            self.system, old.language, old.pixels, old.pack.digest, self.next_limits,
        )  # fmt: skip
        self.settings, self.next_lines, self.next_limits, self.system = new, lines, limits, system
        if new.language in self.pack.languages:
            self.lines = Lines(self.pack, new.language)
        self.changes += not same
        return not same

    def adopt(self) -> None:
        """The window that was switched to has the newest settings."""
        settings = self.settings
        if self._resized(settings):
            scale = self.meter.text_scale
            self.meter = TokenMeter(settings.pack.tokens_per_pixel, scale)
            self.learned = Learned(self._first_turn(settings))
        self.live_settings, self.limits = settings, self.next_limits
        self.lines = self.next_lines
        self._budget = None

    def _resized(self, settings: Settings) -> bool:
        live = self.live_settings
        sizes = (live.pixels, live.pack.tokens_per_pixel)
        return sizes != (settings.pixels, settings.pack.tokens_per_pixel)

    @property
    def budget(self) -> Budget:
        """The shares as they follow from what is known now. Counts that outgrow a session's limits shrink
        its window rather than end it."""
        whole = self.limits.context_tokens * 49 // 50 - 48 - self.limits.reply_tokens
        system = min(self._system_tokens(), whole - SMALLEST_ROOM // 2)
        turn = max(SMALLEST_TURN, min(round(self.learned.turn), (whole - system) // 3))
        known = system, turn, self.limits
        if self._budget is None or self._budget[0] != known:
            self._budget = known, self._derive(self.limits, self.pack, system, turn)
        return self._budget[1]

    def _system_tokens(self) -> int:
        """Of a long text that seldom changes, and of which every rule asks."""
        text, scale = self.system, self.meter.text_scale
        if self._measured is None or self._measured[0] is not text or self._measured[1] != scale:
            self._measured = text, scale, self.meter.message(text)
        return self._measured[2]

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

        def shrunk(limits: Limits) -> Limits:
            if max_images is not None:
                limits = replace(limits, max_images=max(1, min(limits.max_images, max_images)))
            if context_tokens is not None:
                floor = self.meter.message(self.system) + limits.reply_tokens + SMALLEST_ROOM
                tokens = min(limits.context_tokens, max(floor, context_tokens))
                limits = replace(limits, context_tokens=tokens)
            return limits

        self.limits, self.next_limits = shrunk(self.limits), shrunk(self.next_limits)


def _system(settings: Settings, lines: Lines, limits: Limits) -> str:
    persona = settings.pack.persona(settings.persona, settings.language)
    room = limits.context_tokens // 4
    return system_text(persona, lines.clean(clip(settings.instructions or "", room)))


def limits_of(data: dict[str, Any]) -> Limits:
    """Limits as a fact has them."""
    return Limits(**{name: value for name, value in data.items() if name in Limits.__dataclass_fields__})
