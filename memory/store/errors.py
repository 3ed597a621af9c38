"""What can go wrong in the store. ``code`` is stable; the message says what happened and what helps.

::

    StoreError              store_unavailable  the database or the disk refused; the write is not durable
    |- LogConflict          log_conflict       another process writes this session
    |- LeaseLost            lease_lost         another process has taken the session over
    |- StoreShared          store_shared       other processes share it, and this one takes no leases
    |- OwnedElsewhere       session_elsewhere  another process that lives owns the session
    |- LogFull              log_full           the log's buffer is full: await ``flush`` before more appends
    |- SessionExists        session_exists     that id, or a live session of that alias, is there already
    |- SessionGone          session_gone       unknown, or deleted
    |- FrameTooLarge        frame_too_large    one frame is larger than the store takes
    `- SchemaTooNew         schema_too_new     the database was written by a newer Vigil
"""

from __future__ import annotations

from typing import ClassVar


class StoreError(Exception):
    code: ClassVar[str] = "store_unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class LogConflict(StoreError):
    code = "log_conflict"


class LeaseLost(StoreError):
    code = "lease_lost"


class StoreShared(StoreError):
    code = "store_shared"


class OwnedElsewhere(StoreError):
    """:param session: the session's id; ``address``: where its owner can be reached"""

    code = "session_elsewhere"

    def __init__(self, session: str, address: str) -> None:
        super().__init__(f"session {session} is at {address}")
        self.session = session
        self.address = address


class LogFull(StoreError):
    code = "log_full"


class SessionExists(StoreError):
    code = "session_exists"


class SessionGone(StoreError):
    code = "session_gone"


class FrameTooLarge(StoreError):
    code = "frame_too_large"


class SchemaTooNew(StoreError):
    code = "schema_too_new"
