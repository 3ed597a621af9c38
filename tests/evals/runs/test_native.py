"""Runs over full-duplex engines: clips played in real time through the service's own core, to the scripted
engine over real sockets, with everybody's time sped up alike."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals.readers.clip import Clip
from evals.readers.jsonl import write_clips
from evals.replay.folder import read_rows
from evals.runs.export import export
from evals.runs.manifest import RunError, read_manifest, read_taped
from evals.runs.native import Manner, NativeWatcher
from evals.runs.questions import Asker
from evals.runs.reporting import report
from evals.runs.rerun import rerun
from evals.runs.runner import Outcome, Runner, Suite
from evals.scoring.folder import read_run
from evals.scoring.scores import scores_of
from orchestrator.native_setup import NativeEngines
from orchestrator.settings import Settings
from orchestrator.wire.audio import read_wav, write_wav
from prompts.native_loader import native_profile
from tests.evals.runs.stand import Quiet
from tests.evals.runs.test_commands import vigil
from tests.fakes.clips import make_clip
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine, ScaledClock
from tests.fakes.duplex_engine.script import LISTEN, Act, Kind, Unit
from tests.fakes.speaker import ScriptedSpeaker
from tests.native.serving import FAMILY, MODEL, QUESTION, spoken

pytestmark = pytest.mark.timeout(300)

SCALE = 10.0
SECONDS = 6
VOICE = spoken("voice.wav", 1000, pitch_hz=120, words_per_s=3.0)


def bikes(unit: Unit) -> Act:
    """Two sentences of it in the fourth second, each with a unit of its own."""
    if unit.number == 3:
        return Act(Kind.SPEAK, text="A bike is there. ")
    return Act(Kind.SPEAK, text="It is red.", end=True) if unit.number == 4 else LISTEN


def clip(name: str, **more: Any) -> Clip:
    """Asked aloud in its third second; an answer is due from then on."""
    data: dict[str, Any] = {
        "id": name,
        "video": f"{name}.mp4",
        "duration_s": SECONDS,
        "queries": [{"id": "q1", "at_s": 2.3, "text": "What is there?", "audio": "question.wav"}],
        "slots": [{"id": "s1", "query": "q1", "kind": "alert", "start_s": 2.3, "end_s": SECONDS}],
    }
    return Clip.model_validate(data | more)


@pytest.fixture
def media(tmp_path: Path) -> Path:
    """The files of three clips."""
    folder = tmp_path / "media"
    folder.mkdir()
    (folder / "question.wav").write_bytes(write_wav(QUESTION.samples, QUESTION.rate_hz))
    (folder / "voice.wav").write_bytes(write_wav(VOICE.samples, VOICE.rate_hz))
    for name in ("one", "two", "three"):
        make_clip(folder / f"{name}.mp4", times_ms=range(0, 1000 * SECONDS, 500))
    return folder


def engines(*running: DuplexEngine) -> NativeEngines:
    urls = tuple(engine.url.replace("ws", "http", 1) for engine in running)
    return NativeEngines(urls, MODEL, native_profile(FAMILY), version="0.30.0")


async def watch(
    folder: Path,
    media: Path,
    engine: DuplexEngine,
    clips: Sequence[Clip],
    *,
    progress: Quiet | None = None,
    stop: asyncio.Event | None = None,
    streams: int = 2,
    manner: Manner | None = None,
    speaker: ScriptedSpeaker | None = None,
) -> Outcome:
    """One ``vigil eval run`` in this loop, by the engine's clock."""
    clock = engine.clock
    assert isinstance(clock, ScaledClock)
    settings = Settings(engine=engine.url, family=FAMILY, limits={"engine_sessions": engine.max_sessions})
    manner, asker = manner or Manner(reference=media / "voice.wav"), Asker(speaker, {"bridge": "made"}, "en")
    watcher = NativeWatcher(settings, engines(engine), manner, asker, clock)
    files = {path.name: path for path in media.iterdir()}  # noqa: ASYNC240  a few
    videos = {each.id: files[str(each.video)] for each in clips if each.video in files}
    runner = Runner(folder, Suite("small", "vigil", clips, videos, files), watcher, streams=streams)
    return await runner.run(progress or Quiet(), stop or asyncio.Event())


def engine(script: Any = bikes, **more: Any) -> DuplexEngine:
    return DuplexEngine(script, MINICPM_LIKE, **{"max_sessions": 3, "clock": ScaledClock(SCALE), **more})


async def test_each_clip_is_played_and_heard_out_and_the_run_is_scored_and_shown(
    tmp_path: Path, media: Path
) -> None:
    run, progress = tmp_path / "run", Quiet()
    async with engine() as talker:
        outcome = await watch(run, media, talker, [clip("one"), clip("two")], progress=progress)
        assert (outcome.word, outcome.finished, outcome.failed) == ("complete", 2, {})
        for session in talker.sessions:
            units = [unit for unit in session.units if not unit.silence]
            assert sum(unit.samples for unit in units) >= 16000 * SECONDS
            assert [bool(unit.frames) for unit in units[:SECONDS]] == [True] * SECONDS
            assert np.abs(units[1].pcm).max() > 0.1 > np.abs(units[4].pcm).max(), "the question, then silence"
    told = read_manifest(run)
    assert (told["kind"], told["pace"], told["outcome"]) == ("native", "realtime", "complete")
    assert (told["engine"]["model"], told["versions"]["engine"]) == (MODEL, "0.30.0")
    for name in ("one", "two"):
        folder = run / "clips" / name
        samples, _ = read_wav((folder / "out.wav").read_bytes())
        assert samples.any()
        rows = read_rows(folder / "decisions.jsonl")
        (answer,) = (row for row in rows if row["kind"] == "response")
        assert (answer["status"], answer["transcript"]) == ("completed", "A bike is there. It is red.")
        assert "".join(piece["text"] for piece in answer["pieces"]) == answer["transcript"]
        assert rows[-1]["kind"] == "session" and rows[-1]["ok"]
        summary = json.loads((folder / "summary.json").read_text())
        assert (summary["outcome"], summary["responses"], summary["units"]) == ("complete", 1, SECONDS + 1)
        assert set(progress.summaries) == {"one", "two"}
    scores = scores_of(read_run(run), {})
    assert scores["groups"]["all"]["answered"]["value"] == 1.0
    sound = scores["sound"]
    assert sound["responses"] == 2 and sound["ledger"]["disordered"] == 0
    assert sound["client_timing"]["response_created_to_first_audio_ms"]["count"] == 2
    page = report(run).read_text()
    for text in ("Sound", "its voice is heard", "1 of 1 right", "ledgers out of order"):
        assert text in page
    assert "ticks" not in page.partition("By skill")[0]


async def test_its_artifact_has_each_sentence_at_the_time_at_which_it_was_said(
    tmp_path: Path, media: Path
) -> None:
    async with engine() as talker:
        await watch(tmp_path / "run", media, talker, [clip("one")])
    assert export(tmp_path / "run", tmp_path / "out").samples == 1
    responses = tmp_path / "out" / "responses" / "PR_event_reminder"
    first, second = json.loads((responses / "one.q1.json").read_text())
    assert (first["sentence"], second["sentence"]) == ("A bike is there.", "It is red.")
    assert 3.9 < first["start"] <= first["end"] < second["start"] <= second["end"]
    meta = json.loads((responses / "one.q1.meta.json").read_text())
    assert (meta["clock"], meta["pace"], meta["response_done"]) == ("media", "realtime", True)
    assert len(meta["ref_audio_sha256"]) == 64


async def test_a_run_goes_on_with_the_clips_that_are_not_finished(tmp_path: Path, media: Path) -> None:
    """Stopped in its second clip; a sound that is another now has its clip played again."""
    run, stop, progress = tmp_path / "run", asyncio.Event(), Quiet()

    def stops(unit: Unit) -> Act:
        if "one" in progress.summaries:
            stop.set()
        return bikes(unit)

    clips = [clip("one"), clip("two")]
    async with engine(stops) as talker:
        first = await watch(run, media, talker, clips, progress=progress, stop=stop, streams=1)
        assert (first.word, first.finished) == ("interrupted", 1)
        again = Quiet()
        second = await watch(run, media, talker, clips, progress=again)
        assert (second.word, second.finished, again.begun) == ("complete", 1, ["two"])
        louder = (0.5 * QUESTION.samples).astype(np.float32)
        (media / "question.wav").write_bytes(write_wav(louder, QUESTION.rate_hz))
        assert (await watch(run, media, talker, clips)).finished == 2
        with pytest.raises(RunError, match=r"session\.commit"):
            await watch(run, media, talker, clips, manner=Manner(True, None, media / "voice.wav"))


async def test_what_cannot_be_played_costs_its_own_clip_alone(tmp_path: Path, media: Path) -> None:
    (media / "broken.wav").write_bytes(b"RIFF????")
    asked = {"id": "q1", "at_s": 2.3, "text": "What is there?"}
    clips = [
        clip("one"),
        clip("unspoken", video="one.mp4", queries=[asked]),
        clip("silent", video="two.mp4", audio="nowhere.wav"),
        clip("broken", video="two.mp4", audio="broken.wav"),
        clip("gone"),
    ]
    async with engine() as talker:
        outcome = await watch(tmp_path / "run", media, talker, clips)
    assert (outcome.word, outcome.finished) == ("failed", 1)
    assert set(outcome.failed) == {"unspoken", "silent", "broken", "gone"}
    assert "question q1 is not spoken" in outcome.failed["unspoken"]
    assert "nowhere.wav was not found" in outcome.failed["silent"]
    assert "broken.wav can't be read" in outcome.failed["broken"]
    assert "gone.mp4 was not found" in outcome.failed["gone"]


async def test_a_question_that_a_data_set_only_writes_is_spoken_and_its_turn_is_timed(
    tmp_path: Path, media: Path
) -> None:
    run, speaker = tmp_path / "run", ScriptedSpeaker()
    asked = [{"id": "q1", "at_s": 3.2, "text": "What is there?"}]
    slots = [{"id": "s1", "query": "q1", "kind": "answer", "start_s": 3.2, "end_s": SECONDS}]
    clips = [clip("one", queries=asked, slots=slots), clip("two")]
    async with engine() as talker:
        assert (await watch(run, media, talker, clips, speaker=speaker)).word == "complete"
        assert speaker.texts == ["What is there?"]
        session = next(one for one in talker.sessions if np.abs(one.units[0].pcm).max() < 0.01)
        loud = [float(np.abs(unit.pcm).max()) > 0.1 for unit in session.units[:SECONDS]]
        assert loud == [False, False, True, True, False, False], "its words end at 3.2 s"
        with pytest.raises(RunError, match=r"session\.asked_by"):
            await watch(run, media, talker, clips[1:])
    (kept,) = (run / "questions").iterdir()
    assert kept.suffix == ".wav"
    record = json.loads((run / "clips" / "one" / "record.json").read_text())
    assert record["asked"] == [{"query": "q1", "start_s": 2.5, "end_s": 3.2}]
    assert read_manifest(run)["session"]["asked_by"] == {"bridge": "made", "language": "en"}
    found = read_run(run)
    assert {one.clip.id: len(one.heard.speech) for one in found.clips} == {"one": 1, "two": 1}
    scores = scores_of(found, {})
    assert (scores["sound"]["turns"]["count"], scores["sound"]["turns"]["unanswered"]) == (2, 0)
    assert report(run).read_text().count("spoken: What is there?") == 2


async def test_a_stage_that_dies_fails_its_clip_and_the_next_one_is_played(
    tmp_path: Path, media: Path
) -> None:
    def dies(unit: Unit) -> Act:
        first = talker.sessions.index(next(s for s in talker.sessions if s.id == unit.session_id)) == 0
        return Act(Kind.FAIL) if first and unit.number == 2 else bikes(unit)

    talker = engine(dies, max_sessions=2)
    async with talker:
        outcome = await watch(tmp_path / "run", media, talker, [clip("one"), clip("two")], streams=1)
        # What was lost is told, or was made good by a fresh engine session: never passed over.
        rows = read_rows(tmp_path / "run" / "clips" / "one" / "decisions.jsonl")
        assert rows[-1]["notices"] or rows[-1]["errors"]
        assert set(outcome.failed) <= {"one"} and outcome.finished == 2 - len(outcome.failed)


async def test_no_more_clips_are_played_at_a_time_than_the_engine_has_places(
    tmp_path: Path, media: Path
) -> None:
    async with engine(max_sessions=3) as talker:
        with pytest.raises(RunError, match=r"4 streams are more than the engine has places for, 2"):
            await watch(tmp_path / "run", media, talker, [clip("one")], streams=4)
        with pytest.raises(RunError, match="--ref-audio"):
            await watch(tmp_path / "run", media, talker, [clip("one")], manner=Manner())
    assert not (tmp_path / "run").exists()


async def test_it_cannot_be_done_again_and_says_so(tmp_path: Path, media: Path) -> None:
    async with engine() as talker:
        await watch(tmp_path / "run", media, talker, [clip("one")])
    with pytest.raises(RunError, match="played to a full-duplex engine"):
        await rerun(tmp_path / "run", tmp_path / "again", lambda name, differ: None)
    with pytest.raises(RunError, match="watch its clips anew"):
        read_taped(tmp_path / "run")


async def test_the_command_finds_out_what_kind_the_engine_is(tmp_path: Path, media: Path) -> None:
    """In a process of its own, and in real time."""
    data = media / "clips.jsonl"
    write_clips(data, [clip("one", duration_s=3, slots=[])])
    run, voice = tmp_path / "run", media / "voice.wav"
    async with DuplexEngine("pattern:LLSE", MINICPM_LIKE) as talker:
        named = ("--engine", talker.url, "--family", FAMILY)
        code, said = await vigil("run", data, *named, "--out", run)
        assert code == 2 and "--ref-audio" in said
        code, said = await vigil("run", data, *named, "--out", run, "--ref-audio", voice, "--pace", "fast")
        assert code == 2 and "real time" in said
        code, said = await vigil("run", data, *named, "--out", run, "--ref-audio", voice)
        assert code == 0 and "one: complete, 4 units, 1 responses" in said, said
        code, said = await vigil("sweep", data, *named, "--vary", "memory.keep=all,nothing", "--out", run)
        assert code == 2 and "full-duplex" in said
        code, said = await vigil("audit", run, *named, "--all")
        assert code == 2 and "full-duplex" in said
    assert (await vigil("score", run))[0] == 0
    assert (await vigil("report", run))[0] == 0
