"""What the store's failures are to a client."""

from __future__ import annotations

from bridges.engine import EngineError, ImageBytes
from memory.store.base import FrameStore
from memory.store.errors import FrameTooLarge, OwnedElsewhere, SessionGone, StoreError
from orchestrator.wire.errors import Conflict, Elsewhere, StoreUnavailable, TooLarge, VigilError

RETRY_S = 1.0


class PictureUnread(EngineError):
    """The store holds a picture of this request and does not give it now."""

    code = StoreError.code


def pictures_of(frames: FrameStore) -> ImageBytes:
    """The bytes of frames for a request, which fails alone when they can't be read."""

    def picture(uuid: str) -> bytes:
        try:
            return frames.get(uuid)
        except StoreError as fault:
            raise PictureUnread(fault.message) from fault

    return picture


def told_of(fault: StoreError) -> VigilError:
    """The client can send a smaller frame or open another session; else only time helps."""
    if isinstance(fault, FrameTooLarge):
        return TooLarge(fault.message, code=fault.code)
    if isinstance(fault, OwnedElsewhere):
        return Elsewhere(fault.session, fault.address)
    if isinstance(fault, SessionGone):
        return Conflict("the session was deleted; open another one", code="session_closed")
    # Which disk or database said what is for the log.
    return StoreUnavailable(
        "the store does not answer; nothing of this was taken, try again",
        code=fault.code,
        retry_after_s=RETRY_S,
    )
