"""Playback that pauses because the user may be speaking: told to who asks for it, not heard meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.session.backend import (
    PLAYBACK,
    Action,
    AudioDelta,
    Capabilities,
    Decision,
    PlaybackHeld,
    TextDelta,
)
from orchestrator.session.commands import Cancel
from orchestrator.session.fence import Fence
from tests.session.driver import Driver, make_core

VOICE = Capabilities(1000, optional_input_modalities=("audio", "video"), output_modalities=("text", "audio"))
F0 = Fence()


def speaking(**config: Any) -> Driver:
    """A socket's session that has been sent a second of an answer."""
    d = Driver(make_core(VOICE, auto_response=True, **config))
    _, effects = d.core.attach(0.0)
    d.absorb(effects)
    second = AudioDelta(F0, bytes(48_000), 24000, ((4, 1000),))
    d.yields(Decision(F0, 0, Action.RESPONSE), TextDelta(F0, "word"), second)
    written(d)
    return d


def written(d: Driver) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    while events := d.core.take(d.now):
        out += [event.value for event in events]
    return out


def test_who_asks_for_it_is_told() -> None:
    d = speaking(include=(PLAYBACK,))
    d.yields(PlaybackHeld(F0, True), PlaybackHeld(F0, False))
    told = [(e["type"], e["action"], e["response_id"]) for e in written(d)]
    (response_id,) = {each[2] for each in told}
    assert told == [(PLAYBACK, "pause", response_id), (PLAYBACK, "resume", response_id)]
    assert d.core.view()["active_response_id"] == response_id


def test_nobody_else_is() -> None:
    d = speaking()
    d.yields(PlaybackHeld(F0, True), PlaybackHeld(F0, False))
    assert not written(d)


@pytest.mark.parametrize(("paused_s", "heard_ms"), [(0.0, 900), (5.0, 900)])
def test_the_wall_clock_plays_nothing_while_it_is_paused(paused_s: float, heard_ms: int) -> None:
    d = speaking(include=(PLAYBACK,), playback_policy="wall_clock")
    d.now += 0.5
    d.yields(PlaybackHeld(F0, True))
    d.now += paused_s
    d.yields(PlaybackHeld(F0, False))
    d.now += 0.4
    d.send(Cancel())
    (done,) = [e for e in written(d) if e["type"] == "response.done"]
    assert done["vllm_omni"]["playback"]["committed_ms"] == heard_ms
    assert done["response"]["output"][0]["content"][0]["transcript"] == "wor"


def test_a_pause_without_anything_to_play_is_told_all_the_same() -> None:
    d = Driver(make_core(VOICE, auto_response=True, include=(PLAYBACK,)))
    _, effects = d.core.attach(0.0)
    d.absorb(effects)
    written(d)
    d.yields(PlaybackHeld(F0, True))
    (told,) = written(d)
    assert told["action"] == "pause" and "response_id" not in told
