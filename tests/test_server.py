"""What is written to a socket, and when."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from orchestrator.server import GATHERED_BYTES, Gathered


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written.append(data)

    def close(self) -> None:
        self.closed = True


def gathered() -> tuple[Gathered, Transport]:
    transport = Transport()
    return Gathered(cast(Any, transport), asyncio.get_running_loop()), transport


async def test_what_is_written_in_a_round_goes_out_at_once_and_in_order() -> None:
    sink, transport = gathered()
    for part in (b"a", b"b", b"c"):
        sink.write(part)
    assert transport.written == []
    await asyncio.sleep(0)
    assert transport.written == [b"abc"]


async def test_whoever_knows_that_nothing_more_comes_need_not_wait_for_the_round() -> None:
    sink, transport = gathered()
    sink.write(b"a")
    sink.flush()
    sink.write(b"b")
    sink.flush()
    await asyncio.sleep(0)
    assert transport.written == [b"a", b"b"]


async def test_no_more_than_a_little_is_held() -> None:
    sink, transport = gathered()
    sink.write(b"a" * GATHERED_BYTES)
    sink.write(b"b")
    assert [len(part) for part in transport.written] == [GATHERED_BYTES + 1]


async def test_a_close_loses_nothing() -> None:
    sink, transport = gathered()
    sink.write(b"a")
    sink.close()
    await asyncio.sleep(0)
    assert transport.written == [b"a"] and transport.closed
