"""Talk beyond what is kept word for word: put well by a summarizer, cut from the talk without one."""

from __future__ import annotations

from dataclasses import replace

from bridges.engine import EngineTimeout
from prompts.native import Horizon, Seed
from tests.backends.native.harness import DUPLEX, Rig, open_rig
from tests.backends.native.test_rollover_carried_out import every_fifth, talk
from tests.fakes.summarizer import Writer

SMALL = replace(DUPLEX, horizon=Horizon(None, 12.0, 64, 40, Seed.INSTRUCTIONS, 256))


async def talked(writer: Writer | None) -> Rig:
    rig = await open_rig(SMALL, script=every_fifth, summarizer=writer)
    await talk(rig, 120)
    assert rig.codes() == []
    return rig


async def test_a_summarizers_words_take_the_place_of_the_cut_ones() -> None:
    writer = Writer(("They spoke of numbers.",))
    rig = await talked(writer)
    assert writer.asked and set(writer.pictures) == {0}
    assert "answer" in str(writer.asked[0])
    assert rig.facts("summary_landed")
    seed = rig.backend._memory.seed()
    assert "They spoke of numbers." in seed and "answer" in seed


async def test_a_summarizer_that_fails_leaves_the_cut_words() -> None:
    writer = Writer((EngineTimeout("late", "total"),))
    rig = await talked(writer)
    failed = rig.facts("summary_failed")
    assert failed and {each["reason"] for each in failed} == {"summarizer_timeout"}
    assert rig.facts("summary_landed") == []
    assert [passage.text for passage in rig.backend.memory.history.summaries]


async def test_what_runs_away_or_is_cut_off_is_no_summary() -> None:
    writer = Writer(("They spoke of numbers. " * 9,), finish="length")
    rig = await talked(writer)
    assert {each["reason"] for each in rig.facts("summary_failed")} == {"repetition"}


async def test_without_a_summarizer_nothing_is_asked() -> None:
    rig = await talked(None)
    assert rig.facts("summary_landed") == rig.facts("summary_failed") == []
    assert [passage.text for passage in rig.backend.memory.history.summaries]
