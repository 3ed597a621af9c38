"""Doors for applications under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.api.access import Access
from orchestrator.api.credentials import Credentials, key_hash
from orchestrator.api.failed_logins import FailedLogins
from orchestrator.api.quota import Quota, Quotas
from orchestrator.session.backend import Clock


def make_access(
    tenants: Mapping[str, str] | None = None,
    quotas: Quotas | None = None,
    origins: Sequence[str] = (),
    failed_logins: int | None = None,
    *,
    clock: Clock,
) -> Access:
    """:param tenants: tenant by key; without, keys are off
    :param failed_logins: of one address a minute"""
    keys = None if tenants is None else {key_hash(key): tenant for key, tenant in tenants.items()}
    credentials = None if keys is None else Credentials(keys)
    return Access(credentials, origins, quotas or Quotas(Quota()), clock, FailedLogins(failed_logins))
