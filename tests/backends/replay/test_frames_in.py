"""Frames on their way in: late, repeated, refused, lossless, bounded; and their operations."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from bridges.frames import FrameBounds, FrameGate
from orchestrator.session.backend import (
    TickDone,
)
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted, Unsupported
from tests.backends.replay.harness import FIRST, Answer, Session
from tests.backends.replay.packs import JOYVL
from tests.fakes.clock import settle
from tests.fakes.pictures import jpeg


async def test_lossless_frames_are_never_thinned_and_each_operation_is_answered() -> None:
    async with Session([Answer(delay_s=3)]) as s:
        operations = [await s.frame(lossless=True) for _ in range(12)]
        await s.clock.advance(30)
        assert sum(row["frames"] for row in s.rows) == 12
        assert s.log.of("frame_dropped") == []
        assert all(s.answered_by(o) for o in operations)


async def test_a_lossless_source_that_does_not_wait_is_told_to() -> None:
    async with Session([Answer(hang=True)]) as s:
        for _ in range(64):
            await s.frame(lossless=True, run=False)
        with pytest.raises(ResourceExhausted) as refused:
            await s.frame(lossless=True)
        assert refused.value.code == "input_backpressure"


async def test_late_and_repeated_frames_are_dropped_counted_and_answered() -> None:
    async with Session() as s:
        await s.run_frames(3)
        late = await s.frame(500)
        again = await s.frame(2000, frame_id="f2000")
        for operation, reason in ((late, "late"), (again, "duplicate")):
            answered = s.answered_by(operation)
            assert answered is not None and answered.record["reason"] == reason
            assert answered.error_code is None
        assert [f.reason for f in s.log.of("frame_dropped")] == ["late", "duplicate"]
        assert len(s.engine.decisions) == 3


async def test_a_repeat_of_a_frame_that_still_waits_is_answered_with_it() -> None:
    async with Session([Answer(delay_s=1)]) as s:
        first = await s.frame(0)
        again = await s.frame(0, frame_id="f0")
        await s.clock.advance(1)
        assert s.answered_by(first) is s.answered_by(again) is s.of(TickDone)[0]


async def test_the_same_operation_is_not_taken_twice() -> None:
    async with Session() as s:
        unit = InputUnit((FrameInput(b"x", 0),))
        await s.backend.append(unit, FIRST, "op")
        await s.backend.append(unit, FIRST, "op")
        await settle()
        assert len(s.log.of("frame_seen")) == 1


async def test_a_unit_with_one_bad_frame_is_refused_whole() -> None:
    async with Session() as s:
        unit = InputUnit((FrameInput(b"good", 0), FrameInput(b"bad", 10)))
        with pytest.raises(InvalidRequest) as refused:
            await s.backend.append(unit, FIRST, "op")
        assert (refused.value.code, refused.value.param) == ("invalid_image", "frames[1]")
        assert s.log.of("frame_seen") == [] and s.frames.statistics()["frames"] == 0
        await s.backend.append(InputUnit((FrameInput(b"good", 0),)), FIRST, "op")
        await settle()
        assert s.answered_by("op") is not None


async def test_audio_and_empty_units_are_refused() -> None:
    async with Session() as s:
        with pytest.raises(Unsupported):
            await s.backend.append(InputUnit(pcm=b"\0\0"), FIRST, "op")
        with pytest.raises(InvalidRequest):
            await s.backend.append(InputUnit(), FIRST, "op")


async def test_frame_ids_towards_the_engine_are_the_tenants_own() -> None:
    async with Session() as s:
        await s.frame(data=b"same")
        await s.frame(data=b"same")
        first, second = s.log.of("frame_seen")
        assert first.uuid == second.uuid and first.frame_id != second.frame_id


async def test_flaw_6_frames_are_bounded_before_they_are_sent() -> None:
    """A large picture reaches the engine within the pack's pixels, whatever the engine would do with it."""
    bounds = FrameBounds(JOYVL.pixels.min, JOYVL.pixels.max, JOYVL.pixels.multiple)
    gate = FrameGate(bounds)
    async with Session(check=gate.check) as s:
        await s.frame(data=jpeg(1, 1920, 1080), run=False)
        await settle()
        seen = s.log.of("frame_seen")[0]
        assert seen.width * seen.height <= JOYVL.pixels.max
        with Image.open(io.BytesIO(s.frames.get(seen.uuid))) as sent:
            assert sent.size == (seen.width, seen.height)
    gate.close()
