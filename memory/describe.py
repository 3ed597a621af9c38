"""A session's memory and its next prompt as plain data for people: tiers as text with times and tokens.

Times are milliseconds of media time. Token counts are the engine's where it has counted, else estimates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from memory.fold import Memory
from memory.head import memory_text
from memory.history import Passage
from memory.plan import Text
from memory.qa import QaLine
from memory.render import chat_messages, plan_bytes
from memory.window import Window, WindowTurn


def describe_memory(memory: Memory) -> dict[str, Any]:
    """Every tier, oldest first.

    ``gaps``: time that is told by neither frames nor text; a ``final`` one is no longer tried again.
    ``pending``: chunks whose summary is being written; their frames may still be in the window.
    """
    parts, meter = memory.parts, memory.parts.meter
    chunks, window = parts.chunks, parts.live_window

    def passages(found: Sequence[Passage]) -> list[dict[str, Any]]:
        return [
            {
                "start_ms": p.start_ms,
                "end_ms": p.end_ms,
                "last_chunk": p.chunk,
                "text": p.text,
                "tokens": meter.text(p.text),
            }
            for p in found
        ]

    return {
        "media_time_ms": memory.now_ms,
        "long_term": passages(memory.long_term),
        "summaries": passages(memory.summaries),
        "gaps": [
            *({"start_ms": s.start_ms, "end_ms": s.end_ms, "final": True} for s in chunks.lost),
            *({"start_ms": c.start_ms, "end_ms": c.end_ms, "final": False} for c in chunks.closed if c.gap),
        ],
        "pending": [
            {
                "chunk": c.index,
                "start_ms": c.start_ms,
                "end_ms": c.end_ms,
                "frames": len(c.frames),
                "attempt": c.attempt,
            }
            for c in chunks.closed
            if not c.gap
        ],
        "chunk": {
            "index": chunks.open.index,
            "start_ms": chunks.open.start_ms,
            "frames": chunks.open.fresh,
            "closes_at_frames": parts.chunk_target(),
        },
        "qa": _qa(memory),
        "queries": [
            {
                "query_id": q.query_id,
                "media_time_ms": q.media_time_ms,
                "text": q.text,
                "shown": q.shown_seq is not None,
                "tokens": meter.text(q.text),
            }
            for q in parts.queries.standing
        ],
        "window": _window(window, memory_text(window.head)),
        "waiting_frames": [
            {"frame_id": w.ref.frame_id, "media_time_ms": w.ref.media_time_ms} for w in parts.open.frames
        ],
        "frames_not_shown": memory.dropped,
        "budget": {
            "prompt_tokens": memory.budget.prompt_tokens,
            "history_tokens": memory.budget.history_tokens,
            "qa_tokens": memory.budget.qa_tokens,
            "window_tokens": memory.budget.window_tokens,
            "window_frames": memory.budget.window_frames,
        },
    }


def describe_plan(memory: Memory) -> dict[str, Any]:
    """What the model sees at the tick in flight, or would see now.

    ``sections`` map the canonical bytes, of which ``frozen_bytes`` never change in this window; ``messages``
    are what the engine gets, pictures by ``uuid``.
    """
    plan = memory.plan()
    rendered = plan_bytes(plan)
    window = memory.parts.live_window
    ticks = [turn.tick for turn in plan.turns]
    if plan.open_turn:
        ticks.append(plan.open_turn.tick)
    return {
        "window": plan.window,
        "head": plan.head.version,
        "images": len(plan.frames),
        "tokens": window.tokens,
        "tokens_counted": window.anchor is not None,
        "bytes": len(rendered.data),
        "frozen_bytes": rendered.frozen,
        "sha256": hashlib.sha256(rendered.data).hexdigest(),
        "open_turn": {"tick": ticks[-1], "in_flight": memory.in_flight is not None},
        "sections": [
            {
                "section": s.section,
                "turn": s.turn if s.turn >= 0 else None,
                "tick": ticks[s.turn] if 0 <= s.turn < len(ticks) else None,
                "start": s.start,
                "end": s.end,
                "frozen": s.end <= rendered.frozen,
            }
            for s in rendered.segments
        ],
        "messages": chat_messages(plan),
    }


def _qa(memory: Memory) -> dict[str, Any]:
    """``left_out``: older entries of which only their number and time are kept."""
    qa = memory.parts.qa
    digest = qa.archive.digest

    def entry(line: QaLine, *, archived: bool) -> dict[str, Any]:
        found = {
            "kind": line.kind,
            "media_time_ms": line.media_time_ms,
            "text": line.text,
            "tokens": line.tokens,
            "archived": archived,
        }
        if line.kind == "delivery":
            found |= {"question": line.question, "ok": line.ok}
        return found

    return {
        "left_out": {"count": digest.count, "start_ms": digest.start_ms, "end_ms": digest.end_ms}
        if digest
        else None,
        "entries": [
            *(entry(line, archived=True) for line in qa.archive.lines),
            *(entry(line, archived=False) for line in qa.recent),
        ],
    }


def _window(window: Window, head_text: str) -> dict[str, Any]:
    return {
        "index": window.index,
        "head": window.head.version,
        "head_text": head_text,
        "head_tokens": window.head_tokens,
        "frames": window.frames,
        "tokens": window.tokens,
        "tokens_counted": window.anchor is not None,
        "turns": [_turn(turn) for turn in window.turns],
    }


def _turn(turn: WindowTurn) -> dict[str, Any]:
    return {
        "tick": turn.turn.tick,
        "media_time_ms": turn.media_time_ms,
        "frames": [
            {"frame_id": w.ref.frame_id, "uuid": w.ref.uuid, "media_time_ms": w.ref.media_time_ms}
            for w in turn.frames
        ],
        "text": "".join(part.text for part in turn.turn.user if isinstance(part, Text)),
        "said": turn.turn.said,
        "tokens": turn.tokens,
    }
