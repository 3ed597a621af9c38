"""``vigil eval run`` over vllm-omni's genuine duplex server, by its command, in real time."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from evals.clips import clip as packaged
from evals.runs.export import export
from evals.scoring.folder import read_run
from evals.scoring.scores import scores_of
from orchestrator.wire.audio import read_wav, write_wav
from tests.evals.runs.test_commands import vigil
from tests.evals.runs.test_native import VOICE
from tests.peers.peer import Peer

pytestmark = pytest.mark.peer

SECONDS = 5


async def test_a_public_data_set_is_asked_aloud_played_and_scored(peer: Peer, tmp_path: Path) -> None:
    """Nobody has spoken its question; the engine is named by its address alone."""
    peer.turn(script="reactive:1", think_ms=5.0, chunk_ms=5.0)
    media, run = tmp_path / "media", tmp_path / "run"
    media.mkdir()
    shutil.copy(packaged("bikes.mp4"), media)
    (media / "voice.wav").write_bytes(write_wav(VOICE.samples, VOICE.rate_hz))
    row = {"id": "r1", "split": "PR_event_reminder", "question_text": "Say when a bike is there."}
    row |= {"reminder1": 2.0, "answer1": "a bike", "video": "bikes.mp4", "video_duration": SECONDS}
    (media / "set.jsonl").write_text(json.dumps(row) + "\n")
    engine = ("--engine", peer.url.replace("http", "ws", 1), "--ref-audio", media / "voice.wav")
    code, said = await vigil("run", media / "set.jsonl", *engine, "--out", run)
    assert code == 0 and "PR_event_reminder-r1: complete" in said, said
    units = peer.latest()
    assert sum(unit["frames"] for unit in units) >= SECONDS, "a picture a second"
    assert max(unit["rms"] for unit in units[:2]) > 0.01, "its question is heard"
    found = read_run(run)
    (one,) = found.clips
    assert [speech.text for speech in one.asked] == ["Say when a bike is there."]
    scores = scores_of(found, {})
    assert scores["sound"]["responses"] >= 1 and scores["sound"]["ledger"]["disordered"] == 0
    samples, _ = read_wav((run / "clips" / one.clip.id / "out.wav").read_bytes())
    assert samples.any()
    assert export(run, tmp_path / "out").samples == 1
