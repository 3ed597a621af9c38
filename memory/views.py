"""What can be read off a session's memory between facts."""

from __future__ import annotations

from memory.budget import Budget
from memory.history import Passage
from memory.parts import Parts, Settings
from memory.plan import Head
from prompts.pack import Pack


class Views:
    """Read-only properties over the parts."""

    def __init__(self) -> None:
        self._parts: Parts | None = None

    @property
    def parts(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("memory_opened has not been applied")
        return self._parts

    @property
    def is_open(self) -> bool:
        """The session's first fact was folded."""
        return self._parts is not None

    @property
    def budget(self) -> Budget:
        return self.parts.budget

    @property
    def head(self) -> Head:
        return self.parts.head

    @property
    def window_index(self) -> int:
        return self.parts.live_window.index

    @property
    def chunk_index(self) -> int:
        return self.parts.chunks.open.index

    @property
    def window_frames(self) -> int:
        """Frames in answered turns of the live window."""
        return self.parts.live_window.frames

    @property
    def window_tokens(self) -> int:
        """Tokens of head and answered turns, counted or estimated."""
        return self.parts.live_window.tokens

    @property
    def head_tokens(self) -> int:
        """Tokens before the live window's turns, as far as the engine counted them."""
        return self.parts.live_window.before_turns

    @property
    def turn_tokens(self) -> int | None:
        """Of a turn with one picture, on average; ``None``: none was answered yet."""
        learned = self.parts.learned
        return round(learned.turn) if learned.measured else None

    @property
    def in_flight(self) -> int | None:
        """The tick that is begun and not answered. After a restart such a tick has failed."""
        return self.parts.open.flight.tick if self.parts.open.flight else None

    @property
    def instructed(self) -> bool:
        """The tick in flight shows instructions that its answered turn will not keep."""
        flight = self.parts.open.flight
        return flight is not None and flight.lasting != flight.parts

    @property
    def queries(self) -> tuple[str, ...]:
        return tuple(q.text for q in self.parts.queries.standing)

    @property
    def query(self) -> str | None:
        """The newest standing query, as shown to the model."""
        current = self.parts.queries.current
        return current.text if current else None

    @property
    def now_ms(self) -> int:
        return self.parts.now_ms

    @property
    def language(self) -> str:
        return self.parts.settings.language

    @property
    def pack(self) -> Pack:
        """The prompt pack of the live window."""
        return self.parts.pack

    @property
    def pixels(self) -> int:
        """Area of the largest picture that suits the live window."""
        return self.parts.live_settings.pixels

    @property
    def settings(self) -> Settings:
        """The newest settings; a live window that is older finishes on its own."""
        return self.parts.settings

    @property
    def qa(self) -> tuple[str, ...]:
        """Q&A lines, archived ones first."""
        qa, lines = self.parts.qa, self.parts.lines
        return (*qa.archive.render(lines), *(line.render(lines) for line in qa.recent))

    @property
    def summaries(self) -> tuple[Passage, ...]:
        return tuple(self.parts.history.summaries)

    @property
    def long_term(self) -> tuple[Passage, ...]:
        return tuple(self.parts.history.blocks)

    @property
    def gaps(self) -> int:
        """Spans whose summary has failed for good, or for now."""
        chunks = self.parts.chunks
        return len(chunks.lost) + sum(chunk.gap for chunk in chunks.closed)

    @property
    def dropped(self) -> dict[str, int]:
        """Frames not shown, by reason."""
        return dict(self.parts.open.dropped)

    @property
    def planned_switch_tick(self) -> int | None:
        """The tick at which a change of settings is meant to show; ``None`` when none is pending."""
        return self.parts.planned_tick
