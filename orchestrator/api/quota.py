"""Quotas and rates, sans-IO: token buckets that are told the time, and one account per tenant.

Amounts flow in evenly. A bucket holds at most one period's worth, so over any time ``t`` no more is admitted
than one period's amount and what flows in during ``t``; what is larger than the bucket needs a full one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.wire.errors import ResourceExhausted

MINUTE_S = 60.0
EVENT_BURST_S = 2.0
"""Seconds of a socket's event rate that may come at once."""

ACCOUNTS_MAX = 65_536
"""Tenants with something on their account at a time; tokens may name any number of tenants."""


class Meter(StrEnum):
    """What is counted by the minute."""

    REQUESTS = "requests_per_minute"
    HANDSHAKES = "handshakes_per_minute"
    INPUT_BYTES = "input_bytes_per_minute"
    TICKS = "ticks_per_minute"


_CODES = {
    Meter.REQUESTS: "rate_limit_exceeded",
    Meter.HANDSHAKES: "rate_limit_exceeded",
    Meter.INPUT_BYTES: "input_quota_exceeded",
    Meter.TICKS: "tick_quota_exceeded",
}
_WORDS = {
    Meter.REQUESTS: "requests a minute",
    Meter.HANDSHAKES: "sockets opened a minute",
    Meter.INPUT_BYTES: "bytes of input a minute",
    Meter.TICKS: "decisions a minute",
}


@dataclass(frozen=True, slots=True)
class Quota:
    """What one tenant may use; ``None``: as much as there is.

    :param sessions: open at a time
    :param ticks_per_minute: decisions and plain answers asked of the engine
    :param events_per_second: client events on one socket
    """

    sessions: int | None = None
    requests_per_minute: int | None = None
    handshakes_per_minute: int | None = None
    input_bytes_per_minute: int | None = None
    ticks_per_minute: int | None = None
    events_per_second: int | None = None


class Bucket:
    """Times are monotonic seconds.

    :param capacity: what it holds, and holds at first
    :param per_s: what flows in each second
    """

    def __init__(self, capacity: float, per_s: float, now: float) -> None:
        self._capacity = capacity
        self._per_s = per_s
        self._level = capacity
        self._at = now

    def level(self, now: float) -> float:
        """What is in it; below zero while it is in debt."""
        if now > self._at:
            self._level = min(self._capacity, self._level + (now - self._at) * self._per_s)
            self._at = now
        return self._level

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until ``amount`` may be taken; 0 when it may be now."""
        missing = min(amount, self._capacity) - self.level(now)
        return max(0.0, missing / self._per_s)

    def take(self, amount: float, now: float) -> None:
        """Take it, going into debt if need be."""
        self._level = self.level(now) - amount


class Quotas:
    """The accounts of all tenants.

    :param own: tenants with a quota of their own
    """

    def __init__(
        self, default: Quota, own: Mapping[str, Quota] | None = None, accounts_max: int = ACCOUNTS_MAX
    ) -> None:
        self._default = default
        self._own = dict(own or {})
        self._accounts: dict[tuple[str, Meter], Bucket] = {}
        self._accounts_max = accounts_max

    def of(self, tenant: str) -> Quota:
        return self._own.get(tenant, self._default)

    def sessions_of(self, tenant: str) -> int | None:
        """Sessions that the tenant may have open at a time."""
        return self.of(tenant).sessions

    def charge(self, tenant: str, meter: Meter, now: float, amount: float = 1) -> None:
        """Raises ``ResourceExhausted`` with the seconds to wait; nothing is taken then."""
        bucket = self._bucket(tenant, meter, now)
        if bucket is not None:
            self._check(bucket, tenant, meter, now, amount)
            bucket.take(amount, now)

    def check(self, tenant: str, meter: Meter, now: float) -> None:
        """Raises as ``charge`` does when not even one more may be taken; takes nothing."""
        bucket = self._bucket(tenant, meter, now)
        if bucket is not None:
            self._check(bucket, tenant, meter, now, 1)

    def spend(self, tenant: str, meter: Meter, now: float, amount: float = 1) -> None:
        """Take what was used already."""
        bucket = self._bucket(tenant, meter, now)
        if bucket is not None:
            bucket.take(amount, now)

    def socket(self, tenant: str, now: float) -> Bucket | None:
        """The event rate of a new socket."""
        rate = self.of(tenant).events_per_second
        return None if rate is None else Bucket(rate * EVENT_BURST_S, rate, now)

    def statistics(self) -> dict[str, int]:
        return {"accounts": len(self._accounts), "accounts_max": self._accounts_max}

    def _check(self, bucket: Bucket, tenant: str, meter: Meter, now: float, amount: float) -> None:
        wait_s = bucket.wait_s(amount, now)
        if wait_s > 0:
            limit = getattr(self.of(tenant), meter.value)
            raise ResourceExhausted(
                f"the quota of {limit} {_WORDS[meter]} is used up; try again in {wait_s:.1f} s",
                code=_CODES[meter],
                retry_after_s=wait_s,
            )

    def _bucket(self, tenant: str, meter: Meter, now: float) -> Bucket | None:
        amount: int | None = getattr(self.of(tenant), meter.value)
        if amount is None:
            return None
        bucket = self._accounts.get((tenant, meter))
        if bucket is None:
            if len(self._accounts) >= self._accounts_max:
                self._forget_full(now)
            bucket = self._accounts[tenant, meter] = Bucket(amount, amount / MINUTE_S, now)
        return bucket

    def _forget_full(self, now: float) -> None:
        """A full bucket is as good as a new one."""
        for key in list(self._accounts):
            if self._accounts[key].wait_s(float("inf"), now) == 0:
                del self._accounts[key]
        if len(self._accounts) >= self._accounts_max:
            raise ResourceExhausted("too many clients at once; try again", retry_after_s=MINUTE_S / 4)
