"""Who owns a session where several processes share a PostgreSQL database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memory.store.errors import LeaseLost, OwnedElsewhere, SessionGone, StoreError
from memory.store.leases import Held, Process
from memory.store.store import Store
from tests.fakes.postgres import PrivatePostgres
from tests.store.conftest import Clock, new_session, put
from tests.store.processes import Processes

LONG_S = 600.0


@pytest.fixture
async def processes(postgres: PrivatePostgres, tmp_path: Path, clock: Clock) -> AsyncIterator[Processes]:
    async with Processes(postgres.empty_database(), tmp_path, clock) as opened:
        yield opened


async def test_a_session_has_one_living_owner(processes: Processes) -> None:
    one, other = await processes.start("one"), await processes.start("other")
    await new_session(one)
    with pytest.raises(OwnedElsewhere) as refused:
        await other.claim("s1")
    assert refused.value.address == "http://one"
    assert one.held == {"s1": 1}
    assert await leases(one).beat() == Held({"s1": 1}, 0) and await leases(other).beat() == Held({}, 1)
    assert [owner.address for owner in await leases(one).processes()] == ["http://one", "http://other"]


async def test_a_dead_owner_is_followed_and_can_write_no_more(processes: Processes) -> None:
    one, other = await processes.start("one"), await processes.start("other")
    session = await new_session(one)
    session.log.append("a", {"n": 1})
    await session.log.flush()
    await processes.die("one")
    await other.claim("s1")
    taken = await other.session("s1")
    assert [entry.data for entry in await taken.log.read()] == [{"n": 1}]
    session.log.append("a", {"n": 2})
    with pytest.raises(LeaseLost):
        await session.log.flush()
    with pytest.raises(LeaseLost):
        await put(session, "f", b"x")
    with pytest.raises(StoreError):
        await session.close()
    assert (await other.info("s1")).closed_ms is None
    taken.log.append("a", {"n": 3})
    await taken.log.flush()
    assert [entry.data["n"] for entry in await taken.log.read()] == [1, 3]


async def test_a_claim_counts_as_a_heartbeat(processes: Processes) -> None:
    """Else one who is late could be robbed of it before a heartbeat that is under way has told so."""
    one, other = await processes.start("one"), await processes.start("other")
    await new_session(one)
    await processes.die("one")
    await one.claim("s1")
    with pytest.raises(OwnedElsewhere):
        await other.claim("s1")


async def test_a_released_session_is_free_at_once(processes: Processes) -> None:
    one, other = await processes.start("one"), await processes.start("other")
    session = await new_session(one)
    await session.release()
    await other.claim("s1")
    owner = await leases(one).owner("s1")
    assert owner is not None and owner.address == "http://other" and owner.lives
    with pytest.raises(OwnedElsewhere):
        await one.claim("s1")


async def test_a_process_that_ends_frees_all_its_sessions(processes: Processes) -> None:
    one, other = await processes.start("one"), await processes.start("other")
    await new_session(one)
    await processes.stop("one")
    await other.claim("s1")
    assert await leases(other).beat() == Held({"s1": 2}, 0)


async def test_a_process_that_starts_again_at_its_address_need_not_wait(processes: Processes) -> None:
    one = await processes.start("one")
    await new_session(one)
    again = await processes.start("one")
    await again.claim("s1")
    assert await leases(one).beat() == Held({}, 1)


async def test_sessions_of_others_count_as_long_as_they_are_open_and_their_owner_lives(
    processes: Processes,
) -> None:
    one, other = await processes.start("one"), await processes.start("other")
    session = await new_session(one)
    assert (await leases(other).beat()).beside == 1
    await session.close()
    assert (await leases(other).beat()).beside == 0
    await new_session(one, "s2")
    assert (await leases(other).beat()).beside == 1
    await processes.die("one")
    assert (await leases(other).beat()).beside == 0


async def test_what_is_over_cannot_be_claimed(processes: Processes) -> None:
    one, other = await processes.start("one"), await processes.start("other")
    session = await new_session(one)
    await session.close()
    for name in ("s1", "unknown"):
        with pytest.raises(SessionGone):
            await other.claim(name)


async def test_sqlite_has_no_leases(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(StoreError, match="PostgreSQL"):
        await Store.open(
            f"sqlite:///{tmp_path}/x.db", tmp_path, now_ms=clock, process=Process("a", "http://a", LONG_S)
        )


def leases(store: Store):  # type: ignore[no-untyped-def]
    assert store.leases is not None
    return store.leases
