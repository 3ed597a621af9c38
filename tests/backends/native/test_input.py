"""Input on its way to the engine: split, paced, rolled back, committed, cleared."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bridges.duplex_client.link import EngineFault
from orchestrator.backends.native.options import NativeOptions
from orchestrator.session.commands import AppendInput, ClearInput, Interrupt
from orchestrator.session.events import ErrorEvent, InputCommitted, ResponseCreated, ResponseListen
from orchestrator.session.units import InputUnit
from tests.backends.native.harness import DUPLEX, FRAMES, JPEG, VISION, open_rig, ramp, samples
from tests.fakes.clock import settle
from tests.fakes.link import ScriptedLink, listen


async def test_five_appends_of_200_ms_are_one_unit() -> None:
    """Case 20, first half."""
    rig = await open_rig()
    for _ in range(5):
        assert rig.link.units == []
        await rig.append(200)
    (unit,) = rig.link.units
    assert (len(unit.pcm or b""), unit.format, unit.rate_hz) == (32000, "pcm16", 16000)
    assert (unit.duration_ms, unit.end_ms, unit.is_speech) == (1000, 1000, True)


async def test_three_seconds_at_once_are_three_units_at_most_two_ahead_of_the_clock() -> None:
    """Case 20, second half."""
    rig = await open_rig()
    await rig.append(3000)
    assert [unit.end_ms for unit in rig.link.units] == [1000, 2000]
    await rig.clock.advance(0.9)
    assert len(rig.link.units) == 2
    await rig.clock.advance(0.2)
    assert [unit.end_ms for unit in rig.link.units] == [1000, 2000, 3000]
    assert rig.link.unit_times == pytest.approx([0, 0, 1.0])


async def test_a_minute_at_once_is_written_in_order_on_the_streams_clock() -> None:
    rig = await open_rig()
    await rig.append(pcm=ramp(20 * 16000))
    await rig.clock.advance(20)
    heard = np.concatenate([np.frombuffer(unit.pcm or b"", "<i2") for unit in rig.link.units])
    assert np.array_equal(heard, np.arange(20 * 16000, dtype=np.int64).astype("<i2")) or len(heard) == 320000
    assert [round(at, 3) for at in rig.link.unit_times] == [0, 0, *range(1, 19)]


async def test_odd_packets_become_exact_frames_and_only_the_last_is_padded() -> None:
    rig = await open_rig(FRAMES)
    count = 0
    for size in (1, 1919, 1921, 333, 3333, 7, 1920, 960):
        await rig.append(pcm=ramp(size, count))
        count += size
        await rig.clock.advance(0.08)
    await rig.clock.advance(1.0)
    assert [len(unit.pcm or b"") for unit in rig.link.units] == [4 * 1920] * (count // 1920)
    await rig.commit()
    await rig.clock.advance(1.0)
    assert len(rig.link.units) == count // 1920 + 1
    heard = b"".join(unit.pcm or b"" for unit in rig.link.units)
    assert heard[: 4 * count] == ramp(count)
    assert not any(heard[4 * count :])
    assert {(unit.format, unit.rate_hz) for unit in rig.link.units} == {("pcm_f32le", 24000)}


async def test_frames_ride_the_unit_that_closes_them() -> None:
    """Case 22, first half."""
    rig = await open_rig()
    for index in range(1, 11):
        await rig.append(200, *((JPEG + bytes([index]),) if index in (5, 10) else ()))
    assert [unit.frames for unit in rig.link.units] == [(JPEG + b"\x05",), (JPEG + b"\x0a",)]


async def test_a_failed_unit_is_rolled_back_and_its_frame_sent_once() -> None:
    """Case 22, second half; case 38, its first error."""
    rig = await open_rig()
    for _ in range(4):
        await rig.append(200)
    rig.link.fail("append", "engine_error")
    await rig.append(200, JPEG, operation_id="op-x")
    assert (rig.link.units, rig.codes()) == ([], ["runtime_append_failed"])
    await rig.append(200, JPEG, operation_id="op-x")
    (unit,) = rig.link.units
    assert (unit.frames, len(unit.pcm or b"")) == ((JPEG,), 32000)


async def test_a_failed_append_sends_no_sample_twice_when_it_comes_again() -> None:
    """The first of its units was written: the same operation goes on behind it."""
    rig = await open_rig()
    await rig.append(pcm=ramp(8000))
    rig.link.fail("append", "engine_error", 0)
    calls = 0
    write = rig.link.append

    async def second_fails(unit):  # type: ignore[no-untyped-def]
        nonlocal calls
        calls += 1
        if calls == 2:
            rig.link.fail("append", "engine_error")
        return await write(unit)

    rig.link.append = second_fails  # type: ignore[method-assign]
    await rig.append(pcm=ramp(24000, 8000), operation_id="op-x")
    assert (len(rig.link.units), rig.codes()) == (1, ["runtime_append_failed"])
    await rig.append(pcm=ramp(24000, 8000), operation_id="op-x")
    heard = b"".join(unit.pcm or b"" for unit in rig.link.units)
    assert heard == np.rint(np.frombuffer(ramp(32000), "<f4") * 32768).astype("<i2").tobytes()


async def test_a_commit_behind_a_failed_append_is_aborted_and_the_next_pair_works() -> None:
    """Case 38."""
    rig = await open_rig()
    rig.link.fail("append", "engine_error")
    await rig.append(1000)
    await rig.commit()
    assert rig.codes() == ["runtime_append_failed", "commit_aborted"]
    await rig.append(1000)
    await rig.commit()
    assert len(rig.link.units) == 1
    assert len(rig.of(InputCommitted)) == 1


async def test_input_that_no_engine_takes_is_bounded_and_refused_without_keeping_any() -> None:
    rig = await open_rig(options=NativeOptions(max_pending_bytes=100_000))
    rig.link.hold("append")
    for _ in range(3):
        await rig.append(500)
        await rig.clock.advance(0.5)
    assert rig.codes() == []
    await rig.append(500)
    await rig.clock.advance(0.5)
    assert rig.codes() == ["input_backpressure"]
    assert rig.backend.statistics()["input"]["bytes"] == 96_000
    rig.link.free("append")
    await settle()
    await rig.append(500)
    await rig.clock.advance(1.0)
    assert [unit.end_ms for unit in rig.link.units] == [1000, 2000]


async def test_an_engines_own_refusal_of_a_unit_reaches_the_client_and_is_a_gap() -> None:
    rig = await open_rig()
    await rig.append(1000)
    await rig.say(EngineFault("input_backpressure", "too fast", "evt_1", True))
    assert rig.codes() == ["input_backpressure"]
    assert rig.of(ErrorEvent)[0].error.event_id == "e-op-1"
    (gap,) = rig.facts("media_gap")
    assert (gap["units"], gap["reason"]) == ((0,), "input_backpressure")


# --- commits in auto mode -----------------------------------------------------------------------------------


async def test_a_commit_at_an_exact_boundary_sends_nothing() -> None:
    """Case 31, first half."""
    rig = await open_rig()
    await rig.append(1000)
    await rig.commit()
    await rig.clock.advance(3)
    assert len(rig.link.units) == 1
    assert rig.link.named("commit") == []
    assert len(rig.of(InputCommitted)) == 1


async def test_a_commit_with_a_residue_sends_one_padded_unit() -> None:
    """Case 31, second half."""
    rig = await open_rig()
    await rig.append(1400)
    await rig.commit()
    assert rig.link.named("commit") == []
    (_, last) = rig.link.units
    heard = np.frombuffer(last.pcm or b"", "<i2")
    assert (len(heard), last.end_ms) == (16000, 2000)
    assert heard[:6400].all() and not heard[6400:].any()


async def test_a_commit_is_forwarded_where_the_profile_says_so() -> None:
    rig = await open_rig(replace(DUPLEX, forward_commit=True))
    await rig.append(1400)
    await rig.commit()
    assert (len(rig.link.units), rig.link.named("commit")) == (2, [False])


async def test_a_commit_is_announced_before_any_output_of_it() -> None:
    def script(link: ScriptedLink, unit: object) -> list[object]:
        from tests.fakes.link import spoken

        return list(spoken(f"r{len(link.units)}", ("hi", 100))) if len(link.units) == 2 else [listen()]

    rig = await open_rig(script=script)
    await rig.append(1400)
    await rig.commit()
    await rig.clock.advance(1)
    types = rig.types()
    assert types.index("input_audio_buffer.committed") < types.index("response.created")


async def test_auto_mode_and_the_model_listens() -> None:
    """Case 32."""
    rig = await open_rig(script=lambda link, unit: [listen()])
    for _ in range(3):
        await rig.append(1000)
        await rig.clock.advance(1)
    told = rig.of(ResponseListen)
    assert [event.response_id for event in told] == [None]
    assert rig.of(ResponseCreated) == []


async def test_only_silence_then_a_commit_clears_what_is_left_of_it() -> None:
    rig = await open_rig()
    await rig.append(400, speech=False)
    await rig.commit()
    await rig.append(1000)
    (unit,) = rig.link.units
    assert np.frombuffer(unit.pcm or b"", "<i2").all()
    assert rig.link.named("clear") == [None]


# --- clear --------------------------------------------------------------------------------------------------


async def test_clear_drops_what_was_not_written_here_and_at_the_engine() -> None:
    rig = await open_rig()
    await rig.append(3600)
    await rig.session.submit(ClearInput())
    await rig.clock.advance(5)
    assert len(rig.link.units) == 2
    assert rig.link.named("clear") == [None]
    assert rig.backend.statistics()["input"]["bytes"] == 0


async def test_an_interruption_drops_input_that_waits() -> None:
    rig = await open_rig()
    await rig.append(400)
    await rig.session.submit(Interrupt(barge_in=False))
    await settle()
    await rig.append(600)
    assert rig.link.units == []


async def test_who_waits_for_input_that_was_cleared_is_told() -> None:
    rig = await open_rig(script=lambda link, unit: [listen()])
    unit = InputUnit((), samples(8000), speech=True)
    command = AppendInput("op", unit, is_speech=True, duration_ms=500)
    waiting = asyncio.ensure_future(rig.session.operation(command, 60))
    await settle()
    assert not waiting.done()
    await rig.session.submit(ClearInput())
    await settle()
    outcome = await waiting
    assert (outcome.record["status"], outcome.record["reason"]) == ("dropped", "cleared")
    assert rig.codes() == [] and rig.link.units == []


# --- frames alone -------------------------------------------------------------------------------------------


async def test_a_frame_alone_is_a_unit_at_once_where_the_engine_takes_it() -> None:
    """Case 19, where audio is optional."""
    rig = await open_rig(VISION)
    await rig.append(400)
    await rig.append(0, JPEG)
    (unit,) = rig.link.units
    assert (unit.pcm, unit.frames, unit.duration_ms) == (None, (JPEG,), 0)
    await rig.append(600)
    assert (rig.link.units[1].frames, rig.link.units[1].end_ms) == ((), 1000)


async def test_a_frame_alone_is_refused_where_the_engine_requires_audio() -> None:
    """Case 19, where it is required."""
    rig = await open_rig(DUPLEX)
    with pytest.raises(Exception) as error:
        await rig.append(0, JPEG)
    assert error.value.code == "invalid_input_modality"  # type: ignore[attr-defined]


async def test_a_frame_alone_gets_silence_where_only_the_engine_requires_audio() -> None:
    told = {"required_input_modalities": ["audio"], "optional_input_modalities": ["video"]}
    rig = await open_rig(VISION, told=told)
    await rig.append(0, JPEG)
    (unit,) = rig.link.units
    assert (unit.frames, len(unit.pcm or b""), any(unit.pcm or b"")) == ((JPEG,), 32000, False)
