"""Token buckets and accounts against their promise: never more than a period's worth and what flowed in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.quota import Bucket, Meter, Quota, Quotas
from orchestrator.wire.errors import ResourceExhausted

steps = st.lists(st.tuples(st.floats(0, 30), st.integers(1, 40)), max_size=60)


@given(st.integers(1, 50), steps)
def test_over_any_time_no_more_than_a_full_bucket_and_what_flowed_in(capacity: int, steps: list) -> None:  # type: ignore[type-arg]
    rate = capacity / 60
    bucket, now, taken = Bucket(capacity, rate, 0.0), 0.0, []
    for passed, amount in steps:
        now += passed
        if bucket.wait_s(amount, now) == 0:
            bucket.take(amount, now)
            taken.append((now, amount))
    largest = max((amount for _, amount in taken), default=0)
    for i, (start, _) in enumerate(taken):
        total = 0
        for at, amount in taken[i:]:
            total += amount
            # What is larger than the bucket goes once with a full one, and is paid for afterwards.
            assert total <= max(capacity, largest) + rate * (at - start) + 1e-6 + max(0, largest - capacity)


@given(st.integers(1, 50), steps)
def test_who_waits_as_told_gets_it_and_not_earlier(capacity: int, steps: list) -> None:  # type: ignore[type-arg]
    bucket, now = Bucket(capacity, capacity / 60, 0.0), 0.0
    for passed, amount in steps:
        now += passed
        if wait_s := bucket.wait_s(amount, now):
            assert bucket.wait_s(amount, now + wait_s * 0.5) > 0
            now += wait_s + 1e-6
            assert bucket.wait_s(amount, now) < 1e-3
        bucket.take(amount, now)


@given(st.lists(st.floats(-5, 5), max_size=20))
def test_a_clock_that_steps_back_gives_nothing(moves: list[float]) -> None:
    bucket, now, furthest = Bucket(10, 1.0, 100.0), 100.0, 100.0
    bucket.take(10, now)
    for move in moves:
        now += move
        furthest = max(furthest, now)
        assert bucket.level(now) <= furthest - 100.0 + 1e-9


def refused(quotas: Quotas, tenant: str, meter: Meter, now: float, amount: int = 1) -> ResourceExhausted:
    with pytest.raises(ResourceExhausted) as error:
        quotas.charge(tenant, meter, now, amount)
    return error.value


@pytest.mark.parametrize(
    ("meter", "code"),
    [
        (Meter.REQUESTS, "rate_limit_exceeded"),
        (Meter.HANDSHAKES, "rate_limit_exceeded"),
        (Meter.INPUT_BYTES, "input_quota_exceeded"),
        (Meter.TICKS, "tick_quota_exceeded"),
    ],
)
def test_each_meter_has_its_code_and_its_own_bucket(meter: Meter, code: str) -> None:
    quotas = Quotas(Quota(**{each.value: 2 for each in Meter}))
    quotas.charge("a", meter, 0.0, 2)
    error = refused(quotas, "a", meter, 0.0)
    assert (error.code, error.http_status, error.retry_after_s) == (code, 429, 30.0)
    for other in set(Meter) - {meter}:
        quotas.charge("a", other, 0.0)
    quotas.charge("b", meter, 0.0)
    quotas.charge("a", meter, 30.0)


def test_what_was_used_already_is_owed() -> None:
    quotas = Quotas(Quota(ticks_per_minute=60))
    quotas.spend("a", Meter.TICKS, 0.0, 90)
    with pytest.raises(ResourceExhausted) as error:
        quotas.check("a", Meter.TICKS, 0.0)
    assert error.value.retry_after_s == 31.0
    quotas.check("a", Meter.TICKS, 31.0)
    quotas.check("a", Meter.TICKS, 31.0)  # checking takes nothing


def test_no_quota_is_no_account() -> None:
    quotas = Quotas(Quota())
    for meter in Meter:
        quotas.charge("a", meter, 0.0, 10**12)
        quotas.check("a", meter, 0.0)
    assert quotas.socket("a", 0.0) is None
    assert quotas.statistics()["accounts"] == 0


def test_a_body_larger_than_the_quota_needs_all_of_it() -> None:
    quotas = Quotas(Quota(input_bytes_per_minute=100))
    quotas.charge("a", Meter.INPUT_BYTES, 0.0, 250)
    assert refused(quotas, "a", Meter.INPUT_BYTES, 0.0, 1).retry_after_s == pytest.approx(151 * 0.6)


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 20)), max_size=200))
def test_accounts_are_bounded_and_nobody_gets_a_fresh_one_early(visits: list[tuple[int, float]]) -> None:
    """Tokens may name any number of tenants; a table that forgot debts would be a way around the quota."""
    quotas, now = Quotas(Quota(requests_per_minute=2), accounts_max=5), 0.0
    admitted: dict[str, list[float]] = {}
    for tenant, passed in visits:
        now += passed
        try:
            quotas.charge(str(tenant), Meter.REQUESTS, now)
        except ResourceExhausted:
            pass
        else:
            admitted.setdefault(str(tenant), []).append(now)
        assert quotas.statistics()["accounts"] <= 5
    for times in admitted.values():
        for first, third in zip(times, times[2:], strict=False):  # two at once, one more each half minute
            assert third - first >= 30.0 - 1e-6


def test_a_socket_may_burst_and_then_keeps_its_rate() -> None:
    bucket = Quotas(Quota(events_per_second=10)).socket("a", 0.0)
    assert bucket is not None
    assert bucket.wait_s(20, 0.0) == 0
    bucket.take(20, 0.0)
    assert bucket.wait_s(1, 0.0) == pytest.approx(0.1)
