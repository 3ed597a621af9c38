"""An answered tick becomes a turn: frames go to the chunk, words to Q&A, counts to the meter."""

from __future__ import annotations

from memory.facts import TickAnswered
from memory.open_turn import Flight
from memory.parts import Parts
from memory.plan import Turn, Usage
from memory.qa import QaLine
from memory.tokens import clip, usage_of
from memory.window import Window, WindowTurn, first_frame, newest, token_count


def answered(parts: Parts, fact: TickAnswered) -> None:
    """Append the turn in flight, with ``said`` byte for byte, and close the chunk that it fills."""
    flight = parts.open.commit()
    seq, parts.next_seq = parts.next_seq, parts.next_seq + 1
    said = fact.said or parts.pack.tags.silence
    # What the engine counted, and has cached, is not what stays if the turn had instructions of its own.
    usage = usage_of(fact.usage) if flight.lasting == flight.parts else None
    window = parts.live_window
    tokens = _turn_tokens(parts, window, flight, said, usage)
    turn = Turn(flight.tick, flight.lasting, said)
    window.append(
        WindowTurn(seq, turn, flight.frames, flight.notes, flight.media_time_ms, tokens),
        usage.prompt + usage.completion if usage else None,
    )
    if usage:
        parts.warm_seq = parts.next_seq
    if flight.frames:
        parts.learned.saw(tokens / len(flight.frames))
    _remember(parts, flight, fact, seq)
    parts.queries.commit(flight.standing, seq)
    refs = [w.ref for w in flight.frames if w.ref.frame_id not in parts.deleted.frames]
    parts.chunks.take(seq, refs)
    if parts.chunks.open.fresh >= parts.chunk_target():
        _close_chunk(parts, window)


def _turn_tokens(parts: Parts, window: Window, flight: Flight, said: str, usage: Usage | None) -> int:
    """What the turn costs: counted where the turn before was counted too, else estimated.

    Counts also teach the meter: a turn's growth, or the size of a head at a window's first answer.
    """
    meter = parts.meter
    estimated = meter.turn(flight.lasting, said, sum(w.tokens for w in flight.frames))
    if usage is None:
        return estimated
    total = usage.prompt + usage.completion
    if window.anchor is None:
        head = total - token_count(window.turns) - estimated
        meter.saw_text(window.head_tokens, head)
        return estimated
    grown = total - window.anchor
    if window.after_anchor or grown <= 0:
        return estimated
    pictures = sum(w.tokens for w in flight.frames)
    if (
        grown > estimated or 4 * pictures >= 3 * estimated
    ):  # what is thought of texts is no measure of pictures
        meter.saw_turn(estimated, grown)
    return grown


def _remember(parts: Parts, flight: Flight, fact: TickAnswered, seq: int) -> None:
    """What was delivered to the model and what it said, as Q&A lines of this turn."""
    room = max(24, parts.budget.qa_tokens // 4)
    for delivery in flight.delivered:
        parts.qa.add(
            QaLine(
                "delivery",
                seq,
                delivery.media_time_ms,
                delivery.text,
                question=delivery.question,
                ok=delivery.ok,
            )
        )
    text = clip(fact.text, room)
    if fact.action == "silence" or not text:
        return
    asked = next((q for q in reversed(parts.queries.standing) if q.query_id in flight.standing), None)
    if asked and not asked.recorded:
        asked.recorded = True
        parts.qa.add(QaLine("query", seq, asked.media_time_ms, asked.text, asked.index, asked.query_id))
    if flight.standing:
        query_id = flight.standing[-1]
        line = QaLine(
            "response", seq, flight.media_time_ms, text, query_id=query_id, response_id=fact.response_id
        )
    else:
        index = parts.qa.next_index()
        line = QaLine("unasked", seq, flight.media_time_ms, text, index, response_id=fact.response_id)
    parts.qa.add(line)


def _close_chunk(parts: Parts, window: Window) -> None:
    """The chunk is full. Its last frames, the overlap, begin the next one."""
    budget = parts.budget
    inside = window.since(parts.chunks.open.start_seq)
    carried = newest(inside, budget.overlap_frames, budget.window_tokens) if budget.overlap_frames else ()
    if budget.overlap_frames and not first_frame(carried):
        last = next((turn for turn in reversed(inside) if turn.frames), None)
        carried = window.since(last.seq) if last and len(last.frames) <= budget.carry_frames else ()
    first, told = first_frame(carried), parts.limits.keep == "all"
    if not (first and parts.chunks.close(carried[0].seq, first.media_time_ms, told=told)):
        parts.chunks.close(parts.next_seq, parts.shown_end_ms(), told=told)
