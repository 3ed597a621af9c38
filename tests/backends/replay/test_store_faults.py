"""The store fails under a session: told by its own code, blamed on nobody else, nothing lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from memory.store.errors import StoreError
from memory.store.transient import TransientFrames
from orchestrator.backends.store_faults import RETRY_S
from orchestrator.session.backend import Failed, Notice, SessionConfig
from orchestrator.session.told import QueryAsked
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import StoreUnavailable
from tests.backends.replay.harness import Session


class FailingFrames(TransientFrames):
    """Puts and gets fail while ``puts`` or ``gets`` is set."""

    puts = gets = False

    async def put(self, uuid: str, data: bytes) -> None:
        if self.puts:
            raise StoreError("the disk is full")
        await super().put(uuid, data)

    def get(self, uuid: str) -> bytes:
        if self.gets:
            raise StoreError("input/output error")
        return super().get(uuid)


async def test_a_frame_that_could_not_be_stored_may_be_sent_again() -> None:
    frames = FailingFrames()
    async with Session(frames=frames) as s:
        await s.frame()
        frames.puts = True
        with pytest.raises(StoreUnavailable) as refused:
            await s.frame()
        told = refused.value
        assert (told.code, told.http_status, told.retryable) == ("store_unavailable", 503, True)
        assert told.retry_after_s
        assert "disk" not in told.message
        frames.puts = False
        await s.frame(s.ms)
        assert [fact.media_time_ms for fact in s.log.of("frame_seen")] == [0, 1000]
        assert not s.of(Failed)


async def test_a_picture_that_cannot_be_read_is_no_fault_of_the_engine() -> None:
    """Contract: who waits is told, the frame rides the next tick, the engine is not taken for lost."""
    frames = FailingFrames()

    def script(_: object) -> str:
        return "</silence>"

    async with Session(script, frames=frames) as s:
        ask = s.engine.chat

        async def reads(request: Any, images: Any) -> Any:
            for message in request.messages:
                for part in message["content"] if isinstance(message["content"], list) else []:
                    if part["type"] == "image_url":
                        images(part["uuid"])
            async for event in ask(request, images):
                yield event

        s.engine.chat = reads  # type: ignore[method-assign]
        frames.gets = True
        for _ in range(5):
            operation = await s.frame()
            await s.clock.advance(RETRY_S)
            told = s.answered_by(operation)
            assert told is not None and told.error_code == "store_unavailable"
        assert not s.log.of("engine_lost") and not s.of(Notice)
        assert {fact.code for fact in s.log.of("tick_failed")} == {"store_unavailable"}
        frames.gets = False
        await s.clock.advance(RETRY_S)
        shown = s.log.of("tick_answered")[0]
        assert shown.action == "silence"
        assert s.log.of("tick_begun")[-1].frame_ids[-1] == "f4000"


@pytest.mark.parametrize("what", ["frame", "query", "update"])
async def test_a_fact_that_the_log_does_not_take_ends_the_session_by_its_own_code(what: str) -> None:
    async with Session() as s:
        await s.run_frames(2)
        append = s.log.append

        def refuse(kind: str, data: Mapping[str, Any]) -> int:
            raise StoreError("connection refused")

        s.log.append = refuse  # type: ignore[method-assign]
        with pytest.raises(StoreUnavailable):
            if what == "frame":
                await s.backend.append(InputUnit((FrameInput(b"jpeg", 9000, "f9"),)), s.fence, "op9")
            elif what == "query":
                await s.backend.tell(QueryAsked("what?", "q9", True), s.fence)
            else:
                await s.backend.update(SessionConfig("m", persona="silent"))
        await s.clock.advance(1.0)
        assert all(failed.fatal and failed.code == "store_unavailable" for failed in s.of(Failed))
        assert s.of(Failed)
        s.log.append = append  # type: ignore[method-assign]
