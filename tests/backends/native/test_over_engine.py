"""The backend over the real link and the scripted engine: exchanges, a barge-in, frames, a restart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.session.commands import Cancel, CommitInput, CreateResponse
from orchestrator.session.events import (
    NoticeEvent,
    OutputAudioDelta,
    OutputTranscriptDone,
    ResponseCreated,
    ResponseDone,
)
from prompts.native_loader import native_profile
from tests.backends.native.engine_rig import FAMILY, over_engine
from tests.backends.native.harness import JPEG
from tests.fakes.duplex_engine import MINICPM_VISION_LIKE, PERSONAPLEX_LIKE
from tests.realtime.serving import eventually


async def test_an_exchange() -> None:
    async with over_engine("pattern:LSE") as rig:
        rig.acking = True
        for _ in range(6):
            await rig.append(1000)
        await eventually(lambda: len(rig.of(ResponseDone)) >= 2)
        assert {event.status for event in rig.of(ResponseDone)} == {"completed"}
        assert all(event.transcript for event in rig.of(OutputTranscriptDone))

        def given() -> list[int]:
            return [unit.samples for unit in rig.engine_session.units if not unit.silence]

        await eventually(lambda: given() == [16000] * 6)
        await eventually(lambda: len(rig.engine_session.acks) >= 2)
    assert rig.engine.live == []
    assert rig.pool.statistics()["engine"]["sessions"] == 0


@pytest.mark.parametrize("late", [0, 3])
async def test_a_barge_in_leaves_no_byte_of_the_old_answer(late: int) -> None:
    """Audio queued, held for its words, and in flight from an engine that goes on speaking meanwhile."""
    async with over_engine(lambda unit: "S" if unit.number == 1 else "L") as rig:
        faults = rig.engine.faults
        faults.cancel_ms, faults.leak_on_cancel, faults.late_after_cancel = 1500, True, late
        faults.chunk_ms = 100
        await rig.append(2000)
        await eventually(lambda: rig.of(OutputAudioDelta))
        await rig.session.submit(Cancel())
        await eventually(lambda: rig.session.view()["epoch"] == 1)
        before = len(rig.audio())
        await eventually(lambda: rig.of(ResponseDone))
        await rig.clock.sleep(3)
        assert len(rig.audio()) == before
        (done,) = rig.of(ResponseDone)
        assert done.status == "cancelled"
        epochs = {event.fence.epoch for event in rig.of(OutputAudioDelta)}
        assert epochs == {0}


async def test_frames_alone_where_the_engine_takes_them() -> None:
    async with over_engine("pattern:SE", MINICPM_VISION_LIKE) as rig:
        await rig.append(0, JPEG)
        await eventually(lambda: rig.engine_session.units)
        assert rig.engine_session.units[0].modality == "vision"
        await eventually(lambda: rig.of(ResponseCreated))


@pytest.mark.parametrize("separately", [False, True])
async def test_two_frames_and_a_commit_in_turn_mode(separately: bool) -> None:
    async with over_engine("pattern:E", MINICPM_VISION_LIKE, auto_response=False) as rig:
        await rig.append(0, JPEG + b"1")
        await rig.append(0, JPEG + b"2")
        await rig.session.submit(CommitInput(not separately))
        if separately:
            await rig.session.submit(CreateResponse())
        await eventually(lambda: rig.of(ResponseDone))
        units = [unit for unit in rig.engine_session.units if not unit.silence]
        assert [unit.frames for unit in units] == [(JPEG + b"1",), (JPEG + b"2",)]
        assert [unit.prefix for unit in units] == [True, False]
        assert len(rig.of(ResponseCreated)) == 1
        assert rig.session.statistics()["pending_input_bytes"] == 0


async def test_an_engine_that_restarts_is_told_what_was_said() -> None:
    async with over_engine("pattern:LE") as rig:
        rig.acking = True
        await rig.append(2000)
        await eventually(lambda: rig.of(ResponseDone))
        await eventually(lambda: rig.backend.memory.revision >= 1)
        await rig.engine.restart()
        await eventually(lambda: len(rig.engine.sessions) == 2)
        await eventually(lambda: rig.of(NoticeEvent))
        assert [event.code for event in rig.of(NoticeEvent)] == ["engine_recovered"]
        said = rig.of(OutputTranscriptDone)[0].transcript.strip()
        assert said in str(rig.engine.openings[-1]["instructions"])
        await rig.append(3000)
        await eventually(lambda: len(rig.of(ResponseDone)) >= 2)


async def test_frames_of_80_ms_in_one_format() -> None:
    profile = native_profile("personaplex")
    from orchestrator.wire.audio import AudioFormat, Codec

    async with over_engine(
        "listen",
        PERSONAPLEX_LIKE,
        profile=profile,
        extra_body={},
        input_format=AudioFormat(Codec.FLOAT32, 24000),
    ) as rig:
        for ms in (13, 100, 7, 200, 81):
            await rig.append(ms)
        await eventually(lambda: len(rig.engine_session.units) == 5)
        await rig.session.submit(CommitInput())
        await eventually(lambda: len(rig.engine_session.units) == 6)
        assert {unit.samples for unit in rig.engine_session.units} == {1920}


@pytest.mark.parametrize("forward", [False, True])
async def test_the_profile_decides_whether_a_commit_reaches_the_engine(forward: bool) -> None:
    profile = replace(native_profile(FAMILY), forward_commit=forward)
    async with over_engine("listen", profile=profile) as rig:

        def committed() -> bool:
            return any(e["type"] == "input_audio_buffer.commit" for e in rig.engine_session.received)

        await rig.append(1400)
        await rig.session.submit(CommitInput())
        await eventually(lambda: len(rig.engine_session.units) >= 2)
        if forward:
            await eventually(committed)
        else:
            await rig.clock.sleep(1)
            assert not committed()
