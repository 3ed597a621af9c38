"""What a summarizer tells of a native session's pictures, and of its talk; and a session without one."""

from __future__ import annotations

from bridges.engine import EngineTimeout
from memory.facts import parse_fact
from memory.spoken import SpokenMemory
from orchestrator.backends.native.pictures import CHUNK_S, KEY_FRAMES, MAX_BYTES, PERIOD_MS
from tests.backends.native.harness import JPEG, VISION, Rig, open_rig
from tests.fakes.link import listen
from tests.fakes.summarizer import Writer

PERIOD_S = PERIOD_MS // 1000


async def looking(writer: Writer | None = None, seconds: int = 0) -> Rig:
    rig = await open_rig(VISION, script=lambda link, unit: [listen()], summarizer=writer)
    await look(rig, seconds)
    return rig


async def look(rig: Rig, seconds: int, size: int = 0) -> None:
    """A second of quiet and a picture, each told from the others, and a composite beside it."""
    for _ in range(seconds):
        number = sum(bool(unit.frames) for unit in rig.link.units)
        await rig.append(1000, JPEG + b"%d" % number + bytes(size), JPEG + b"composite", speech=False)
        await rig.clock.advance(1)


async def test_key_frames_of_a_minute_become_a_text_in_memory_and_seed() -> None:
    writer = Writer(("A red kettle boils over.",))
    rig = await looking(writer, 70)
    assert writer.took == [[JPEG + b"%d" % (PERIOD_S * n) for n in range(KEY_FRAMES)]]
    (fact,) = rig.facts("frames_described")
    span = PERIOD_S * (KEY_FRAMES - 1)
    assert fact["text"] == "A red kettle boils over." and fact["count"] == 2 * (span + 1)
    assert fact["end_ms"] - fact["start_ms"] == 1000 * span + 1
    seed = rig.backend._memory.seed()
    assert "to be seen in them): A red kettle boils over." in seed
    assert "(pictures were shown: 26)" in seed
    figures = rig.backend.statistics()["pictures"]
    assert (figures["told"], figures["failed"]) == (1, 0) and figures["key_frames"] <= 2

    again = SpokenMemory()
    for kind, data in rig.log.entries:
        if (known := parse_fact(kind, dict(data))) is not None:
            again.apply(known)
    assert again.fingerprint() == rig.backend.memory.fingerprint()


async def test_a_single_picture_is_told_after_a_while() -> None:
    writer = Writer(("A kettle.",))
    rig = await looking(writer, 1)
    await rig.clock.advance(CHUNK_S / 2)
    assert writer.asked == []
    await rig.clock.advance(CHUNK_S)
    (fact,) = rig.facts("frames_described")
    assert fact["count"] == 2 and writer.pictures == [1]
    await rig.clock.advance(10 * CHUNK_S)
    assert len(writer.asked) == 1


async def test_what_fails_is_tried_again_and_stays_a_count_meanwhile() -> None:
    writer = Writer((EngineTimeout("late", "total"), "", "A kettle."))
    rig = await looking(writer, 1)
    await rig.clock.advance(CHUNK_S)
    assert rig.facts("frames_described") == []
    assert "(pictures were shown: 2)" in rig.backend._memory.seed()
    for _ in range(20):
        await rig.clock.advance(1)
    assert [fact["text"] for fact in rig.facts("frames_described")] == ["A kettle."]
    assert rig.backend.statistics()["pictures"]["failed"] == 2
    assert rig.codes() == []


async def test_a_summarizer_that_stays_away_costs_bounded_room_and_no_session() -> None:
    writer = Writer((EngineTimeout("late", "total"),))
    rig = await looking(writer, 20 * 60)
    figures = rig.backend.statistics()["pictures"]
    assert figures["key_frames"] <= KEY_FRAMES * 10 and figures["told"] == 0
    assert "(pictures were shown: 2400)" in rig.backend._memory.seed()
    assert rig.codes() == []


async def test_pictures_beyond_the_room_are_only_counted() -> None:
    writer = Writer(("A kettle.",), ready=False)
    rig = await looking(writer)
    await look(rig, 9 * PERIOD_S, size=MAX_BYTES // 4)
    figures = rig.backend.statistics()["pictures"]
    assert figures["bytes"] <= MAX_BYTES and figures["no_room"] > 0
    writer.ready = True
    for _ in range(40):
        await rig.clock.advance(1)
    assert rig.facts("frames_described")


async def test_without_a_summarizer_or_without_its_eyes_pictures_are_counted() -> None:
    blind = Writer(images=False)
    for writer in (None, blind):
        rig = await looking(writer, 70)
        assert "(pictures were shown: 140)" in rig.backend._memory.seed()
        assert "pictures" not in rig.backend.statistics()
    assert blind.asked == []
