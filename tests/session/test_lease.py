"""The lease: idle and disconnected sessions expire, working or connected ones do not."""

from orchestrator.session.lease import Lease, LeaseLimits

LIMITS = LeaseLimits(idle_ttl_s=300.0, disconnect_grace_s=30.0)


def test_an_idle_session_expires() -> None:
    lease = Lease(LIMITS, 0.0)
    assert lease.expired(299.9, busy=False) is None
    assert lease.expired(300.0, busy=False) == "idle_ttl_expired"


def test_activity_and_work_in_flight_keep_it() -> None:
    lease = Lease(LIMITS, 0.0)
    lease.touch(200.0)
    assert lease.expired(499.0, busy=False) is None
    assert lease.expired(900.0, busy=True) is None


def test_no_idle_limit() -> None:
    assert Lease(LeaseLimits(idle_ttl_s=None), 0.0).expired(1e9, busy=False) is None


def test_a_disconnected_session_expires_after_its_grace_even_with_work_in_flight() -> None:
    lease = Lease(LIMITS, 0.0)
    lease.detached(100.0)
    assert lease.expired(129.9, busy=True) is None
    assert lease.expired(130.0, busy=True) == "disconnect_grace_expired"


def test_coming_back_in_time_keeps_it() -> None:
    lease = Lease(LIMITS, 0.0)
    lease.detached(100.0)
    lease.attached(120.0)
    assert lease.expired(200.0, busy=False) is None


def test_a_session_that_never_had_a_socket_knows_no_grace() -> None:
    assert Lease(LIMITS, 0.0).expired(200.0, busy=False) is None


def test_a_session_that_others_use_does_not_wait_for_its_socket() -> None:
    lease = Lease(LeaseLimits(idle_ttl_s=100.0, disconnect_grace_s=30.0), 0.0)
    lease.detached(0.0)
    lease.driven()
    assert lease.expired(40.0, busy=False) is None
    assert lease.expired(100.0, busy=False) == "idle_ttl_expired"
