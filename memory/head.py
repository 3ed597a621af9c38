"""The head of a window: system prompt and memory text, built once and then frozen.

Sections, in order: ``history`` (header), ``long_term``, ``summaries``, ``qa``, ``query``. A section is
absent while it is empty; the standing query comes last. Inside a section new text follows old text, so
two heads share all bytes up to the first new line. Gap markers alone may vanish.
"""

from __future__ import annotations

from collections.abc import Sequence

from memory.chunks import Span
from memory.history import Passage, timed
from memory.lines import Lines
from memory.plan import Head, Section
from memory.qa import QaArchive
from memory.queries import Query
from memory.tokens import MESSAGE_TOKENS, TokenMeter

BETWEEN = "\n\n"  # between sections, and between the entries of history


def system_text(persona: str, instructions: str) -> str:
    return persona + BETWEEN + instructions if instructions else persona


def sections(
    lines: Lines,
    blocks: Sequence[Passage],
    summaries: Sequence[Passage],
    gaps: Sequence[Span],
    qa: QaArchive,
    queries: Sequence[Query],
) -> tuple[Section, ...]:
    """The memory sections. Gap markers stand at their true time among the passages."""
    first_summary = summaries[0].start_ms if summaries else None
    split = blocks[-1].end_ms if blocks and first_summary is None else first_summary
    early = [gap for gap in gaps if blocks and split is not None and gap.start_ms < split]
    late = [gap for gap in gaps if gap not in early]
    long_term = timed(lines, blocks, early)
    recent = timed(lines, summaries, late)
    built: list[Section] = []
    if long_term or recent:
        built.append(Section("history", lines.history_header()))
    if long_term:
        built.append(Section("long_term", BETWEEN.join(long_term)))
    if recent:
        built.append(Section("summaries", BETWEEN.join(recent)))
    if qa_lines := qa.render(lines):
        built.append(Section("qa", "\n".join((lines.qa_header(), *qa_lines))))
    if queries:
        built.append(Section("query", lines.query(*(q.text for q in queries))))
    return tuple(built)


def memory_text(head: Head) -> str:
    """The text glued to the first user message; ends with a blank line, or empty."""
    return "".join(section.text + BETWEEN for section in head.sections)


def head_tokens(head: Head, meter: TokenMeter) -> int:
    return meter.message(head.system) + meter.text(memory_text(head)) + MESSAGE_TOKENS


def pieces(head: Head, shared: str, meter: TokenMeter, tokens: int) -> list[Head]:
    """Growing prefixes of ``head`` for prewarming, each at most ``tokens`` longer than the one before.

    ``shared``: the memory text of a head the engine has already, with the same system prompt. Empty when
    the whole of the new text fits one step together with the first turn.
    """
    text = memory_text(head)
    known = _common(text, shared)
    per_piece = max(1, tokens)
    cuts: list[int] = []
    start = known
    while meter.text(text[start:]) > per_piece:
        cut = start + max(1, (len(text) - start) * per_piece // (meter.text(text[start:]) + 1))
        cuts.append(cut)
        start = cut
    return [Head(head.version, head.system, _cut(head.sections, cut)) for cut in cuts]


def _common(one: str, other: str) -> int:
    size = min(len(one), len(other))
    if one[:size] == other[:size]:
        return size
    low, high = 0, size
    while low + 1 < high:
        middle = (low + high) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle
    return low


def _cut(all_sections: Sequence[Section], length: int) -> tuple[Section, ...]:
    kept: list[Section] = []
    for section in all_sections:
        if length <= 0:
            break
        kept.append(Section(section.name, section.text[:length]))
        length -= len(section.text) + len(BETWEEN)
    return tuple(kept)
