"""Read a model's answer as it streams: what it decided, and the text a client may see.

Outcome table (the pack's tags, any spelling of them; "text" is text that is not blank):

=====================================================  ====================================================
empty                                                  silence, unhealthy
no tag                                                 silence, unhealthy; never speech
the response tag alone                                 silence, but not a genuine one
text before the first tag                              dropped (unless a delegation tag makes it the note)
silence and response tags in any order, with text      response
silence and response tags without text                 silence
several lines                                          all kept
a delegation tag anywhere                              delegate; the text before it is the note
delegation without a question                          the standing query is the question; none: no delegation
delegation that the persona was not offered            no delegation; its question is dropped
several delegation tags                                the first question only
wrong case or slash of a tag                           accepted and counted
a truncated tag at the end                             discarded
a control token of the chat template                   never shown
=====================================================  ====================================================

What is held back, so that nothing emitted is ever taken back: text without a tag; text after a silence tag
until a response or delegation tag; a note without a response tag until its question begins; what may be
the beginning of a tag; whitespace and broken characters at the end. Whitespace: leading and trailing is
dropped, inner is kept byte for byte, a tag or control token inside the text leaves one line break.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.backends.replay.tags import Grammar, Hit, Kind, Scanner
from orchestrator.session.backend import Action

_BROKEN = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one answer.

    :param text: all visible text: the response, or the note of a delegation
    :param healthy: False when there was nothing, or no tag
    :param genuine_silence: the model said the silence tag and nothing to speak
    :param raw: the answer as generated, stop text included
    :param parses: ``raw`` has one of the model's own forms, so the window may keep it byte for byte
    :param oddities: what was wrong with the form, by name, with counts
    """

    action: Action
    text: str
    question: str | None
    healthy: bool
    genuine_silence: bool
    raw: str
    parses: bool
    oddities: Mapping[str, int] = field(default_factory=dict)


class _Visible:
    """Text on its way out: trimmed, with line breaks where tags were."""

    def __init__(self) -> None:
        self._tail = ""
        self._break = False
        self.text = ""

    def add(self, text: str) -> str:
        if not self.text or self._break:
            text = text if self._tail else text.lstrip()
        whole = self._tail + text
        end = len(whole)
        while end and (whole[end - 1].isspace() or whole[end - 1] == _BROKEN):
            end -= 1
        shown, self._tail = whole[:end], whole[end:]
        if not shown:
            return ""
        if self._break:
            shown = "\n" + shown
            self._break = False
        self.text += shown
        return shown

    def line_break(self) -> None:
        self._tail = ""
        self._break = bool(self.text)

    @property
    def broken(self) -> int:
        return self._tail.count(_BROKEN)


class AnswerParser:
    """Feed deltas, emit what ``feed`` and ``finish`` return, then read ``outcome``.

    :param standing_query: the question of a delegation that names none
    :param prefix: assistant text that the engine continued; it is part of the answer
    :param offered: the model was told that it may delegate
    """

    def __init__(
        self,
        grammar: Grammar,
        standing_query: str | None = None,
        prefix: str = "",
        *,
        offered: bool = True,
    ) -> None:
        self._grammar = grammar
        self._query = standing_query
        self._offered = offered
        self._scanner = Scanner(grammar)
        self._raw = ""
        self._seen: Counter[Kind] = Counter()
        self._odd: Counter[str] = Counter()
        self._visible = _Visible()
        self._waiting = _Visible()  # text that a later tag may make visible
        self._question = _Visible()
        self._target = self._waiting
        self._closed = False  # the first question is complete: the rest belongs to nobody
        self.feed(prefix)

    @property
    def delegating(self) -> bool:
        return self._offered and bool(self._seen[Kind.DELEGATION])

    def feed(self, delta: str) -> str:
        """Visible text that is now certain."""
        self._raw += delta
        out = ""
        for piece in self._scanner.feed(delta):
            out += self._tag(piece) if isinstance(piece, Hit) else self._text(piece)
        return out

    def finish(self) -> str:
        """The end of the answer: the rest of the visible text."""
        if self._scanner.held:
            self._odd["truncated_tag"] += 1
        if self._visible.broken or self._question.broken:
            self._odd["broken_character"] += 1
        return self._note() if self.delegating and self._asked() else ""

    def _text(self, text: str) -> str:
        if self._closed:
            if text.strip():
                self._odd["text_after_question"] = 1
            return ""
        shown = self._target.add(text)
        if self._target is self._visible:
            return shown
        if self._target is self._question and shown and self._offered and self._named():
            return self._note()
        return ""

    def _tag(self, hit: Hit) -> str:
        if hit.kind is Kind.CONTROL:
            self._odd["control_token"] += 1
            self._target.line_break()
            return ""
        self._odd["tag_spelling"] += not hit.canonical
        first = not self._seen
        self._odd["repeated_tag"] += hit.kind is not Kind.DELEGATION and self._seen[hit.kind] > 0
        self._seen[hit.kind] += 1
        if hit.kind is Kind.DELEGATION:
            return self._delegation_tag()
        if first and self._waiting.text:
            self._odd["text_before_tag"] += 1
            self._waiting = self._target = _Visible()
        if hit.kind is Kind.SILENCE:
            self._target.line_break()
            return ""
        self._odd["tag_order"] += self.delegating
        self._target, self._closed = self._visible, False
        self._visible.line_break()
        return self._note()

    def _delegation_tag(self) -> str:
        if not self._named():
            self._target = self._question = _Visible()
            return ""
        self._odd["extra_delegation"] += 1
        self._closed = True
        return ""

    def _note(self) -> str:
        """Show what waited for a response tag or for a question."""
        waiting, self._waiting = self._waiting.text, _Visible()
        if not waiting:
            return ""
        shown = self._visible.add(waiting)
        self._visible.line_break()
        return shown

    def _named(self) -> str:
        """The question that the delegation names; broken characters and beginnings of tags are none."""
        text = self._question.text
        return text if self._grammar.without_tags(text).replace(_BROKEN, "").strip() else ""

    def _asked(self) -> str | None:
        return self._named() or (self._query or "").strip() or None

    def outcome(self) -> Outcome:
        """Valid after ``finish``."""
        text, seen, odd = self._visible.text, self._seen, self._odd.copy()
        tagged = any(seen[k] for k in (Kind.SILENCE, Kind.RESPONSE, Kind.DELEGATION))
        question = self._asked() if self.delegating else None
        if self.delegating:
            odd["delegation_without_question"] += not self._named()
        action = Action.DELEGATE if question else Action.RESPONSE if text else Action.SILENCE
        if not tagged:
            odd["no_tag" if self._raw.strip() else "empty"] += 1
        elif seen[Kind.DELEGATION] and not self._offered:
            odd["unoffered_delegation"] += 1
        elif seen[Kind.SILENCE] and (seen[Kind.RESPONSE] or self.delegating):
            odd["tag_mix"] += 1
        elif seen[Kind.RESPONSE] and not text and not self.delegating:
            odd["empty_response"] += 1
        elif self._waiting.text:
            odd["text_after_silence"] += 1
        oddities = {name: int(count) for name, count in odd.items() if count}
        return Outcome(
            action=action,
            text=text,
            question=question,
            healthy=tagged,
            genuine_silence=action is Action.SILENCE and bool(seen[Kind.SILENCE]),
            raw=self._raw,
            parses=not oddities.keys() - {"tag_spelling"},
            oddities=oddities,
        )


def canonical(grammar: Grammar, action: Action, text: str, question: str | None = None) -> str:
    """The form in which the window stores what the client received, if it cannot store the answer itself.

    ``text`` is visible text, so it holds no tag; a question may be a user's own words.
    """
    tags = grammar.tags
    if action is Action.DELEGATE and tags.delegation:
        asked = f"{tags.delegation} {grammar.without_tags(question or '')}".rstrip()
        return f"{tags.response} {text} {asked}" if text else asked
    if action is Action.SILENCE or not text:
        return tags.silence
    return f"{tags.response} {text}"
