"""Race: the write fails while several tasks wait in ``flush``.

Contract: every waiter gets the typed error, also those that came while the write was in flight; the log
takes nothing more; what was durable before stays; opening the session again goes on from there.
"""

import asyncio

import pytest

from memory.store.errors import StoreError
from memory.store.store import Store
from tests.store.conftest import HeldWrites, new_session, put


async def test_every_waiter_learns_of_the_failure(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await new_session(store)
    session.log.append("durable", {})
    await session.log.flush()
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        patch.setattr(store._writer, "_patience_s", 0)
        session.log.append("lost", {})
        early = asyncio.create_task(session.log.flush())
        await held.waiting.wait()
        session.log.append("lost", {})
        late = asyncio.create_task(session.log.flush())
        frame = asyncio.create_task(put(session, "f", b"x"))
        await asyncio.sleep(0)
        held.let_go(StoreError("the disk is gone"))
        results = await asyncio.gather(early, late, frame, return_exceptions=True)
    assert [type(result) for result in results] == [StoreError] * 3
    assert session.log.error is not None
    assert session.log.statistics()["waiters"] == session.log.statistics()["pending"] == 0
    with pytest.raises(StoreError, match="the disk is gone"):
        session.log.append("k", {})
    with pytest.raises(StoreError, match="the disk is gone"):
        await session.log.flush()
    again = await store.session("s1")
    assert again is not session
    assert [entry.kind for entry in await again.log.read()] == ["durable"]
    assert again.log.append("next", {}) == 2
    await again.log.flush()


async def test_an_unknown_fault_of_the_writer_fails_the_log_and_not_the_writer(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await new_session(store)
    other = await new_session(store, "s2")
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        session.log.append("k", {})
        held.let_go(ZeroDivisionError("a bug"))
        with pytest.raises(StoreError):
            await session.log.flush()
    other.log.append("k", {})
    await other.log.flush()


async def test_a_waiter_that_gives_up_disturbs_nobody(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await new_session(store)
    with monkeypatch.context() as patch:
        held = HeldWrites(store, patch)
        session.log.append("k", {})
        impatient = asyncio.create_task(session.log.flush())
        patient = asyncio.create_task(session.log.flush())
        await held.waiting.wait()
        impatient.cancel()
        await asyncio.gather(impatient, return_exceptions=True)
        held.let_go()
        await patient
    assert session.log.statistics()["durable"] == 1
