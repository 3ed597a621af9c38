"""When a new head is due, where its window starts, and what it tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from memory.chunks import Span
from memory.compose import compose, fits, turns_fit
from memory.handover import Draft
from memory.head import head_tokens, sections
from memory.open_turn import Flight
from memory.parts import Parts
from memory.plan import Head
from memory.qa import QaArchive
from memory.window import WindowTurn, first_frame, frame_count, newest, token_count

OPENED = "opened"
CHUNK = "chunk"
LIMITS = "limits"
SETTINGS = "settings"
DELETED = "deleted"
ENGINE_LOST = "engine_lost"


def head_due(parts: Parts) -> str | None:
    """Why a new head has to be frozen now, or ``None``."""
    live, handover = parts.live, parts.handover
    if live is None:
        return None if handover else OPENED
    target = handover.draft if handover else live
    if parts.deleted.rebuild and not (handover and target.reason == DELETED):
        return DELETED
    if target.changes != parts.changes:
        return SETTINGS
    if hard_limit(parts) and not (handover and _draft_fits(parts, target)) and _would_help(parts, target):
        return LIMITS
    if _told_more(parts, target) and (handover is None or target.reason == LIMITS):
        return CHUNK
    if handover is None and _near_limit(parts) and draft(parts, LIMITS).draft.start_seq > _first_seq(parts):
        return LIMITS
    return None


def hard_limit(parts: Parts) -> bool:
    """The next tick would not fit the live window."""
    if parts.open.flight or parts.window is None:
        return False
    window = parts.window
    return not fits(parts, window.tokens, window.frames, waiting(parts))


def _draft_fits(parts: Parts, target: Draft) -> bool:
    turns = parts.live_window.since(target.start_seq)
    return turns_fit(parts, target.head_tokens, turns, waiting(parts))


def _would_help(parts: Parts, target: Draft) -> bool:
    """Freezing once more leads to a smaller prompt; else there is nothing left that could go."""
    built = draft(parts, LIMITS).draft
    fewer = len(parts.live_window.since(built.start_seq)) < len(parts.live_window.since(target.start_seq))
    return fewer or (_draft_fits(parts, built) and not _draft_fits(parts, target))


def _told_more(parts: Parts, target: Draft) -> bool:
    """Chunks further on are told by text, or by a gap marker that lets their frames go."""
    boundary = parts.chunks.boundary()
    if boundary <= target.boundary:
        return False
    return parts.history.revision > target.revision or boundary > target.start_seq


def _near_limit(parts: Parts) -> bool:
    reserve, window = parts.budget.reserve_frames, parts.live_window
    if reserve == 0:
        return False
    room = parts.budget.prompt_tokens - window.tokens
    return window.frames > parts.limits.max_images - reserve or room < reserve * parts.learned.turn


def _first_seq(parts: Parts) -> int:
    return parts.live_window.first_seq(parts.next_seq)


@dataclass(frozen=True, slots=True)
class Drafted:
    """A draft and the Q&A archive that its head shows."""

    draft: Draft
    qa: QaArchive


def draft(parts: Parts, reason: str) -> Drafted:
    """The next head and where its window starts, from the state as it stands."""
    boundary = parts.chunks.boundary()
    turns: Sequence[WindowTurn] = ()
    if parts.window is not None:
        turns = _carried(parts, parts.window.since(boundary), reason)
    built = _build(parts, turns, boundary, reason)
    if reason == LIMITS and parts.open.flight is None:
        riding = waiting(parts)
        while turns and not turns_fit(parts, built.draft.head_tokens, turns, riding):
            turns = newest(turns, frame_count(turns) // 2, token_count(turns) // 2)
            built = _build(parts, turns, boundary, reason)
    return built


def _carried(parts: Parts, turns: Sequence[WindowTurn], reason: str) -> Sequence[WindowTurn]:
    """Turns that come along: all that no text tells yet, or the newest of them where they are too many
    for a window that has to take more."""
    budget = parts.budget
    room = budget.window_frames // 4 if reason == LIMITS else max(1, budget.window_frames // 8)
    share = 3 if reason == LIMITS else 7
    most, tokens = budget.window_frames - room, budget.window_tokens * share // (4 if share == 3 else 8)
    if frame_count(turns) <= most and token_count(turns) <= tokens:
        return turns
    return newest(turns, budget.carry_frames, budget.window_tokens // 2)


def _build(parts: Parts, turns: Sequence[WindowTurn], boundary: int, reason: str) -> Drafted:
    start_seq = turns[0].seq if turns else parts.next_seq
    first = first_frame(turns)
    start_ms = first.media_time_ms if first else parts.shown_end_ms()
    blocks, summaries = parts.history.before(start_seq)
    qa = QaArchive()
    if parts.limits.keep != "nothing":
        qa = parts.qa.before(start_seq, parts.limits.max_qa, parts.budget.qa_tokens)
    text = sections(
        parts.next_lines, blocks, summaries, _gaps(parts, start_seq, start_ms), qa,
        parts.queries.before(start_seq),
    )  # fmt: skip
    head = Head(parts.heads, parts.system, text)
    built = Draft(
        head=head,
        head_tokens=head_tokens(head, parts.meter),
        start_seq=start_seq,
        boundary=boundary,
        revision=parts.history.revision,
        changes=parts.changes,
        reason=reason,
        first_frame_ms=first.media_time_ms if first else None,
    )
    return Drafted(built, qa)


def _gaps(parts: Parts, start_seq: int, start_ms: int) -> list[Span]:
    if parts.limits.keep != "all":  # nothing was to be told there
        return []
    spans = parts.chunks.gaps(start_seq, start_ms)
    limit = parts.history.forgotten_before_ms
    return [span for span in spans if limit is None or span.end_ms > limit]


def waiting(parts: Parts) -> Flight:
    """What the next tick would show; made once between two facts, since every rule asks for it."""
    if parts.composed is None:
        parts.composed = compose(parts, parts.last_tick + 1, None)
    return parts.composed


def switch_due(parts: Parts) -> str | None:
    """Why the frozen head has to become live before the next tick, or ``None``."""
    handover = parts.handover
    if handover is None or parts.open.flight is not None:
        return None
    reason = handover.draft.reason
    if parts.window is None or not parts.window.turns or reason == DELETED:
        return reason
    if handover.at_once:
        return ENGINE_LOST
    if handover.ready(parts.window.since(handover.draft.start_seq)):
        return reason
    return LIMITS if hard_limit(parts) else None
