"""When a session leaves its engine session for a fresh one."""

from __future__ import annotations

import pytest

from orchestrator.backends.native.rollover import (
    CloseFresh,
    CloseOld,
    EndClearly,
    OpenFresh,
    Rollover,
    Switch,
    Waits,
    Warm,
)
from prompts.native import Seed
from tests.backends.native.conversations import Talk, horizon


class Scene:
    """A rollover on a clock of its own; ``fill`` brings the context to a share of its limit."""

    def __init__(self, *, spare: bool = True, unlimited: bool = False, **changes: object) -> None:
        self.talk = Talk()
        self.now = 0.0
        self.rollover = Rollover(
            horizon(**changes), self.talk, unit_ms=1000, spare=spare, unlimited=unlimited
        )

    def fill(self, share: float) -> None:
        context = self.rollover.context
        while context.tokens < share * (context.limit or 1):
            self.rollover.unit(self.now, 1000)
            self.now += 1

    def wants(self) -> list[object]:
        return list(self.rollover.wants(self.now))

    def turn(self, response: str = "r", text: str = "Hello there.") -> None:
        self.rollover.response_opened()
        self.rollover.response_closed(self.now, playing=True)
        self.talk.hears(response, text)
        self.rollover.heard()

    def ready(self) -> int:
        """Open and warm the fresh session that is wanted."""
        (fresh,) = self.wants()
        assert isinstance(fresh, OpenFresh)
        self.rollover.fresh_opened(fresh.generation)
        assert self.wants() == [Warm(fresh.generation)]
        self.rollover.fresh_warm(fresh.generation, 1000)
        return fresh.generation


def test_before_the_horizon_nothing_is_wanted() -> None:
    scene = Scene()
    scene.fill(0.79)
    assert scene.wants() == [] and scene.rollover.next_at(scene.now) is None


def test_a_fresh_session_is_prepared_and_switched_to_at_a_turn_boundary() -> None:
    scene = Scene()
    scene.talk.hears("r", "Paris is nice.")
    scene.fill(0.8)
    scene.rollover.response_opened()
    assert scene.wants() == []
    scene.rollover.response_closed(scene.now, playing=False)
    generation = scene.ready()
    assert scene.wants() == [Switch(generation)]
    assert scene.wants() == []
    scene.rollover.switched(generation)
    assert scene.wants() == [CloseOld(0, "rolled_over")]
    scene.rollover.old_closed(scene.now, 0)
    assert scene.wants() == [] and scene.rollover.switches == 1
    assert scene.rollover.context.tokens < 0.5 * 2040


def test_a_unit_that_the_model_may_still_answer_is_waited_for() -> None:
    scene = Scene()
    scene.fill(0.8)
    scene.rollover.undecided(1)
    assert scene.wants() == []
    scene.rollover.undecided(0)
    generation = scene.ready()
    scene.rollover.undecided(3)
    assert scene.wants() == []
    scene.rollover.undecided(4)  # it does not decide on each
    assert scene.wants() == [Switch(generation)]


def test_the_seed_waits_for_the_word_that_the_last_answer_was_heard() -> None:
    scene = Scene()
    scene.fill(0.8)
    scene.rollover.response_opened()
    scene.rollover.response_closed(scene.now, playing=True)
    assert scene.wants() == [] and scene.rollover.next_at(scene.now) == scene.now + 8
    scene.talk.hears("r", "The last answer.")
    scene.rollover.heard()
    (fresh,) = scene.wants()
    assert isinstance(fresh, OpenFresh) and "The last answer." in fresh.seed


def test_that_word_is_waited_for_no_longer_than_a_while() -> None:
    scene = Scene()
    scene.fill(0.8)
    scene.rollover.response_opened()
    scene.rollover.response_closed(scene.now, playing=True)
    scene.now += 8
    assert isinstance(scene.wants()[0], OpenFresh)


def test_talk_that_went_on_makes_a_seed_out_of_date() -> None:
    scene = Scene()
    scene.fill(0.8)
    first = scene.ready()
    scene.rollover.speech(scene.now, user=True)
    assert scene.wants() == []
    scene.turn("r2", "Something new.")
    scene.rollover.speech(scene.now, user=False)
    assert scene.wants() == [CloseFresh(first, "seed_out_of_date")]
    scene.rollover.fresh_closed(first)
    (again,) = scene.wants()
    assert isinstance(again, OpenFresh) and "Something new." in again.seed and again.generation == first + 1


def test_when_the_context_is_nearly_full_an_older_seed_will_do() -> None:
    scene = Scene()
    scene.fill(0.8)
    generation = scene.ready()
    scene.fill(0.9)
    scene.turn("r2", "Something new.")
    assert scene.wants() == [Switch(generation)]


def test_at_the_hard_limit_the_response_is_cut() -> None:
    scene = Scene()
    scene.fill(0.8)
    generation = scene.ready()
    scene.rollover.response_opened()
    assert scene.wants() == []
    scene.fill(0.9)
    assert scene.wants() == []
    scene.fill(0.96)
    assert scene.wants() == [Switch(generation, end_response="incomplete", forced=True)]


def test_without_turn_ends_the_longest_silence_is_the_boundary() -> None:
    """The silence that is asked for shrinks as the context fills; the open response is completed."""
    scene = Scene(turn_ends=False)
    scene.rollover.response_opened()
    scene.rollover.speech(scene.now, model=True)
    scene.fill(0.8)
    assert scene.wants() == []
    scene.rollover.speech(scene.now, model=False)
    scene.now += 1
    generation = scene.ready()
    assert scene.wants() == []
    at = scene.rollover.next_at(scene.now)
    assert at is not None and at < scene.now + 1.5
    scene.now = at
    assert scene.wants() == [Switch(generation, end_response="completed")]


def test_without_turn_ends_and_without_silence_the_hard_limit_counts() -> None:
    scene = Scene(turn_ends=False)
    scene.rollover.response_opened()
    scene.rollover.speech(scene.now, model=True)
    scene.fill(0.9)
    generation = scene.ready()
    assert scene.wants() == []
    scene.fill(0.96)
    assert scene.wants() == [Switch(generation, end_response="completed", forced=True)]


def test_with_one_place_the_old_session_is_closed_first_and_the_gap_is_stated() -> None:
    scene = Scene(spare=False)
    scene.fill(0.8)
    scene.rollover.response_opened()
    assert scene.wants() == []
    scene.rollover.response_closed(scene.now, playing=False)
    assert scene.wants() == [CloseOld(0, "make_room")]
    assert not scene.rollover.fits(1000)
    assert scene.wants() == []
    scene.now += 0.25
    scene.rollover.old_closed(scene.now, 0)
    generation = scene.ready()
    scene.now += 0.5
    assert scene.wants() == [Switch(generation, gap_ms=750, forced=True)]
    scene.rollover.switched(generation)
    assert scene.wants() == [] and scene.rollover.fits(1000)


def test_a_model_that_cannot_be_told_ends_clearly_when_its_context_is_full() -> None:
    scene = Scene(seed=Seed.NONE)
    scene.fill(0.9)
    assert scene.wants() == []
    scene.rollover.response_opened()
    scene.fill(0.96)
    assert scene.wants() == []
    scene.rollover.response_closed(scene.now, playing=False)
    (end,) = scene.wants()
    assert isinstance(end, EndClearly) and end.code == "context_exhausted"
    assert scene.wants() == [] and not scene.rollover.fits(1000)


def test_a_sliding_window_never_rolls_over() -> None:
    scene = Scene(unlimited=True)
    scene.rollover.unit(0.0, 10_000_000)
    assert scene.wants() == []


def test_a_refused_session_is_asked_for_again_after_a_rest() -> None:
    scene = Scene()
    scene.fill(0.8)
    waits = []
    for _ in range(4):
        (fresh,) = scene.wants()
        assert isinstance(fresh, OpenFresh)
        scene.rollover.fresh_failed(scene.now, fresh.generation)
        assert scene.wants() == []
        at = scene.rollover.next_at(scene.now)
        assert at is not None
        waits.append(at - scene.now)
        scene.now = at
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_hint_of_the_engine_is_kept_to_within_bounds() -> None:
    scene = Scene()
    scene.fill(0.8)
    scene.rollover.fresh_failed(scene.now, scene.wants()[0].generation, retry_after_s=3600)  # type: ignore[attr-defined]
    assert scene.wants() == [] and scene.rollover.next_at(scene.now) == scene.now + 15


def test_refused_until_the_hard_limit_the_old_session_makes_room() -> None:
    scene = Scene()
    scene.fill(0.8)
    scene.rollover.fresh_failed(scene.now, scene.wants()[0].generation)  # type: ignore[attr-defined]
    scene.rollover.response_opened()
    while scene.rollover.fits(1000, 1):
        scene.rollover.unit(scene.now, 1000)
    wants = scene.wants()
    assert CloseOld(0, "make_room", "incomplete") in wants


def test_a_lost_engine_is_replaced_with_a_seed_from_memory() -> None:
    scene = Scene()
    scene.turn("r", "Before the crash.")
    scene.rollover.response_opened()
    scene.rollover.lost(scene.now)
    assert not scene.rollover.fits(1000)
    (fresh,) = scene.wants()
    assert isinstance(fresh, OpenFresh) and "Before the crash." in fresh.seed
    scene.rollover.fresh_failed(scene.now, fresh.generation)
    scene.now += 0.5
    generation = scene.ready()
    assert scene.wants() == [Switch(generation, gap_ms=500, forced=True)]
    scene.rollover.switched(generation)
    assert scene.wants() == []


def test_a_lost_engine_that_stays_away_ends_the_session_clearly() -> None:
    scene = Scene()
    scene.rollover.lost(scene.now)
    scene.rollover.fresh_failed(scene.now, scene.wants()[0].generation)  # type: ignore[attr-defined]
    while not (wants := scene.wants()) or isinstance(wants[0], OpenFresh):
        if wants:
            scene.rollover.fresh_failed(scene.now, wants[0].generation)  # type: ignore[attr-defined]
        at = scene.rollover.next_at(scene.now)
        assert at is not None
        scene.now = at
    assert isinstance(wants[0], EndClearly) and wants[0].code == "engine_lost"
    assert scene.now == Waits().without


def test_an_engine_lost_with_a_fresh_session_ready_is_no_loss() -> None:
    scene = Scene()
    scene.fill(0.8)
    generation = scene.ready()
    scene.rollover.response_opened()
    scene.rollover.lost(scene.now)
    assert scene.wants() == [Switch(generation, forced=True)]


def test_a_model_that_cannot_be_told_ends_with_its_engine() -> None:
    scene = Scene(seed=Seed.NONE)
    scene.rollover.lost(scene.now)
    (end,) = scene.wants()
    assert isinstance(end, EndClearly) and end.code == "engine_lost"


def test_reports_on_sessions_that_are_not_awaited_change_nothing() -> None:
    scene = Scene()
    rollover = scene.rollover
    rollover.fresh_opened(1)
    rollover.fresh_warm(1)
    rollover.switched(1)
    rollover.old_closed(0.0, 7)
    rollover.fresh_closed(1)
    rollover.fresh_failed(0.0, 1)
    assert scene.wants() == [] and rollover.generation == 0
    scene.fill(0.8)
    (fresh,) = scene.wants()
    rollover.fresh_failed(scene.now, fresh.generation)  # type: ignore[attr-defined]
    rollover.fresh_opened(fresh.generation)  # type: ignore[attr-defined]
    assert scene.wants() == []


def test_no_second_rollover_begins_before_the_old_session_is_closed() -> None:
    scene = Scene()
    scene.fill(0.8)
    generation = scene.ready()
    scene.wants()
    scene.rollover.switched(generation)
    scene.wants()
    scene.fill(0.9)
    assert scene.wants() == []
    scene.rollover.old_closed(scene.now, 0)
    assert isinstance(scene.wants()[0], OpenFresh)


def test_a_seed_that_leaves_no_room_to_talk_in_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        Scene(seed_max_tokens=1900)
