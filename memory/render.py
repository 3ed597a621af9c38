"""From plans to requests. ``chat_messages`` is what the engine gets; ``plan_bytes`` is the same content
as canonical bytes, for the prefix invariant and the audit. Nothing else builds prompt text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory.head import BETWEEN
from memory.lines import Lines, seconds
from memory.plan import Head, Image, Part, Plan, Text, Turn, WantRollup, WantSummary
from prompts.pack import Pack

RENDERER = 1  # version of these renderers; kept with every session's log

Message = dict[str, Any]

LANGUAGE_NAMES = {"en": "English", "zh": "中文"}


def chat_messages(plan: Plan) -> list[Message]:
    """OpenAI messages of a plan. Images are ``{"type": "image_url", "uuid": U}`` without data.

    With ``plan.continue_with`` the last message is the assistant text to continue
    (``continue_final_message``); with ``plan.generate`` False none is to be generated.
    """
    system, glue = _head_messages(plan.head)
    messages = [system]
    for turn in _turns(plan):
        messages += _messages(glue, turn)
        glue = ""
    if glue and not _turns(plan):
        messages.append({"role": "user", "content": [{"type": "text", "text": glue}]})
    if plan.continue_with is not None:
        messages.append({"role": "assistant", "content": plan.continue_with})
    return messages


def _head_messages(head: Head) -> tuple[Message, str]:
    """The system prompt, and the memory text that is glued to the first user message."""
    known: tuple[Message, str] | None = head.rendered.get("messages")
    if known is None:
        glue = "".join(section.text + BETWEEN for section in head.sections)
        known = head.rendered["messages"] = ({"role": "system", "content": head.system}, glue)
    return known


def _messages(glue: str, turn: Turn) -> tuple[Message, ...]:
    """The same objects for the same turn: whoever writes them need not do so again."""
    known: tuple[Message, ...] | None = turn.rendered.get(glue)
    if known is None:
        user: Message = {"role": "user", "content": _content(glue, turn.user)}
        said = () if turn.said is None else ({"role": "assistant", "content": turn.said},)
        known = turn.rendered[glue] = (user, *said)
    return known


def _turns(plan: Plan) -> tuple[Turn, ...]:
    return (*plan.turns, plan.open_turn) if plan.open_turn else plan.turns


def _content(glue: str, parts: Iterable[Part]) -> list[Message]:
    """Content parts; neighbouring texts are one part, so templates that join parts change nothing."""
    content: list[Message] = []
    text = glue
    for part in parts:
        if isinstance(part, Text):
            text += part.text
            continue
        if text:
            content.append({"type": "text", "text": text})
            text = ""
        content.append({"type": "image_url", "uuid": part.frame.uuid})
    if text:
        content.append({"type": "text", "text": text})
    return content


# --- canonical bytes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segment:
    """Bytes ``[start, end)`` of a plan. ``section``: ``system``, a head section's name, ``user``, ``said``
    or ``generate``; ``turn``: index of the turn in the window, -1 in the head."""

    section: str
    turn: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PlanBytes:
    """:param frozen: length of head and answered turns, the part that only ever grows in a window"""

    data: bytes
    frozen: int
    plan: Plan

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Made when asked for: most plans are only compared."""
        segments: list[Segment] = []
        end = 0
        for section, turn, data, _ in _pieces(self.plan):
            start, end = end, end + len(data)
            segments.append(Segment(section, turn, start, end))
        return tuple(segments)

    def locate(self, offset: int) -> Segment:
        """The segment that holds byte ``offset`` (the last one beyond the end)."""
        segments = self.segments
        return next((s for s in segments if offset < s.end), segments[-1])


def plan_bytes(plan: Plan) -> PlanBytes:
    """Canonical bytes of a plan with a map of its segments.

    The open turn and the generation prompt come after ``frozen``. A lone surrogate in ``said`` or a
    persona is kept as its three bytes.
    """
    frozen: list[bytes] = []
    rest: list[bytes] = []
    for _, _, data, answered in _pieces(plan):
        (frozen if answered else rest).append(data)
    start = b"".join(frozen)
    return PlanBytes(start + b"".join(rest), len(start), plan)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _pieces(plan: Plan) -> Iterator[tuple[str, int, bytes, bool]]:
    """(section, turn, bytes, part of the frozen prefix). Control characters stand for a template's marks."""
    for name, data in _head_bytes(plan.head):
        yield name, -1, data, True
    opened = not plan.head.sections
    for index, turn in enumerate(_turns(plan)):
        user, said = _turn_bytes(turn, opened)
        opened = True
        yield "user", index, user, said is not None
        if said is not None:
            yield "said", index, said, True
    if plan.generate:
        yield "generate", len(plan.turns), _bytes("\x01assistant\n" + (plan.continue_with or "")), False


def _head_bytes(head: Head) -> list[tuple[str, bytes]]:
    """Each section by its name."""
    known: list[tuple[str, bytes]] | None = head.rendered.get("bytes")
    if known is None:
        known = head.rendered["bytes"] = [("system", _bytes("\x01system\n" + head.system + "\x02"))]
        mark = "\x01user\n"
        for section in head.sections:
            known.append((section.name, _bytes(mark + section.text + BETWEEN)))
            mark = ""
    return known


def _turn_bytes(turn: Turn, opened: bool) -> tuple[bytes, bytes | None]:
    """The two sides of a turn. ``opened``: its user's message begins with it."""
    known: tuple[bytes, bytes | None] | None = turn.rendered.get(opened)
    if known is None:
        text = "\x01user\n" if opened else ""
        for part in turn.user:
            text += part.text if isinstance(part, Text) else f"\x03{part.frame.uuid}\x03"
        said = None if turn.said is None else _bytes("\x01assistant\n" + turn.said + "\x02")
        known = turn.rendered[opened] = (_bytes(text + "\x02"), said)
    return known


# --- requests to the summarizer --------------------------------------------------------------------------


def summary_messages(
    want: WantSummary, pack: Pack, language: str, *, query: str | None, target: int
) -> list[Message]:
    """The request for one chunk's summary: the instructions, then each key frame after its time.

    ``target``: tokens asked for (``Memory.budget.summary_target``); ``query``: the standing query, if any.
    """
    lines = Lines(pack, language)
    prompt = _prompt(pack.summary_prompts, lines, want.start_ms, want.end_ms, query, target)
    parts: list[Part] = [Text(prompt + "\n")]
    for frame in want.frames:
        parts += (Text(lines.time_tag(frame.media_time_ms)), Image(frame))
    return [{"role": "user", "content": _content("", parts)}]


def rollup_messages(
    want: WantRollup, pack: Pack, language: str, *, query: str | None, target: int
) -> list[Message]:
    """The request that merges summaries into one block; the summaries are data, neutralised."""
    lines = Lines(pack, language)
    prompt = _prompt(pack.rollup_prompts, lines, want.start_ms, want.end_ms, query, target)
    return [{"role": "user", "content": [{"type": "text", "text": BETWEEN.join((prompt, *want.texts))}]}]


def _prompt(texts: Any, lines: Lines, start_ms: int, end_ms: int, query: str | None, target: int) -> str:
    return str(
        texts[lines.language].format(
            start=seconds(start_ms), end=seconds(end_ms),
            query=lines.clean(query) if query else lines.no_query(),
            language=_language_name(lines.language), target=target,
        )
    )  # fmt: skip


def _language_name(language: str) -> str:
    return LANGUAGE_NAMES.get(language, language)


# --- requests to a solver --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SolverPrompt:
    """What a solver reads besides pictures. ``system``: what is wanted of it; ``text``: data, neutralised."""

    system: str
    text: str


def solver_prompt(
    pack: Pack, language: str, *, question: str, note: str, qa: Sequence[str], target: int
) -> SolverPrompt:
    """A delegated question with what was said around it.

    ``note``: what the model said when it asked; ``qa``: rendered Q&A lines; ``target``: tokens asked for.
    """
    lines = Lines(pack, language)
    system = pack.solver_prompts[language].format(language=_language_name(language), target=target)
    said = ["\n".join((lines.qa_header(), *qa))] if qa else []
    said += [lines.solver_note(note)] if note else []
    return SolverPrompt(system, BETWEEN.join((*said, lines.solver_question(question))))


def frame_caption(pack: Pack, language: str, media_time_ms: int) -> str:
    """The time of a picture, as it stands before it in every prompt."""
    return Lines(pack, language).time_tag(media_time_ms)
