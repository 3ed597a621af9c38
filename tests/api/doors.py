"""Doors for applications under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.api.access import Access
from orchestrator.api.credentials import Credentials, key_hash
from orchestrator.api.quota import Quota, Quotas
from orchestrator.runtime.clock import SystemClock


def make_access(
    tenants: Mapping[str, str] | None = None,
    quotas: Quotas | None = None,
    origins: Sequence[str] = (),
) -> Access:
    """:param tenants: tenant by key; without, keys are off"""
    keys = None if tenants is None else {key_hash(key): tenant for key, tenant in tenants.items()}
    credentials = None if keys is None else Credentials(keys)
    return Access(credentials, origins, quotas or Quotas(Quota()), SystemClock())
