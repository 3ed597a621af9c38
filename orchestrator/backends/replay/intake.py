"""Frames on their way in: checked, named, kept durably, then known to memory. All of a unit or nothing."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bridges.frames import FrameError
from memory.facts import FrameDropped, FrameSeen
from memory.recent import RecentIds
from memory.store.base import FrameStore
from memory.store.errors import StoreError
from orchestrator.backends.replay.journal import Journal
from orchestrator.backends.replay.operations import Operations
from orchestrator.backends.replay.suspects import Suspects
from orchestrator.backends.store_faults import told_of
from orchestrator.session.backend import Ids
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, Unsupported

_log = logging.getLogger(__name__)

MAX_WAITING_LOSSLESS = 64
_REMEMBERED = 1024


class Checked(Protocol):
    """A frame that passed ingress: the bytes to use (re-encoded if need be), its size in pixels."""

    @property
    def data(self) -> bytes: ...
    @property
    def width(self) -> int: ...
    @property
    def height(self) -> int: ...


FrameCheck = Callable[[bytes, int], Awaitable[Checked]]
"""Decodes one frame and bounds its area in pixels; raises ``FrameError`` when it cannot be used."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A frame that is stored and sound, and not yet known to memory. ``named``: by the client, so that it may
    come again."""

    frame_id: str
    named: bool
    uuid: str
    media_time_ms: int
    width: int
    height: int
    size: int


class Intake:
    """Admits units of frames.

    :param tenant_key: frame ids towards the engine are keyed by it, so tenants never share one
    :param tokens_per_pixel: what a frame costs the model
    """

    def __init__(
        self,
        journal: Journal,
        operations: Operations,
        suspects: Suspects,
        check: FrameCheck,
        store: FrameStore,
        tenant_key: bytes,
        tokens_per_pixel: float,
        ids: Ids,
    ) -> None:
        self._journal = journal
        self._operations = operations
        self._suspects = suspects
        self._check = check
        self._store = store
        self._key = tenant_key
        self._tokens_per_pixel = tokens_per_pixel
        self._ids = ids
        self._seen = RecentIds(_REMEMBERED)

    async def admit(self, unit: InputUnit) -> tuple[Admitted, ...]:
        """Check a unit and store its frames, or raise a ``VigilError``; memory knows nothing of it yet."""
        if unit.pcm:
            raise Unsupported(
                "this model takes pictures only; send the append without audio", code="invalid_input_modality"
            )
        if not unit.frames:
            raise InvalidRequest("the append carries no frame", code="bad_event")
        if unit.lossless and len(self._journal.waiting) + len(unit.frames) > MAX_WAITING_LOSSLESS:
            raise ResourceExhausted(
                f"{len(self._journal.waiting)} frames wait for their ticks; append again after an answer",
                code="input_backpressure",
                retry_after_s=1.0,
            )
        admitted: list[Admitted] = []
        payloads: dict[str, bytes] = {}
        for position, frame in enumerate(unit.frames):
            try:
                checked = await self._check(frame.data, self._journal.memory.pixels)
            except FrameError as fault:
                raise InvalidRequest(str(fault), code=fault.code, param=f"frames[{position}]") from fault
            uuid = hmac.new(self._key, checked.data, hashlib.sha256).hexdigest()
            payloads[uuid] = checked.data
            frame_id = frame.frame_id or self._ids("frame")
            time_ms, size = frame.media_time_ms, len(checked.data)
            named = frame.frame_id is not None
            admitted.append(Admitted(frame_id, named, uuid, time_ms, checked.width, checked.height, size))
        try:
            for uuid, data in payloads.items():
                await self._store.put(uuid, data)
        except StoreError as fault:
            _log.warning("a frame could not be stored: %s", fault.message)
            raise told_of(fault) from fault
        return tuple(admitted)

    def take(self, frames: Sequence[Admitted], operation_id: str, *, lossless: bool) -> None:
        """Make admitted frames known to memory, and their operation wait for its answer."""
        refused = {f.frame_id: reason for f in frames if (reason := self._refusal(f))}
        waiting = self._journal.waiting
        shown = [f.frame_id for f in frames if f.frame_id not in refused or f.frame_id in waiting]
        self._operations.add(operation_id, shown, lossless=lossless)
        if not shown:
            self._operations.refuse(operation_id, refused[frames[0].frame_id])
        for frame in frames:
            if reason := refused.get(frame.frame_id):
                self._journal.write(
                    FrameDropped(frame_id=frame.frame_id, media_time_ms=frame.media_time_ms, reason=reason)
                )
                continue
            if frame.named:
                self._seen.add(frame.frame_id)
            self._journal.write(
                FrameSeen(
                    frame_id=frame.frame_id,
                    uuid=frame.uuid,
                    media_time_ms=frame.media_time_ms,
                    width=frame.width,
                    height=frame.height,
                    size=frame.size,
                    tokens=round(frame.width * frame.height * self._tokens_per_pixel),
                    lossless=lossless,
                    operation_id=operation_id,
                )
            )

    def restored(self, frame_id: str) -> None:
        """A frame of the log that a restart found: a client may send it again."""
        self._seen.add(frame_id)

    def _refusal(self, frame: Admitted) -> str | None:
        if frame.frame_id in self._seen:
            return "duplicate"
        return "quarantined" if self._suspects.is_quarantined(frame.uuid) else None
