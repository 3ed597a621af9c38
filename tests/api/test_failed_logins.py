"""Logins that failed are counted by address, in a table that never grows beyond its size."""

from __future__ import annotations

import logging

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api.failed_logins import FailedLogins
from orchestrator.wire.errors import ResourceExhausted
from tests.api.scripted import error
from tests.api.test_access import KEYS, OPENING, bearer, refused_handshake
from tests.realtime.serving import Scripted
from tests.realtime.talker import Talker


def wait_of(logins: FailedLogins, address: str | None, now: float) -> float:
    """Seconds that a failure is told to wait; 0 where it is told what was wrong."""
    try:
        logins.failed(address, now)
    except ResourceExhausted as refused:
        assert refused.code == "too_many_failed_logins"
        assert refused.retry_after_s is not None
        return refused.retry_after_s
    return 0.0


def test_an_address_is_told_what_is_wrong_so_often_and_then_when_to_come_back() -> None:
    logins = FailedLogins(6)
    assert [wait_of(logins, "10.0.0.1", 0.0) for _ in range(6)] == [0.0] * 6
    assert wait_of(logins, "10.0.0.1", 0.0) == pytest.approx(10.0)
    assert wait_of(logins, "10.0.0.2", 0.0) == 0.0, "another address has an account of its own"
    assert wait_of(logins, "10.0.0.1", 9.9) > 0
    assert wait_of(logins, "10.0.0.1", 10.1) == 0.0


def test_one_holder_of_ipv6_is_one_address() -> None:
    logins = FailedLogins(1)
    assert wait_of(logins, "2001:db8:1:2::1", 0.0) == 0.0
    assert wait_of(logins, "2001:db8:1:2:ffff::9", 0.0) > 0
    assert wait_of(logins, "2001:db8:1:3::1", 0.0) == 0.0
    assert wait_of(logins, "10.1.1.1", 0.0) == 0.0
    assert wait_of(logins, "::ffff:10.1.1.1", 0.0) > 0, "the same address in other clothes"


def test_without_a_limit_everybody_is_told_what_is_wrong() -> None:
    logins = FailedLogins(None)
    assert all(wait_of(logins, "10.0.0.1", 0.0) == 0.0 for _ in range(1000))
    assert logins.statistics()["addresses"] == 0


@given(st.lists(st.tuples(st.integers(0, 30), st.floats(0, 5)), max_size=80))
def test_the_table_stays_within_its_size(failures: list[tuple[int, float]]) -> None:
    logins, now = FailedLogins(2, addresses_max=8), 0.0
    for address, passed in failures:
        now += passed
        wait_of(logins, f"10.0.0.{address}", now)
        assert logins.statistics()["addresses"] <= 8


async def test_wrong_keys_are_refused_with_a_time_and_a_right_one_is_let_in_all_the_same() -> None:
    async with Scripted(tenants=KEYS, failed_logins=2) as server:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            for status, code in ((401, "invalid_api_key"), (401, "invalid_api_key")):
                response = await client.get("/v1/models", headers=bearer("guess"))
                assert (response.status_code, error(response)["code"]) == (status, code)
            response = await client.get("/v1/models", headers=bearer("guess"))
            assert (response.status_code, error(response)["code"]) == (429, "too_many_failed_logins")
            assert 1 <= int(response.headers["retry-after"]) <= 30
            assert (await client.get("/v1/models", headers=bearer("ann-key"))).status_code == 200
        status, body, answer = await refused_handshake(server.url, bearer("guess"))
        assert (status, body["code"], body["type"]) == (429, "too_many_failed_logins", "rate_limit_error")
        assert int(answer["retry-after"]) >= 1
        async with Talker(server.url, headers=bearer("ann-key"), opening=OPENING):
            pass


async def test_a_refused_handshake_is_one_line_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async with Scripted(tenants=KEYS) as server:
        with caplog.at_level(logging.INFO):
            await refused_handshake(server.url, bearer("guess"))
    ours = [r for r in caplog.records if r.name == "orchestrator.api.access"]
    assert [r.levelno for r in ours] == [logging.INFO]
    assert "invalid_api_key" in ours[0].getMessage()
    assert "guess" not in caplog.text
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
