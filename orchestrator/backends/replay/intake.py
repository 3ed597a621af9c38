"""Frames on their way in: checked, named, kept durably, then known to memory. All of a unit or nothing."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

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


Stored = TypeVar("Stored")


class FrameCheck(Protocol):
    """Decodes frames that came together and bounds their area in pixels, in a thread in which ``then`` is
    called with them; raises ``FrameError`` when one of them cannot be used."""

    def __call__(
        self, frames: Sequence[bytes], max_pixels: int, then: Callable[[Sequence[Checked]], Stored]
    ) -> Awaitable[Stored]: ...


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
        try:
            stored = await self._check(
                [frame.data for frame in unit.frames], self._journal.memory.pixels, self._written
            )
            for uuid, checked in dict(stored).items():
                await self._store.put(uuid, checked.data)
        except FrameError as fault:
            param = f"frames[{fault.place}]"
            raise InvalidRequest(str(fault), code=fault.code, param=param) from fault
        except StoreError as fault:
            _log.warning("a frame could not be stored: %s", fault.message)
            raise told_of(fault) from fault
        return tuple(
            Admitted(
                frame.frame_id or self._ids("frame"),
                frame.frame_id is not None,
                uuid,
                frame.media_time_ms,
                checked.width,
                checked.height,
                len(checked.data),
            )
            for frame, (uuid, checked) in zip(unit.frames, stored, strict=True)
        )

    def _written(self, frames: Sequence[Checked]) -> list[tuple[str, Checked]]:
        """In a thread of the check's: each frame with its name, its bytes durable."""
        named = [(hmac.digest(self._key, frame.data, "sha256").hex(), frame) for frame in frames]
        for uuid, frame in named:
            self._store.write(uuid, frame.data)
        return named

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
