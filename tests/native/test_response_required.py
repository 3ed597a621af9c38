"""Suite *response-required*: exactly one complete response for each turn that asks for one.

A response of zeros, one without sound, or a lone decision to listen is a failure here, whoever is to blame.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.offline.drive import Played, PlayOptions, play
from orchestrator.offline.record import Answer
from orchestrator.offline.timeline import Recording
from tests.fakes.duplex_engine import Act, Kind, Script
from tests.native.checks import wrong_with
from tests.native.serving import INPUTS, NativeServed, reference

SPEAKS: Script = [Act(Kind.SPEAK, end=True, text="Here it is. ", audio_ms=1200)]


async def asked(served: NativeServed, *recordings: Recording) -> Played:
    options = PlayOptions(
        served.url, session={"ref_audio": reference()}, asks=True, tail_ms=0, quiet_s=2.0, drain_s=30.0
    )
    return await play(list(recordings), options, served.clock)


def verdict(result: Played, turns: int) -> list[str]:
    """What is wrong with the responses of so many requested turns."""
    answers = list(result.record.answers.values())
    wrong = [] if len(answers) == turns else [f"{len(answers)} responses to {turns} turns"]
    return wrong + [f"{answer.response_id}: {why}" for answer in answers for why in wrong_with(answer)]


@pytest.mark.parametrize("recording", INPUTS, ids=lambda r: r.name)
async def test_a_turn_gets_one_complete_response(tmp_path: Path, recording: Recording) -> None:
    async with NativeServed(tmp_path, SPEAKS) as served:
        result = await asked(served, recording)
        assert result.ok and result.drained, result.against
        assert verdict(result, 1) == []
        (answer,) = result.record.answers.values()
        timing = result.record.timings.report(answer.response_id)
        assert timing["commit_to_first_audio_ms"] is not None
        assert answer.ledger["played_ms"] == answer.audio_ms > 0
        heard = result.heard
        assert np.isfinite(heard).all() and heard.any()


async def test_each_of_three_turns_gets_its_own(tmp_path: Path) -> None:
    async with NativeServed(tmp_path, SPEAKS) as served:
        result = await asked(served, *INPUTS)
        assert result.ok and result.drained, result.against
        assert verdict(result, 3) == []


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("listen", "0 responses"),
        ([Act(Kind.SPEAK, end=True, audio_ms=1000, amplitude=0.0)], "zeros"),
        ([Act(Kind.SPEAK, end=True, audio_ms=0)], "no sound"),
    ],
    ids=("a lone listen", "zeros", "words alone"),
)
async def test_what_is_no_response_fails(tmp_path: Path, script: Script, why: str) -> None:
    async with NativeServed(tmp_path, script) as served:
        result = await asked(served, INPUTS[1])
        wrong = verdict(result, 1)
        assert wrong, "nothing was heard, and nobody noticed"
        assert any(why in each or "no sound" in each for each in wrong), wrong


def test_what_counts_as_sound() -> None:
    loud = np.full(2400, 0.1, np.float32)
    fine = Answer("r", 0.0, spoke=True, status="completed", rate_hz=24000, chunks=[loud])
    assert wrong_with(fine) == []
    for change, why in (
        ({"chunks": []}, "no sound"),
        ({"chunks": [loud * 0]}, "all zeros"),
        ({"chunks": [loud * 0.001]}, "silent"),
        ({"chunks": [np.full(10, np.nan, np.float32)]}, "not finite"),
        ({"status": "cancelled"}, "ended cancelled"),
        ({"spoke": False}, "did not choose to speak"),
    ):
        answer = Answer("r", 0.0, spoke=True, status="completed", rate_hz=24000, chunks=[loud])
        for key, value in change.items():
            setattr(answer, key, value)
        assert any(why in each for each in wrong_with(answer)), why
