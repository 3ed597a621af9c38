"""Input on its way to the backend: bytes on account, the user's open item, and turns that wait.

Bytes are reserved when a command is admitted and released when the backend has taken the unit, or when it is
discarded. A turn that waits (committed and unanswered) is a ``Payload``: units in order, all but the last
only to be listened to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.session.commands import AppendInput
from orchestrator.session.events import TranscriptionCompleted
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.limits import SessionLimits
from orchestrator.session.operations import OperationLedger
from orchestrator.session.units import InputUnit, Modality
from orchestrator.wire.errors import ResourceExhausted


class InputBytes:
    """Bytes admitted but not yet taken, by operation. Never above ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[str, int] = {}
        self.pending = 0

    def check(self, size: int) -> None:
        """Refuse what would not fit."""
        if self.pending + size > self._limit:
            raise ResourceExhausted(
                f"{self.pending} of {self._limit} bytes of input are pending; "
                f"wait until some is taken, then send this append ({size} bytes) again",
                code="input_backpressure",
            )

    def reserve(self, operation_id: str, size: int) -> None:
        """Charge ``size`` bytes, or refuse and retain nothing."""
        self.check(size)
        self._held[operation_id] = size
        self.pending += size

    def queue(self, size: int) -> None:
        """Charge a command that is no operation while it is queued; ``size`` bytes."""
        self.reserve("", size)
        self._held.pop("")

    def unqueue(self, size: int) -> None:
        self.pending -= size

    def release(self, operation_id: str) -> None:
        """Give back exactly what was reserved for the operation."""
        self.pending -= self._held.pop(operation_id)


class InputAccounts:
    """Bytes and operations of a session's input: charged at admission, settled once."""

    def __init__(self, limits: SessionLimits) -> None:
        self.bytes = InputBytes(limits.max_pending_input_bytes)
        self.operations = OperationLedger(limits.remembered_operations)

    def reserve(self, operation_id: str, size: int, *, repeatable: bool = True) -> bool:
        """Charge an operation before it is queued; False when it is known already."""
        if not self.operations.begin(operation_id, repeatable=repeatable):
            return False
        try:
            self.bytes.reserve(operation_id, size)
        except ResourceExhausted:
            self.operations.refuse(operation_id)
            raise
        return True

    def settle(self, operation_id: str, *, taken: bool) -> None:
        """The operation is over: its bytes are free, and a refused one may be sent again."""
        self.bytes.release(operation_id)
        if taken:
            self.operations.accept(operation_id)
        else:
            self.operations.refuse(operation_id)

    def statistics(self) -> dict[str, object]:
        return {
            "pending_input_bytes": self.bytes.pending,
            "operations": self.operations.statistics(),
        }


@dataclass(frozen=True, slots=True)
class HeldUnit:
    """A unit that waits in the session. ``appends``: the operations it came in, each with its own charge."""

    unit: InputUnit
    appends: tuple[AppendInput, ...]

    @classmethod
    def of(cls, append: AppendInput) -> HeldUnit:
        return cls(append.unit, (append,))

    def joined(self, later: HeldUnit) -> HeldUnit:
        return HeldUnit(self.unit.joined(later.unit), (*self.appends, *later.appends))


def hold(units: tuple[HeldUnit, ...], append: AppendInput) -> tuple[HeldUnit, ...]:
    """Add an append to the units of an open item.

    A frame group without audio is a unit of its own; audio goes on in the unit that audio began.
    """
    new = HeldUnit.of(append)
    if units and new.unit.pcm and units[-1].unit.pcm:
        return (*units[:-1], units[-1].joined(new))
    return (*units, new)


@dataclass(frozen=True, slots=True)
class Payload:
    """A committed turn that waits for its answer.

    :param create: a response was asked for with the commit
    :param turn: the model turn that its first overlapping chunk reserved, if it overlapped
    """

    units: tuple[HeldUnit, ...] = ()
    create: bool = False
    turn: int | None = None

    @property
    def appends(self) -> tuple[AppendInput, ...]:
        return tuple(append for held in self.units for append in held.appends)

    def merged(self, new: Payload) -> Payload:
        """This payload and one committed later, as one turn.

        The later one follows as units of its own if it has prefixes or if this one is a picture; else both
        last units become one, so that a picture joins the speech it was shown with and speech goes on.
        """
        create = self.create or new.create
        turn = self.turn if self.turn is not None else new.turn
        if not self.units or not new.units:
            return Payload(self.units or new.units, create, turn)
        picture = self.units[-1].unit.modality is Modality.VISION
        if len(new.units) > 1 or picture:
            return Payload((*self.units, *new.units), create, turn)
        return Payload((*self.units[:-1], self.units[-1].joined(new.units[0])), create, turn)


@dataclass(slots=True)
class OpenItem:
    """The user's item since the last commit or clear.

    :param units: held for the commit; empty where the backend records input as it comes
    :param text: typed; ``transcript``: said, in ``speech_ms`` of speech
    :param streamed: input of it went to the backend already
    :param overlap_ms: speech in it that came over a response
    :param turn: the model turn that its first overlapping chunk reserved
    :param previous_item_id: the item that it is put behind; ``None``: behind all others
    """

    item_id: str
    previous_item_id: str | None = None
    speech: bool = False
    speech_told: bool = False
    has_audio: bool = False
    frames: int = 0
    text: str = ""
    transcript: str = ""
    speech_ms: float = 0.0
    streamed: bool = False
    audio_ms: float = 0.0
    overlap_ms: float = 0.0
    turn: int | None = None
    units: tuple[HeldUnit, ...] = field(default=())

    def note(self, append: AppendInput) -> None:
        """Count what the append brings."""
        self.speech = self.speech or append.is_speech
        self.has_audio = self.has_audio or append.unit.pcm is not None
        self.frames += len(append.unit.frames)
        self.audio_ms += append.duration_ms

    @property
    def has_content(self) -> bool:
        """There is something to answer: speech, a picture, words."""
        return self.speech or self.frames > 0 or bool(self.text or self.transcript)

    def snapshot(self, *, is_speech: bool | None = None) -> Item:
        """The user's item as the conversation shows it. ``is_speech``: False where it is said to be none."""
        parts: list[ContentPart] = []
        if self.has_audio or not (self.frames or self.text):
            parts.append(ContentPart("input_audio", self.transcript, is_speech=is_speech))
        if self.frames:
            parts.append(ContentPart("input_image"))
        if self.text:
            parts.append(ContentPart("input_text", self.text))
        return Item(self.item_id, "user", content=tuple(parts))

    def transcription(self) -> TranscriptionCompleted | None:
        """Told when its words are known, if it has any that were said."""
        if not self.transcript:
            return None
        return TranscriptionCompleted(self.item_id, self.transcript, round(self.speech_ms))

    def payload(self, *, create: bool) -> Payload:
        return Payload(self.units, create, self.turn)
