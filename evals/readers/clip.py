"""An annotated stream: what is shown, what is asked when, and what would be right to do. Pure data.

One ``Clip`` is one stream with one session. Every reader makes clips, every metric judges by them. All times
are seconds of media time, the first frame being 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(min_length=1)]
ClipId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=160)]
"""Names a folder of a run too."""


class Kind(StrEnum):
    """What a slot asks of the model.

    ``alert``: speak up once, unasked, when it happens. ``repeat``: one of several such times of one query.
    ``answer``: reply to a question. ``count``: reply with the number so far. ``delegate``: hand the question
    over instead of answering it.
    """

    ALERT = "alert"
    REPEAT = "repeat"
    ANSWER = "answer"
    COUNT = "count"
    DELEGATE = "delegate"


class Judging(StrEnum):
    """How a reply is held against ``Slot.accepted``.

    ``any``: that it came in time is enough. ``exact``: equal to one of them, case, punctuation and articles
    apart. ``contains``: one of them stands in it as whole words. ``choice``: the one letter it names.
    ``number``: the one number it names. ``yes_no``: the one of the two it says. ``judge``: a language model
    compares.
    """

    ANY = "any"
    EXACT = "exact"
    CONTAINS = "contains"
    CHOICE = "choice"
    NUMBER = "number"
    YES_NO = "yes_no"
    JUDGE = "judge"


class Official(StrEnum):
    """The rule of a data set's own scorer; applied beside ours, never instead."""

    OVO_CHOICE = "ovo_choice"
    OVO_YES_NO = "ovo_yes_no"
    OVO_COUNT = "ovo_count"
    STREAMINGBENCH_PROACTIVE = "streamingbench_proactive"
    OMNI_DUPLEX = "omni_duplex"


class Expected(StrEnum):
    """What a stretch of speech should do to a model that is talking.

    ``stop``: it is a barge-in. ``go_on``: a cough, a "yes", someone else. ``answer``: a question of its own.
    """

    STOP = "stop"
    GO_ON = "go_on"
    ANSWER = "answer"


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Query(_Record):
    """A standing query; it replaces the one before it.

    :param at_s: asked just before the first frame at or after this time
    :param until_s: withdrawn just before the first frame at or after this time; default: never
    :param skill: what it takes, for tables: ``alert``, ``count``, ``read``, ``ago`` ...
    :param audio: file that speaks the text, where it is spoken; it ends at ``at_s``
    :param judged: whether its slots say all that is right to say; where they do not, nothing that is said to
        it counts as right, wrong or too much
    """

    id: Name
    at_s: Seconds = 0.0
    until_s: Seconds | None = None
    text: Text
    skill: Name = "answer"
    audio: str | None = None
    judged: bool = True

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.until_s is not None and self.until_s <= self.at_s:
            raise ValueError(f"until_s {self.until_s} does not lie after at_s {self.at_s}")
        return self


class Slot(_Record):
    """A span in which one reply to a query is right.

    :param start_s: a reply before it is early; ``end_s``: one after it is late (both included)
    :param onset_s: when the reply is due, what delays are measured from; default: ``start_s``
    :param evidence_s: earliest time at which the answer can be known; default: ``start_s``
    :param evidence_end_s: last time at which it could be seen; what is asked later is asked of memory
    :param chunks_later: a memory probe: meant to be asked so many chunk boundaries after the evidence
    :param accepted: right answers, any one of them; see ``judging``
    :param choices: texts of the options A, B, C ... where a letter is asked for
    """

    id: Name
    query: Name
    kind: Kind
    start_s: Seconds
    end_s: Seconds
    onset_s: Seconds | None = None
    evidence_s: Seconds | None = None
    evidence_end_s: Seconds | None = None
    chunks_later: Annotated[int, Field(ge=0)] | None = None
    accepted: tuple[Text, ...] = ()
    judging: Judging = Judging.ANY
    choices: tuple[Text, ...] = ()
    official: Official | None = None

    @property
    def due_s(self) -> float:
        """When the reply is due."""
        return self.start_s if self.onset_s is None else self.onset_s

    @property
    def known_s(self) -> float:
        """Earliest time at which the answer can be known."""
        return self.start_s if self.evidence_s is None else self.evidence_s

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.end_s < self.start_s:
            raise ValueError(f"end_s {self.end_s} lies before start_s {self.start_s}")
        if not self.start_s <= self.due_s <= self.end_s:
            raise ValueError(f"onset_s {self.onset_s} lies outside of {self.start_s} to {self.end_s}")
        if self.known_s > self.due_s:
            raise ValueError(f"evidence_s {self.evidence_s} lies after the reply is due, {self.due_s}")
        if self.evidence_end_s is not None and self.evidence_end_s < self.known_s:
            raise ValueError(f"evidence_end_s {self.evidence_end_s} lies before the evidence, {self.known_s}")
        if self.judging is not Judging.ANY and not self.accepted:
            raise ValueError(f"judging {self.judging.value} needs accepted answers")
        if self.judging is Judging.CHOICE:
            wrong = [a for a in self.accepted if not (len(a) == 1 and "A" <= a <= "Z")]
            if wrong:
                raise ValueError(f"accepted {wrong[0]!r} is no letter A to Z")
        if self.judging is Judging.YES_NO and not set(self.accepted) <= {"Yes", "No"}:
            raise ValueError("accepted is Yes or No")
        if self.judging is Judging.NUMBER:
            wrong = [a for a in self.accepted if not _is_number(a)]
            if wrong:
                raise ValueError(f"accepted {wrong[0]!r} is no number")
        return self


class Silence(_Record):
    """A stretch in which nothing may be said. ``why``: for the reader of a report."""

    start_s: Seconds
    end_s: Seconds
    why: str = ""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.end_s <= self.start_s:
            raise ValueError(f"end_s {self.end_s} does not lie after start_s {self.start_s}")
        return self


class Speech(_Record):
    """Someone speaks, for models that listen.

    :param audio: file of the speech; ``None``: it is in the clip's sound already
    :param expects: what it should do to a model that is talking
    :param within_ms: how soon the model should be silent, or answer
    """

    id: Name
    start_s: Seconds
    end_s: Seconds
    text: str = ""
    audio: str | None = None
    expects: Expected = Expected.ANSWER
    within_ms: Annotated[int, Field(gt=0)] = 1000

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.end_s <= self.start_s:
            raise ValueError(f"end_s {self.end_s} does not lie after start_s {self.start_s}")
        return self


class Clip(_Record):
    """One annotated stream.

    :param video: name of a file, found in the data set's folder; or
    :param scene: what a generator makes it of, JSON-ready; one of the two is there
    :param audio: file of the stream's own sound, where it is not in the video
    :param dataset: name of the format it was read from; ``tags``: task and group names, for tables
    :param silences: stretches that must stay silent, beside those before the evidence of each slot
    :param meta: what else the source said, JSON-ready; carried along and never judged by
    """

    format: Literal["vigil-clip-1"] = "vigil-clip-1"
    id: ClipId
    dataset: Name = "vigil"
    tags: tuple[Name, ...] = ()
    video: Name | None = None
    scene: Mapping[str, Any] | None = None
    audio: str | None = None
    duration_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    queries: tuple[Query, ...] = ()
    slots: tuple[Slot, ...] = ()
    silences: tuple[Silence, ...] = ()
    speech: tuple[Speech, ...] = ()
    meta: Mapping[str, Any] = Field(default_factory=dict)

    def query(self, name: str) -> Query:
        return next(q for q in self.queries if q.id == name)

    def slots_of(self, query: str) -> tuple[Slot, ...]:
        """In time order."""
        return tuple(sorted((s for s in self.slots if s.query == query), key=lambda s: (s.start_s, s.end_s)))

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.video is None and self.scene is None:
            raise ValueError("a clip has a video or a scene")
        for what, ids in (
            ("query", [q.id for q in self.queries]),
            ("slot", [s.id for s in self.slots]),
            ("speech", [s.id for s in self.speech]),
        ):
            twice = {name for name in ids if ids.count(name) > 1}
            if twice:
                raise ValueError(f"{what} id {min(twice)!r} is given twice")
        asked = {q.id: q.at_s for q in self.queries}
        open_ended = {q.id for q in self.queries if not q.judged}
        for slot in self.slots:
            if slot.query in open_ended:
                raise ValueError(f"slot {slot.id!r} is of the query {slot.query!r}, which is not judged")
            if slot.query not in asked:
                raise ValueError(f"slot {slot.id!r} names the query {slot.query!r}, which is not asked")
            if slot.end_s < asked[slot.query]:
                raise ValueError(f"slot {slot.id!r} ends before its query is asked")
        if self.duration_s is not None:
            late = [s.id for s in self.slots if s.start_s > self.duration_s]
            late += [q.id for q in self.queries if q.at_s > self.duration_s]
            if late:
                raise ValueError(f"{late[0]!r} begins after the end, {self.duration_s} s")
        return self


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
