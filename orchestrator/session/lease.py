"""The lease: how long a session may live without a sign of life."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseLimits:
    """Seconds.

    :param idle_ttl_s: without any activity; ``None``: never
    :param disconnect_grace_s: without a socket, for a session that had one
    """

    idle_ttl_s: float | None = 300.0
    disconnect_grace_s: float = 30.0


class Lease:
    """Touched by appends, signals, acks, heartbeats, attaching, detaching, resuming and model output."""

    def __init__(self, limits: LeaseLimits, now: float) -> None:
        self._limits = limits
        self.touched_at = now
        self._detached_at: float | None = None

    def touch(self, now: float) -> None:
        self.touched_at = now

    def attached(self, now: float) -> None:
        self._detached_at = None
        self.touch(now)

    def detached(self, now: float) -> None:
        self._detached_at = now
        self.touch(now)

    def driven(self) -> None:
        """Somebody else than a socket uses the session: it does not wait for one any more."""
        self._detached_at = None

    def expired(self, now: float, *, busy: bool) -> str | None:
        """Why the session is over, or ``None``. ``busy``: work in flight keeps an idle session alive."""
        if self._detached_at is not None and now - self._detached_at >= self._limits.disconnect_grace_s:
            return "disconnect_grace_expired"
        ttl = self._limits.idle_ttl_s
        if ttl is not None and not busy and now - self.touched_at >= ttl:
            return "idle_ttl_expired"
        return None
