"""Facts that memory folds. Each is one entry of the session's log: ``kind`` and plain data.

Times are integers in milliseconds: ``media_time_ms`` on the session's media clock (first frame = 0).
The fold ignores kinds that it does not know, so one log can carry the session's facts too.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter
from pydantic import Field as PydanticField
from typing_extensions import Annotated  # noqa: UP035


class Fact(BaseModel):
    """Base: frozen plain data; ``kind`` is the discriminator in the log."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    kind: str


class MemoryOpened(Fact):
    """First fact of a session: everything the fold needs that is not itself a fact.

    ``pack`` and ``pack_digest`` name the prompt pack, ``renderer`` the version of the renderers.
    ``limits`` are the planned limits of the window (see ``memory.plan.Limits``) as plain data.
    ``max_pixels``: area of the largest picture, where that is less than the pack's.
    ``text_scale``: times its estimate that a text takes, by the served model's tokenizer, until the engine's
    own counts say better.
    """

    kind: Literal["memory_opened"] = "memory_opened"
    pack: str
    pack_digest: str
    renderer: int
    persona: str
    language: str
    instructions: str | None = None
    limits: dict[str, Any]
    jitter: float = 0.0
    max_pixels: int | None = None
    text_scale: float = 1.0


class FrameSeen(Fact):
    """A frame that passed ingress. ``uuid`` is its identity towards the engine and in the frame store.

    ``tokens``: what one such frame costs the model, when known. ``lossless``: it may not be thinned.
    """

    kind: Literal["frame_seen"] = "frame_seen"
    frame_id: str
    uuid: str
    media_time_ms: int
    width: int
    height: int
    size: int
    tokens: int | None = None
    lossless: bool = False
    operation_id: str | None = None


class FrameDropped(Fact):
    """A frame that will not be shown: ``late``, ``duplicate``, ``thinned``, ``quarantined``, ``rejected``."""

    kind: Literal["frame_dropped"] = "frame_dropped"
    frame_id: str
    media_time_ms: int
    reason: str


class QuerySet(Fact):
    kind: Literal["query_set"] = "query_set"
    query_id: str
    text: str
    media_time_ms: int


class QueryClearedFact(Fact):
    kind: Literal["query_cleared"] = "query_cleared"
    media_time_ms: int


class PersonaSet(Fact):
    kind: Literal["persona_set"] = "persona_set"
    persona: str
    instructions: str | None = None
    language: str | None = None


class PixelsSet(Fact):
    """Pictures of another size, from the next head on. ``max_pixels``: area of the largest; ``None``: the
    pack's."""

    kind: Literal["pixels_set"] = "pixels_set"
    max_pixels: int | None = None


class PackSet(Fact):
    """The session goes on with another prompt pack, from the next head on; the live window finishes on the
    pack it started with. ``limits``: as in ``memory_opened``, for the windows to come."""

    kind: Literal["pack_set"] = "pack_set"
    pack: str
    pack_digest: str
    persona: str
    language: str
    limits: dict[str, Any]


class MoveWanted(Fact):
    """The session is to go on at another engine: a next window comes early. ``engine``: the one it leaves."""

    kind: Literal["move_wanted"] = "move_wanted"
    engine: str


class TickBegun(Fact):
    """The open turn as it stands rides this tick; what arrives later belongs to the next turn.

    ``instructions``: text for this response alone; it rides the open turn.
    A ``tick_begun`` without an answer at the end of a log is a failed tick: no scar.
    """

    kind: Literal["tick_begun"] = "tick_begun"
    tick: int
    media_time_ms: int
    frame_ids: tuple[str, ...]
    instructions: str | None = None


class TickAnswered(Fact):
    """A tick ended with an answer (a gated tick too). The record behind ``decisions.jsonl``.

    ``said`` is what the window stores, byte for byte. ``said_is_generated``: it equals what the engine
    generated, so its KV is reusable. ``raw`` is what the model said, for the log alone.
    ``status``: completed, or incomplete when the stream broke after a delta, or the answer had as many
    tokens as it may have (``reason`` max_output_tokens).
    ``usage``: ``prompt``, ``completion`` and ``cached`` tokens (``memory.plan.Usage``); ``None`` when no
    engine was asked.
    """

    kind: Literal["tick_answered"] = "tick_answered"
    tick: int
    media_time_ms: int
    action: Literal["silence", "response", "delegate"]
    reason: str | None = None
    said: str
    said_is_generated: bool
    text: str = ""
    question: str | None = None
    raw: str = ""
    status: Literal["completed", "incomplete"] = "completed"
    response_id: str | None = None
    usage: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None


class TickFailed(Fact):
    """A tick ended with no delta: its frames stay in the open turn."""

    kind: Literal["tick_failed"] = "tick_failed"
    tick: int
    media_time_ms: int
    code: str


class SummaryLanded(Fact):
    kind: Literal["summary_landed"] = "summary_landed"
    chunk: int
    text: str
    start_ms: int
    end_ms: int
    attempt: int = 1


class SummaryFailed(Fact):
    kind: Literal["summary_failed"] = "summary_failed"
    chunk: int
    attempt: int
    reason: str
    final: bool = False


class RollupLanded(Fact):
    """``chunks`` (consecutive, oldest first) became one long-term block."""

    kind: Literal["rollup_landed"] = "rollup_landed"
    chunks: tuple[int, ...]
    text: str
    start_ms: int
    end_ms: int


class RollupFailed(Fact):
    kind: Literal["rollup_failed"] = "rollup_failed"
    chunks: tuple[int, ...]
    attempt: int
    reason: str


class HeadFrozen(Fact):
    """A head's bytes, verbatim. It becomes live with ``window_switched``."""

    kind: Literal["head_frozen"] = "head_frozen"
    head: int
    system: str
    memory: tuple[tuple[str, str], ...]
    first_frame_ms: int | None = None


class Prewarmed(Fact):
    """A prewarm request ended. ``prompt_tokens``: as counted by the engine, for the prefix audit.

    ``head``, ``turns`` and ``open_tick`` are those of the want.
    """

    kind: Literal["prewarmed"] = "prewarmed"
    head: int
    turns: int
    open_tick: int | None = None
    ok: bool
    prompt_tokens: int | None = None


class WindowSwitched(Fact):
    """The next tick uses head ``head``; ``carried`` turns of the old window came along."""

    kind: Literal["window_switched"] = "window_switched"
    window: int
    head: int
    carried: int
    reason: str


class DelegationBegun(Fact):
    kind: Literal["delegation_begun"] = "delegation_begun"
    delegation_id: str
    question: str
    media_time_ms: int
    tick: int


class DelegationDone(Fact):
    """``ok`` False: ``text`` is the reason. Shown to the model on the next tick."""

    kind: Literal["delegation_done"] = "delegation_done"
    delegation_id: str
    question: str
    text: str
    ok: bool
    media_time_ms: int


class HeardFact(Fact):
    """What of a response was heard, from the session's playback ledger."""

    kind: Literal["heard"] = "heard"
    response_id: str
    text: str
    complete: bool
    media_time_ms: int


class EngineLost(Fact):
    kind: Literal["engine_lost"] = "engine_lost"
    reason: str


class EngineRecovered(Fact):
    kind: Literal["engine_recovered"] = "engine_recovered"


class LimitsLearned(Fact):
    """An engine's refusal named a limit. A live window beyond it closes early; limits only ever shrink."""

    kind: Literal["limits_learned"] = "limits_learned"
    max_images: int


class ItemDeleted(Fact):
    """A frame or query the user deleted: forces a declared cold rebuild of the window."""

    kind: Literal["item_deleted"] = "item_deleted"
    frame_id: str | None = None
    query_id: str | None = None


class SpokenOpened(Fact):
    """First fact of a native session: everything ``memory.spoken`` needs that is not itself a fact.

    ``family`` and ``digest`` name the native profile. ``seed_tokens``: the largest seed, by which everything
    kept is sized. ``summarizer``: summaries are written by one; otherwise they are cut from what was said.
    """

    kind: Literal["spoken_opened"] = "spoken_opened"
    family: str
    digest: str
    language: str
    seed_tokens: int
    summarizer: bool = False


class UserSaid(Fact):
    """What was understood of the user's speech. ``item_id``: a later transcript of it replaces this one."""

    kind: Literal["user_said"] = "user_said"
    item_id: str
    text: str
    media_time_ms: int


class FramesShown(Fact):
    """``count`` pictures went to the engine with one unit; they are not kept."""

    kind: Literal["frames_shown"] = "frames_shown"
    count: int
    media_time_ms: int


class FramesDescribed(Fact):
    """What was to be seen in ``count`` pictures, shown from ``start_ms`` to ``end_ms``."""

    kind: Literal["frames_described"] = "frames_described"
    text: str
    count: int
    start_ms: int
    end_ms: int


class EngineSessionOpened(Fact):
    """The session goes on with this engine session. ``generation``: 0 for the first one.

    ``reason``: ``opened``, ``rolled_over`` or ``engine_lost``. ``seed``: what it was told of the
    conversation, verbatim. ``gap_ms``: nobody listened for so long. ``revision``: of the memory in the seed.
    """

    kind: Literal["engine_session_opened"] = "engine_session_opened"
    generation: int
    reason: str
    engine: str
    media_time_ms: int
    seed: str | None = None
    revision: int = 0
    gap_ms: int = 0


AnyFact = Annotated[
    MemoryOpened
    | FrameSeen
    | FrameDropped
    | QuerySet
    | QueryClearedFact
    | PersonaSet
    | PixelsSet
    | PackSet
    | MoveWanted
    | TickBegun
    | TickAnswered
    | TickFailed
    | SummaryLanded
    | SummaryFailed
    | RollupLanded
    | RollupFailed
    | HeadFrozen
    | Prewarmed
    | WindowSwitched
    | DelegationBegun
    | DelegationDone
    | HeardFact
    | EngineLost
    | EngineRecovered
    | LimitsLearned
    | ItemDeleted
    | SpokenOpened
    | UserSaid
    | FramesShown
    | FramesDescribed
    | EngineSessionOpened,
    PydanticField(discriminator="kind"),
]

_ADAPTER: TypeAdapter[AnyFact] = TypeAdapter(AnyFact)
KINDS: frozenset[str] = frozenset(cls.model_fields["kind"].default for cls in Fact.__subclasses__())


def parse_fact(kind: str, data: dict[str, Any]) -> AnyFact | None:
    """The typed fact of a log entry, or ``None`` for a kind that is not memory's."""
    return _ADAPTER.validate_python({**data, "kind": kind}) if kind in KINDS else None


def fact_data(fact: Fact) -> dict[str, Any]:
    """The ``data`` of a log entry: JSON-ready, without ``kind``."""
    return fact.model_dump(mode="json", exclude={"kind"}, exclude_none=True)
