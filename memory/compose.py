"""From what waits to one user turn: which notes and frames ride a tick, and whether they fit."""

from __future__ import annotations

from collections.abc import Sequence

from memory.open_turn import Delivery, Flight, Note, Waiting
from memory.parts import Parts
from memory.plan import Part
from memory.tokens import clip, estimate
from memory.window import WindowTurn, frame_count, token_count, user_parts


def compose(
    parts: Parts, tick: int, instructions: str | None, frames: Sequence[Waiting] | None = None
) -> Flight:
    """The open turn as tick ``tick`` would show it. ``frames``: those a log names, else what waits."""
    riding = tuple(frames) if frames is not None else parts.open.next_frames(parts.budget.frames_per_tick)
    notes, delivered = _notes(parts)
    newest = riding[-1].ref.media_time_ms if riding else parts.now_ms
    lasting = shown = turn_parts(parts, notes, riding, newest)
    if instructions and instructions.strip():
        brief = clip(instructions.strip(), parts.budget.query_tokens, parts.meter.text_scale)
        passing = Note(parts.lines.clean(brief))
        shown = turn_parts(parts, [*notes, passing], riding, newest)
    return Flight(
        tick=tick,
        media_time_ms=newest,
        frames=riding,
        notes=tuple(notes),
        parts=shown,
        lasting=lasting,
        standing=tuple(q.query_id for q in parts.queries.standing),
        interruptions=len(parts.open.interruptions),
        delivered=delivered,
    )


def turn_parts(
    parts: Parts, notes: Sequence[Note], frames: Sequence[Waiting], now_ms: int
) -> tuple[Part, ...]:
    refs = [waiting.ref for waiting in frames]
    if parts.pack.time_tag_per_image and len(refs) > 1:
        times = [ref.media_time_ms for ref in refs]
    else:
        times = [refs[0].media_time_ms if refs else now_ms]
    return user_parts(notes, [parts.lines.time_tag(ms) for ms in times], refs)


def _notes(parts: Parts) -> tuple[list[Note], tuple[Delivery, ...]]:
    """Notes in their fixed order, and the delegated answers among them.

    Answers ride in order as far as their share goes, at least one; the others ride the next ticks.
    """
    lines, queries = parts.lines, parts.queries
    notes = [Note(lines.interrupted(heard)) for _, heard in parts.open.interruptions]
    notes += (Note(lines.query(q.text), q.query_id) for q in queries.unseen())
    if queries.withdrawn():
        notes.append(Note(lines.query_cleared()))
    room, count = parts.budget.query_tokens, 0
    for delivery in parts.open.deliveries:
        text = lines.delegation(delivery.question, delivery.text, delivery.ok)
        room -= estimate(text)
        if count and room < 0:
            break
        notes.append(Note(text))
        count += 1
    return notes, tuple(parts.open.deliveries[:count])


def flight_tokens(parts: Parts, flight: Flight) -> int:
    return parts.meter.turn(flight.parts, "", sum(w.tokens for w in flight.frames))


def fits(parts: Parts, tokens: int, frames: int, flight: Flight) -> bool:
    """A prompt of ``tokens`` and ``frames`` with the open turn ``flight`` keeps the hard limits."""
    within_images = frames + len(flight.frames) <= parts.limits.max_images
    return within_images and tokens + flight_tokens(parts, flight) <= parts.budget.prompt_tokens


def turns_fit(parts: Parts, head_tokens: int, turns: Sequence[WindowTurn], flight: Flight) -> bool:
    return fits(parts, head_tokens + token_count(turns), frame_count(turns), flight)
