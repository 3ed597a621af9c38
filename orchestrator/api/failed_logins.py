"""Logins that failed, by the address they came from, sans-IO: a bounded table of token buckets.

A right key is let in whatever its address did before: behind a proxy everybody shares one address, and keys
are too long to be guessed. What is limited is the noise of wrong ones.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

from orchestrator.api.quota import MINUTE_S, Bucket
from orchestrator.wire.errors import ResourceExhausted

ADDRESSES_MAX = 4096
"""Addresses remembered at a time; the one that failed longest ago is forgotten first."""

_SITE_BITS = 64
"""One holder of IPv6 has at least this much of an address to choose from."""


class FailedLogins:
    """:param per_minute: failures of one address; as many may come at once. ``None``: any number"""

    def __init__(self, per_minute: int | None, addresses_max: int = ADDRESSES_MAX) -> None:
        self._per_minute = per_minute
        self._addresses_max = addresses_max
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def failed(self, address: str | None, now: float) -> None:
        """Count a failure.

        :raises ResourceExhausted: ``too_many_failed_logins``, with the seconds to wait; told in place of what
            was wrong with the key
        """
        if self._per_minute is None:
            return
        site = _site(address)
        bucket = self._buckets.pop(site, None)
        if bucket is None:
            bucket = Bucket(self._per_minute, self._per_minute / MINUTE_S, now)
        self._buckets[site] = bucket
        while len(self._buckets) > self._addresses_max:
            self._buckets.popitem(last=False)
        wait_s = bucket.wait_s(1, now)
        if wait_s > 0:
            raise ResourceExhausted(
                f"too many logins from this address failed; use a right key, or try again in {wait_s:.1f} s",
                code="too_many_failed_logins",
                retry_after_s=wait_s,
            )
        bucket.take(1, now)

    def statistics(self) -> dict[str, int]:
        return {"addresses": len(self._buckets), "addresses_max": self._addresses_max}


def _site(address: str | None) -> str:
    """The part of an address that its holder can't change at will."""
    try:
        known = ipaddress.ip_address(address or "")
    except ValueError:
        return address or ""
    if isinstance(known, ipaddress.IPv4Address):
        return str(known)
    if known.ipv4_mapped is not None:
        return str(known.ipv4_mapped)
    return str(ipaddress.ip_network((known, _SITE_BITS), strict=False).network_address)
