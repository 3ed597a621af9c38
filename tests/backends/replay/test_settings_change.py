"""Settings that a live window does not have: it finishes as it is, and its successor comes early.

Pictures of another size, and prompt packs that were edited while the session rested.
"""

from __future__ import annotations

from typing import Any

import pytest

from memory.plan import Limits
from orchestrator.session.backend import SessionConfig
from orchestrator.wire.errors import InvalidRequest
from prompts.pack import Pack
from tests.backends.replay.harness import CONFIG, SILENCE, Session
from tests.backends.replay.packs import JOYVL
from tests.packs import edited, resized, reworded

SMALL = 65_536


def sides(s: Session) -> list[int]:
    return [fact.width for fact in s.log.of("frame_seen")]


async def rested(count: int = 5, **options: Any) -> Session:
    """A session that has ended after some frames and is to go on."""
    async with Session(**options) as s:
        await s.ask("watch the door")
        await s.run_frames(count)
    return s


def resumed(before: Session, pack: Pack, *more: Pack, **options: Any) -> Session:
    again = Session(pack=pack, packs=more, history=before.log.facts, frames=before.frames, **options)
    again.ms = before.ms
    return again


async def test_pictures_of_another_size_come_with_an_early_handover() -> None:
    async with Session() as s:
        await s.run_frames(4)
        tick = s.log.of("tick_answered")[-1].tick
        planned = await s.backend.update(SessionConfig("m", max_pixels=SMALL))
        assert planned == tick + 3
        assert [fact.max_pixels for fact in s.log.of("pixels_set")] == [SMALL]
        await s.run_frames(4)
        switched = s.log.of("window_switched")[-1]
        assert (switched.window, switched.reason) == (1, "settings")
        assert s.backend.memory.planned_switch_tick is None
        at = s.log.facts.index(switched)
        before = [f.width for f in s.log.facts[:at] if f.kind == "frame_seen"]
        assert set(before) == {512} and sides(s)[-1] == 256
        answered = [f.tick for f in s.log.facts[:at] if f.kind == "tick_answered"]
        assert answered[-1] < planned
        # The same again, and back to what the pack says.
        assert await s.backend.update(SessionConfig("m", max_pixels=SMALL)) is None
        assert await s.backend.update(CONFIG) is not None


@pytest.mark.parametrize("pixels", [0, 10**9])
async def test_pictures_that_the_pack_does_not_allow_are_refused(pixels: int) -> None:
    async with Session() as s:
        await s.run_frames(1)
        with pytest.raises(InvalidRequest) as refused:
            await s.backend.update(SessionConfig("m", persona="silent", max_pixels=pixels))
        assert (refused.value.code, refused.value.param) == ("invalid_max_pixels", "max_pixels")
        assert not s.log.of("pixels_set") and not s.log.of("persona_set")


async def test_an_update_that_leaves_no_room_changes_nothing() -> None:
    small = SessionConfig("m", max_pixels=SMALL)
    async with Session(window=Limits(context_tokens=1000), config=small) as s:
        await s.run_frames(1)
        settings = s.backend.memory.settings
        with pytest.raises(InvalidRequest) as refused:
            await s.backend.update(SessionConfig("m", instructions="word " * 9000, max_pixels=60_000))
        assert refused.value.code == "limits_too_small"
        assert s.backend.memory.settings == settings


async def test_a_live_window_finishes_on_the_pack_it_started_with() -> None:
    """Contract: until the handover the requests are those of a restart without an edit, byte for byte."""
    before = await rested()
    seen: list[list[Any]] = []
    for pack, more in ((JOYVL, ()), (reworded(JOYVL), (JOYVL,))):
        async with resumed(before, pack, *more) as s:
            await s.frame()
            seen.append([asked.request.messages for asked in s.engine.decisions])
            head = s.backend.memory.parts.handover or s.backend.memory.parts.live
            assert head is not None
            await s.run_frames(4)
            last = s.engine.decisions[-1].request.messages
    assert seen[0] == seen[1]
    assert last[0]["content"].endswith("Keep an eye on the edges.")
    assert "s>" in s.engine.decisions[-1].text and "seconds>" not in s.engine.decisions[-1].text
    told = s.log.of("pack_set")[0]
    assert told.pack_digest == reworded(JOYVL).digest
    assert s.log.of("window_switched")[-1].reason == "settings"
    assert "watch the door" in str(last)


async def test_an_edit_in_the_middle_of_the_handover_to_another() -> None:
    """Contract: three packs in one log; the window is on the first until it is over, then on the last."""
    before = await rested()
    async with resumed(before, reworded(JOYVL), JOYVL) as middle:
        assert middle.backend.memory.pack is JOYVL
    both = Session(
        pack=resized(JOYVL), packs=(JOYVL, reworded(JOYVL)), frames=before.frames,
        history=[*before.log.facts, *middle.log.facts],
    )  # fmt: skip
    both.ms = before.ms
    async with both as s:
        await s.frame()
        assert s.engine.decisions[0].request.messages[:-1] == (
            [*before.engine.decisions[-1].request.messages, {"role": "assistant", "content": SILENCE}]
        )
        await s.run_frames(5)
        assert s.backend.memory.pack is resized(JOYVL)
        assert sides(s)[0] == 512 and sides(s)[-1] == 256


async def test_a_window_asks_for_what_its_own_pack_says() -> None:
    """The longer reply of the new pack has no room in the old window's plan."""
    before = await rested()
    limits = Limits(reply_tokens=2 * JOYVL.decide.max_tokens)
    async with resumed(before, resized(JOYVL), JOYVL, window=limits) as s:
        await s.run_frames(6)
        asked = [n for a in s.engine.asked if (n := a.request.params["max_tokens"]) > 1]
        assert asked[0] == JOYVL.decide.max_tokens and asked[-1] == 2 * JOYVL.decide.max_tokens
        assert s.backend.memory.parts.limits.reply_tokens == 2 * JOYVL.decide.max_tokens


async def test_a_persona_that_is_gone_gives_way_to_the_default() -> None:
    def without(files: dict[str, str], model: dict[str, Any]) -> None:
        for language in ("en", "zh"):
            del files[f"persona_silent.{language}.txt"]

    config = SessionConfig("m", persona="silent")
    before = await rested(config=config)
    async with resumed(before, edited(JOYVL, without), JOYVL, config=config) as s:
        await s.run_frames(5)
        system = s.engine.decisions[-1].request.messages[0]["content"]
        assert system == JOYVL.persona("default", "en")


async def test_a_pack_that_leaves_no_room_is_refused_by_name() -> None:
    before = await rested()
    again = resumed(before, reworded(JOYVL), JOYVL, window=Limits(context_tokens=500))
    with pytest.raises(Exception, match="cannot hold") as refused:
        async with again:
            pass
    assert refused.value.code == "limits_too_small"  # type: ignore[attr-defined]


async def test_the_service_may_change_the_default_size_of_pictures() -> None:
    before = await rested()
    async with resumed(before, JOYVL, max_pixels=SMALL) as s:
        await s.run_frames(5)
        assert sides(s)[-1] == 256
