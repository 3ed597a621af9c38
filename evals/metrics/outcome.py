"""What became of each slot and of each thing said, for one clip. Pure.

A slot's reply is what was said within its span, to its query, one act for each slot: as many slots as
possible have one, and of those choices the one where replies come earliest. What else is said there is extra.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evals.metrics.acts import Act, Did
from evals.metrics.answers import normal, right
from evals.metrics.matching import EDGE_S, match_times
from evals.metrics.official import joined, official
from evals.readers.clip import Clip, Judging, Kind, Official, Slot

NEAR_S = 5.0
"""Said so long before a slot's span is early, so long after an unanswered one late; all else is false."""

OTHER = "other"
"""Kind of a query whose slots and skill tell none."""


class Place(StrEnum):
    """Where a thing said belongs. All but ``reply`` (right or wrong) and ``extra`` are false alerts."""

    REPLY = "reply"
    EXTRA = "extra"
    EARLY = "early"
    LATE = "late"
    FALSE = "false_alert"


class Why(StrEnum):
    """What a slot came to. ``unjudged``: a language model has to say, and none did."""

    RIGHT = "right"
    MISSED = "missed"
    WRONG = "wrong_answer"
    NOT_DELEGATED = "not_delegated"
    DELEGATED = "delegated"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a judge is asked: is ``reply`` right for ``question``, one of ``accepted`` being so?"""

    question: str
    accepted: tuple[str, ...]
    reply: str


Verdicts = Mapping[Asked, bool]
"""What a judge said; without an entry nothing is known."""


@dataclass(frozen=True, slots=True)
class SlotOutcome:
    """:param right: ``None`` where unjudged; ``official``: by the data set's own rule, where there is one"""

    slot: Slot
    skill: str
    act: Act | None
    why: Why
    official: bool | None

    @property
    def right(self) -> bool | None:
        return None if self.why is Why.UNJUDGED else self.why is Why.RIGHT

    @property
    def kind(self) -> str:
        return self.slot.kind.value

    @property
    def of_memory(self) -> bool:
        """What is asked can be seen no more."""
        end = self.slot.evidence_end_s
        return self.slot.chunks_later is not None or (end is not None and end < self.slot.start_s)


@dataclass(frozen=True, slots=True)
class SaidOutcome:
    """A thing said. ``slot``: whose reply it is or whose span it lies in or near.

    :param repeated: the same words as what was said before it to the same query, and no slot's reply
    """

    act: Act
    kind: str
    skill: str
    place: Place
    slot: str | None
    repeated: bool


@dataclass(frozen=True, slots=True)
class ClipOutcome:
    """:param watched_s: media time that was watched
    :param unreached: slots that begin after it, or whose query came after the last decision: not judged
    """

    clip: Clip
    acts: tuple[Act, ...]
    watched_s: float
    slots: tuple[SlotOutcome, ...]
    said: tuple[SaidOutcome, ...]
    unreached: tuple[str, ...]


def kind_of(clip: Clip, query: str | None) -> str:
    """Kind of a query: of its first slot; without slots of its skill, where that is one."""
    if query is None:
        return OTHER
    slots = clip.slots_of(query)
    if slots:
        return slots[0].kind.value
    skill = clip.query(query).skill
    return skill if skill in set(Kind) else OTHER


def skill_of(clip: Clip, query: str | None) -> str:
    return OTHER if query is None else clip.query(query).skill


def outcome_of(clip: Clip, acts: Sequence[Act], watched_s: float, verdicts: Verdicts) -> ClipOutcome:
    """Judge one clip.

    :param acts: as ``acts_of`` gives them, in time order
    """
    last_s = acts[-1].at_s if acts else -1.0
    reached = [s for s in clip.slots if s.start_s < watched_s and clip.query(s.query).at_s <= last_s]
    judged = {slot.id for slot in reached}
    free = {query.id for query in clip.queries if not query.judged}
    said = [act for act in acts if act.spoke and act.query not in free]
    replies = _replies(reached, said)
    slots = tuple(_slot(clip, slot, replies.get(slot.id), acts, verdicts) for slot in reached)
    return ClipOutcome(
        clip,
        tuple(acts),
        watched_s,
        slots,
        tuple(_said(clip, reached, said, replies)),
        tuple(slot.id for slot in clip.slots if slot.id not in judged),
    )


def asked_of(clip: Clip, acts: Sequence[Act], watched_s: float) -> set[Asked]:
    """Everything a judge has to be asked about this clip."""
    asked: set[Asked] = set()
    for found in outcome_of(clip, acts, watched_s, {}).slots:
        if found.why is Why.UNJUDGED and found.act is not None:
            asked.add(_asked(clip, found.slot, found.act.text))
        if found.slot.official is Official.OMNI_DUPLEX and (text := joined(found.slot, acts)):
            asked.add(_asked(clip, found.slot, text))
    return asked


def _replies(slots: Sequence[Slot], said: Sequence[Act]) -> dict[str, Act]:
    spans = [(slot.start_s, slot.end_s, slot.start_s) for slot in slots]
    same = [[act.query == slot.query for slot in slots] for act in said]
    return {slots[n].id: said[a] for a, n in match_times([act.at_s for act in said], spans, same)}


def _slot(clip: Clip, slot: Slot, reply: Act | None, acts: Sequence[Act], verdicts: Verdicts) -> SlotOutcome:
    text = reply.text if reply is not None and reply.did is Did.RESPONSE else None
    if slot.official is Official.OMNI_DUPLEX:
        window = joined(slot, acts)
        theirs = verdicts.get(_asked(clip, slot, window)) if window else False
    else:
        theirs = official(clip, slot, text, acts)
    why = Why.MISSED if reply is None else _why(clip, slot, reply, verdicts)
    return SlotOutcome(slot, skill_of(clip, slot.query), reply, why, theirs)


def _why(clip: Clip, slot: Slot, reply: Act, verdicts: Verdicts) -> Why:
    if slot.kind is Kind.DELEGATE:
        return Why.RIGHT if reply.did is Did.DELEGATE else Why.NOT_DELEGATED
    if reply.did is Did.DELEGATE:
        return Why.DELEGATED
    verdict = right(slot, reply.text)
    if slot.judging is Judging.JUDGE:
        verdict = verdicts.get(_asked(clip, slot, reply.text))
    if verdict is None:
        return Why.UNJUDGED
    return Why.RIGHT if verdict else Why.WRONG


def _asked(clip: Clip, slot: Slot, reply: str) -> Asked:
    return Asked(clip.query(slot.query).text, slot.accepted, reply)


def _said(
    clip: Clip, slots: Sequence[Slot], said: Sequence[Act], replies: Mapping[str, Act]
) -> list[SaidOutcome]:
    of = {act.tick: name for name, act in replies.items()}
    before: dict[str | None, str] = {}
    found = []
    for act in said:
        mine = [slot for slot in slots if slot.query == act.query]
        place, slot = (Place.REPLY, of[act.tick]) if act.tick in of else _place(act.at_s, mine, set(replies))
        words = normal(f"{act.text} {act.question}")
        repeated = place is not Place.REPLY and bool(words) and before.get(act.query) == words
        before[act.query] = words
        found.append(
            SaidOutcome(act, kind_of(clip, act.query), skill_of(clip, act.query), place, slot, repeated)
        )
    return found


def _place(at: float, slots: Sequence[Slot], answered: set[str]) -> tuple[Place, str | None]:
    """Of something said that is no slot's reply."""
    for slot in slots:
        if slot.start_s - EDGE_S <= at <= slot.end_s + EDGE_S:
            return Place.EXTRA, slot.id
    late = [s for s in slots if s.id not in answered and 0 < at - s.end_s <= NEAR_S]
    if late:
        return Place.LATE, max(late, key=lambda s: s.end_s).id
    early = [s for s in slots if 0 < s.start_s - at <= NEAR_S]
    if early:
        return Place.EARLY, min(early, key=lambda s: s.start_s).id
    return Place.FALSE, None
