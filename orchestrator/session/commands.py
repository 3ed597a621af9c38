"""Commands: what a client may ask of a session. Plain frozen data, executed in arrival order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.session.backend import SessionConfig
from orchestrator.session.items import Item
from orchestrator.session.told import ResponseOptions
from orchestrator.session.units import InputUnit
from orchestrator.wire.audio import AudioFormat
from orchestrator.wire.errors import VigilError


@dataclass(frozen=True, slots=True)
class Command:
    """``event_id``: the client's own id of the event, echoed in the error if the command is refused."""

    event_id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class AppendInput(Command):
    """One input unit. The same ``operation_id`` sent again is harmless: it is not taken twice.

    :param is_speech: the audio holds speech, by the client's hints or its loudness
    :param duration_ms: of the audio
    :param start_ms: where the audio begins on the client's own clock
    :param overlap_action, force_barge_in, force_listen, transcript: the client's hints for input that
        comes over a response
    :param item_id: the client's own id for the item that this opens
    :param repeatable: whoever sends it knows ``operation_id``; else it never comes again
    """

    operation_id: str
    unit: InputUnit
    is_speech: bool = field(default=False, kw_only=True)
    duration_ms: float = field(default=0.0, kw_only=True)
    start_ms: float = field(default=0.0, kw_only=True)
    overlap_action: str | None = field(default=None, kw_only=True)
    force_barge_in: bool = field(default=False, kw_only=True)
    force_listen: bool = field(default=False, kw_only=True)
    transcript: str | None = field(default=None, kw_only=True)
    item_id: str | None = field(default=None, kw_only=True)
    repeatable: bool = field(default=True, kw_only=True)

    @property
    def is_glimpse(self) -> bool:
        """Pictures of a live source and nothing else: newer ones make up for them."""
        hints = self.overlap_action or self.force_barge_in or self.force_listen or self.transcript
        unit = self.unit
        return bool(unit.frames) and unit.pcm is None and not (unit.lossless or hints or self.item_id)


@dataclass(frozen=True, slots=True)
class AppendText(Command):
    """Words for the user's open item; they become the standing query when it is committed."""

    text: str


@dataclass(frozen=True, slots=True)
class AskQuery(Command):
    """Set or replace the standing query. Its operation id is also the id of its conversation item.

    :param repeat_ok: ask again even if the text equals the standing query
    """

    text: str
    operation_id: str
    repeat_ok: bool = True


@dataclass(frozen=True, slots=True)
class ClearQuery(Command):
    """Clear the standing query; with ``item_id``, only if it is that item's."""

    item_id: str | None = None


@dataclass(frozen=True, slots=True)
class CreateItem(Command):
    """Add a message to the conversation. A user's text becomes the standing query.

    :param pictures: that a user's message carries, one unit each
    """

    item: Item
    previous_item_id: str | None = None
    pictures: tuple[AppendInput, ...] = ()


@dataclass(frozen=True, slots=True)
class ReturnOutput(Command):
    """What a tool of the client's gave back for a call of the model's."""

    item_id: str
    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class RetrieveItem(Command):
    item_id: str | None


@dataclass(frozen=True, slots=True)
class DeleteItem(Command):
    """Remove an item; if it holds the standing query, that is cleared."""

    item_id: str | None


@dataclass(frozen=True, slots=True)
class TruncateItem(Command):
    """The user heard the item's audio up to ``audio_end_ms`` and will hear no more of it."""

    item_id: str | None
    content_index: int
    audio_end_ms: float


@dataclass(frozen=True, slots=True)
class CommitInput(Command):
    """Seal the open user turn.

    :param create_response: and answer it
    :param is_speech: False: the client says that there was none
    :param duration_ms: of what is committed, as the client says
    :param item_id: the client's own id for the item, a spoken message; ``previous_item_id``: its place
    """

    create_response: bool = False
    is_speech: bool | None = field(default=None, kw_only=True)
    duration_ms: float | None = field(default=None, kw_only=True)
    item_id: str | None = field(default=None, kw_only=True)
    previous_item_id: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ClearInput(Command):
    """Drop input that was not answered yet."""


@dataclass(frozen=True, slots=True)
class CreateResponse(Command):
    """Ask for words now, from what has been appended or asked so far.

    :param in_history: False: what is heard of it stays out of the conversation
    :param metadata: returned with the response
    :param modalities: of this response, if not the session's; ``output_format`` likewise
    :param options: settings of this response alone
    """

    in_history: bool = field(default=True, kw_only=True)
    modalities: tuple[str, ...] | None = field(default=None, kw_only=True)
    output_format: AudioFormat | None = field(default=None, kw_only=True)
    options: ResponseOptions | None = field(default=None, kw_only=True)
    metadata: Mapping[str, Any] = field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, slots=True)
class Cancel(Command):
    """Stop the active response (``None``) or the one named, if it is the active one."""

    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClearOutput(Command):
    """Stop the playback of the active response, or of one that has ended and is still being played."""

    response_id: str | None = None


@dataclass(frozen=True, slots=True)
class Interrupt(Command):
    """Stop what is being answered and drop input that waits. ``barge_in``: the user's voice did it."""

    barge_in: bool


@dataclass(frozen=True, slots=True)
class PlaybackAck(Command):
    """How much of a response the client has played, in ms, cumulative.

    ``committed_ms``: what may count as heard; all that was played, if absent.
    """

    played_ms: float
    committed_ms: float | None = None
    response_id: str | None = None
    item_id: str | None = None


@dataclass(frozen=True, slots=True)
class SignalTurn(Command):
    """A client's remark on whose turn it is; changes nothing but what is shown."""

    event: str


@dataclass(frozen=True, slots=True)
class Heartbeat(Command):
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class AckEvents(Command):
    """The client has every event up to this number. Any JSON; the journal judges it."""

    seq: Any


@dataclass(frozen=True, slots=True)
class Configure(Command):
    """Replace the configuration, all or nothing."""

    config: SessionConfig


@dataclass(frozen=True, slots=True)
class Reconfigure(Command):
    """Apply a client's session object to the configuration as it then is, all or nothing."""

    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Close(Command):
    """End the session. ``error``: the fault that ends it, told to the client before the end."""

    reason: str = "client_close"
    error: VigilError | None = None


OperationCommand = AppendInput | AskQuery
"""Commands that a tick answers."""

AnyCommand = (
    AppendInput
    | AppendText
    | AskQuery
    | ClearQuery
    | CreateItem
    | ReturnOutput
    | RetrieveItem
    | DeleteItem
    | TruncateItem
    | CommitInput
    | ClearInput
    | CreateResponse
    | Cancel
    | ClearOutput
    | Interrupt
    | PlaybackAck
    | SignalTurn
    | Heartbeat
    | AckEvents
    | Configure
    | Reconfigure
    | Close
)

ASIDE = (PlaybackAck, Heartbeat, AckEvents)
"""Commands that say nothing about the input before or after them."""

IMMEDIATE = (
    RetrieveItem,
    TruncateItem,
    ClearInput,
    Cancel,
    ClearOutput,
    Interrupt,
    PlaybackAck,
    SignalTurn,
    Heartbeat,
    AckEvents,
    Close,
)
"""Commands that need not wait, in their turn, for the backend to carry out earlier ones."""

EXPIRY_REASONS = frozenset({"idle_ttl_expired", "disconnect_grace_expired", "request_cleanup"})
"""Close reasons told as ``session.expired``; every other one is ``session.closed``."""
