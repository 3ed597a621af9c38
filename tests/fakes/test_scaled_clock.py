"""Scaled time: exact, in order, and unmoved by a machine that has no time for the test."""

from __future__ import annotations

import asyncio

import pytest

from tests.fakes.duplex_engine import ScaledClock, timing


async def test_sleepers_wake_in_order_and_time_waits_for_each() -> None:
    clock = ScaledClock(1000)
    woken: list[tuple[float, float]] = []

    async def sleeper(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((seconds, clock.now()))

    async with asyncio.TaskGroup() as group:
        for seconds in (5.0, 0.5, 20.0, 0.25, 30.0):
            group.create_task(sleeper(seconds))
    assert [seconds for seconds, _ in woken] == [0.25, 0.5, 5.0, 20.0, 30.0]
    began = woken[0][1] - 0.25
    assert [at - began for _, at in woken[:-1]] == pytest.approx([0.25, 0.5, 5.0, 20.0])


async def test_a_process_that_was_kept_waiting_has_lost_next_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ScaledClock(10)
    began = clock.now()
    real = timing.time.monotonic
    sleeping = asyncio.create_task(clock.sleep(1000))
    await asyncio.sleep(0)
    monkeypatch.setattr(timing.time, "monotonic", lambda: real() + 3600)
    await clock.sleep(0.1)
    assert clock.now() - began < 1 and not sleeping.done()
    sleeping.cancel()


async def test_time_stands_still_while_it_is_held() -> None:
    clock = ScaledClock(1000)
    sleeping = asyncio.create_task(clock.sleep(1))
    await asyncio.sleep(0)
    with clock.held():
        await asyncio.sleep(0.02)
        assert clock.now() == clock.now() and not sleeping.done()
    await sleeping


async def test_it_passes_though_the_loop_never_rests() -> None:
    clock = ScaledClock(1000)
    sleeping = asyncio.create_task(clock.sleep(10))
    while not sleeping.done():  # noqa: ASYNC110  a loop that never rests
        await asyncio.sleep(0)


async def test_what_was_sent_has_come_before_time_goes_on() -> None:
    """A hundred turns of the loop between two sockets: time passes after the last."""
    clock, got = ScaledClock(100_000), list[bytes]()

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        timer = asyncio.create_task(clock.sleep(1))
        await asyncio.sleep(0)
        for _ in range(20):
            writer.write(b"again\n")
            got.append(await reader.readline())
            assert not timer.done()
        await timer
        writer.close()
    assert len(got) == 20
