"""What a deletion leaves of the window: used once, at the declared cold rebuild that follows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memory.compose import turn_parts
from memory.parts import Parts
from memory.plan import Turn
from memory.window import WindowTurn


def stripped(parts: Parts, turns: Sequence[WindowTurn]) -> list[WindowTurn]:
    """``turns`` without the deleted frames and queries; a turn that showed nothing else goes too."""
    kept = []
    for turn in turns:
        frames = tuple(w for w in turn.frames if w.ref.frame_id not in parts.deleted.frames)
        notes = tuple(n for n in turn.notes if n.query_id not in parts.deleted.queries)
        if frames == turn.frames and notes == turn.notes:
            kept.append(turn)
        elif frames or notes:
            gone = sum(w.tokens for w in turn.frames) - sum(w.tokens for w in frames)
            user = turn_parts(parts, notes, frames, turn.media_time_ms)
            rebuilt = Turn(turn.turn.tick, user, turn.turn.said)
            tokens = max(1, turn.tokens - gone)
            kept.append(replace(turn, turn=rebuilt, frames=frames, notes=notes, tokens=tokens))
    parts.deleted.frames.clear()
    parts.deleted.queries.clear()
    parts.deleted.rebuild = False
    return kept
