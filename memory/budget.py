"""How one prompt is shared out: derived from the engine's limits and the measured size of a turn.

::

    context = system + head text (query | Q&A | long-term | summaries) + window + reply + margin
    window  = overlap + one chunk + slack for the time a summary and the prewarm take
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.plan import Limits

SMALLEST_HEAD_PERCENT = 30  # of what the system prompt leaves, when pictures would take everything
SUMMARY_OVERSHOOT = 1.5  # summarizers overrun their target; a text beyond this is cut
KEY_FRAMES = 32  # pictures that stand for a chunk at the summarizer
LARGEST_QUERY_TOKENS = 1024
PASSAGE_MARKS = 14  # the range line and the blank line of a passage
HEADER_TOKENS = 120  # section headers and notices
SUMMARY_PROMPT_TOKENS = 900  # instructions of a summary request


class LimitsTooSmall(ValueError):
    """The engine's context or image limit leaves no room for a single turn."""

    code = "limits_too_small"


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens and frames each part may take. All the memory parts obey it.

    :param prompt_tokens: all but the reply and the margin
    :param query_tokens: the standing query, and each note of an open turn
    :param summary_tokens: one summary or long-term block; ``summary_target`` is asked of the summarizer
    :param history_tokens: all summaries and blocks together; ``long_term_tokens`` of it the blocks
    :param window_tokens: all turns of a window; ``window_frames``: its pictures
    :param chunk_frames: new frames after which a chunk closes
    :param carry_frames: frames that come along when a window must close with frames unsummarised
    :param reserve_frames: this near to its end a window prepares its successor
    :param key_frames: pictures of one summary request
    """

    prompt_tokens: int
    query_tokens: int
    qa_tokens: int
    summary_tokens: int
    summary_target: int
    history_tokens: int
    long_term_tokens: int
    long_term_max: int
    long_term_keep: int
    window_tokens: int
    window_frames: int
    overlap_frames: int
    chunk_frames: int
    frames_per_tick: int
    carry_frames: int
    reserve_frames: int
    key_frames: int

    @property
    def delegation_question_tokens(self) -> int:
        """A delegated question beside its answer; together they are one note of an open turn."""
        return self.query_tokens // 3

    @property
    def delegation_answer_tokens(self) -> int:
        return self.query_tokens * 2 // 3


def derive(limits: Limits, *, system_tokens: int, turn_tokens: int, summary_target: int) -> Budget:
    """The shares for turns of ``turn_tokens`` (one picture each). Raises ``LimitsTooSmall``."""
    margin = max(48, limits.context_tokens // 50)
    prompt = limits.context_tokens - limits.reply_tokens - margin
    rest = prompt - system_tokens
    if rest < 3 * turn_tokens or limits.max_images < 1:
        raise LimitsTooSmall(
            f"a context of {limits.context_tokens} tokens and {limits.max_images} images cannot hold "
            f"{system_tokens} tokens of instructions, a reply of {limits.reply_tokens} and a few pictures "
            f"of {turn_tokens}"
        )
    text, window_tokens = _share(limits, rest, turn_tokens, summary_target)
    query = max(24, min(LARGEST_QUERY_TOKENS, text // 8))
    qa = min(limits.max_qa_tokens, text // 4)
    history = max(0, text - query - qa - min(HEADER_TOKENS, text // 8))
    share = history // 2 // limits.rollup_chunks - PASSAGE_MARKS
    summary = max(16, min(int(summary_target * SUMMARY_OVERSHOOT), share))
    passage = summary + PASSAGE_MARKS
    long_term = max(history // 2, history - 2 * limits.rollup_chunks * passage)
    blocks = max(1, min(limits.long_term_max, long_term // passage))
    frames = max(1, min(limits.max_images, (window_tokens - 2 * query) // turn_tokens))
    overlap = min(limits.overlap_frames, limits.max_images // 4, frames // 4, limits.chunk_frames // 2)
    chunk = min(limits.chunk_frames, max(1, (frames - overlap) * 2 // 3))
    summary_room = limits.context_tokens - SUMMARY_PROMPT_TOKENS - 2 * summary_target - margin
    return Budget(
        prompt_tokens=prompt,
        query_tokens=query,
        qa_tokens=qa,
        summary_tokens=summary,
        summary_target=min(summary_target, max(16, int(summary / SUMMARY_OVERSHOOT))),
        history_tokens=history,
        long_term_tokens=long_term,
        long_term_max=blocks,
        long_term_keep=max(1, min(limits.long_term_keep, blocks * 3 // 4)),
        window_tokens=window_tokens,
        window_frames=frames,
        overlap_frames=overlap,
        chunk_frames=chunk,
        frames_per_tick=min(limits.max_frames_per_tick, max(1, frames // 2)),
        carry_frames=frames // 2,
        reserve_frames=frames // 8 if frames >= 16 else 0,
        key_frames=max(1, min(KEY_FRAMES, limits.max_images, summary_room * 9 // 10 // turn_tokens)),
    )


def _share(limits: Limits, rest: int, turn_tokens: int, summary_target: int) -> tuple[int, int]:
    """Tokens of head text and of the window: pictures first, but never all of it."""
    wanted_frames = limits.chunk_frames + limits.chunk_frames // 2 + limits.overlap_frames + 1
    useful_window = (min(limits.max_images, wanted_frames) + 1) * turn_tokens + 2 * LARGEST_QUERY_TOKENS
    passages = limits.long_term_max + 2 * limits.rollup_chunks
    passage = int(summary_target * SUMMARY_OVERSHOOT) + PASSAGE_MARKS
    useful_text = passages * passage * 11 // 10 + limits.max_qa_tokens + LARGEST_QUERY_TOKENS + HEADER_TOKENS
    text = max(rest * SMALLEST_HEAD_PERCENT // 100, min(rest - useful_window, useful_text))
    text = min(text, useful_text)
    return text, rest - text
