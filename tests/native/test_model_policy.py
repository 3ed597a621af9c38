"""Suite *model-policy*: what a model makes of speech is its own affair.

Three inputs that mean different things, each in packets of 200 ms on the media clock, and no commit. Nothing
is assumed of how inputs, turns and responses correspond: a model may answer twice, once, or not at all. What
has to hold is the life cycle, the clocks, and that what is heard is sound.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.offline.drive import Played, PlayOptions, play
from orchestrator.offline.timeline import PACKET_MS, Recording
from tests.native.serving import INPUTS, SCALE, NativeServed, reference

POLICIES = ("pattern:LLSE", "reactive:2", "listen", "every:3", "pattern:SE")
"""From a model that never speaks to one that hardly listens."""


async def played(served: NativeServed, *recordings: Recording) -> Played:
    options = PlayOptions(
        served.url, session={"ref_audio": reference()}, tail_ms=2000, quiet_s=3.0, drain_s=90.0
    )
    return await play(list(recordings), options, served.clock)


@pytest.mark.parametrize("policy", POLICIES)
async def test_any_policy_is_carried_through_in_order(tmp_path: Path, policy: str) -> None:
    async with NativeServed(tmp_path, policy) as served:
        for recording in INPUTS:
            result = await played(served, recording)
            assert result.ok, result.against
            (engine,) = served.engines
            assert not [e for e in engine.sessions[-1].received if e["type"].endswith(".commit")]
            for answer in result.record.answers.values():
                assert answer.done
                assert np.isfinite(answer.samples).all()
                if answer.status == "completed":
                    assert answer.ledger["played_ms"] == answer.audio_ms, "it was heard out"
            units = [row for row in result.rows if row["kind"] == "unit"]
            length_ms = recording.samples.size * 1000 // recording.rate_hz + 2000
            assert len(units) == -(-length_ms // 1000)
            assert {row["decision"] for row in units} <= {"listen", "speak", None}


async def test_sound_goes_out_on_the_media_clock_whatever_sending_takes(tmp_path: Path) -> None:
    async with NativeServed(tmp_path, "listen") as served:
        result = await played(served, INPUTS[2])
        sent = [row["sent_s"] for row in result.rows if row["kind"] == "unit"]
        assert None not in sent
        for number, at in enumerate(sent[:-1], start=1):
            late = at - number
            assert -0.001 <= late < PACKET_MS / 1000 * SCALE, "no packet early, and lateness never adds up"


async def test_recordings_after_one_another_share_one_session_and_one_clock(tmp_path: Path) -> None:
    async with NativeServed(tmp_path, "reactive:2") as served:
        result = await played(served, *INPUTS)
        assert result.ok, result.against
        (session,) = served.engines[0].sessions
        starts = [span["start_ms"] for span in result.timeline["inputs"]]
        assert starts == sorted(starts) and len(result.timeline["tail_silence"]) == 3
        given = [unit for unit in session.units if not unit.silence]
        assert sum(unit.samples for unit in given) <= result.timeline["duration_ms"] * 16 + 16000
