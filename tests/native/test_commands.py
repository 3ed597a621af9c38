"""The commands themselves: ``vigil serve`` in front of full-duplex engines, and recordings played to it."""

from __future__ import annotations

import asyncio
import base64
import re
import signal
import sys
import wave
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from orchestrator.wire.audio import read_wav, write_wav
from tests.fakes.duplex_engine import MINICPM_LIKE, DuplexEngine
from tests.native.serving import FAMILY, ORDER, reference
from tests.realtime.serving import eventually


@asynccontextmanager
async def vigil(*arguments: str) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orchestrator.cli", *arguments), stdout=PIPE, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def serving(data: Path, *engines: DuplexEngine) -> AsyncIterator[tuple[str, list[str]]]:
    """The address of a service in front of these engines, and what it told before."""
    flags = ("--engine", ",".join(e.url for e in engines), "--family", FAMILY, "--port", "0")
    async with vigil("serve", *flags, "--data", str(data), "--no-auth-required") as process:
        assert process.stderr is not None
        told: list[str] = []
        async with asyncio.timeout(150):
            while not (found := re.search(r"serving .* on (http://\S+)", told[-1] if told else "")):
                line = await process.stderr.readline()
                assert line, told
                told.append(line.decode())
        draining = asyncio.create_task(process.stderr.read())
        yield found[1], told
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 150) == 0, (await draining).decode()


async def run(*arguments: str) -> tuple[int | None, str, str]:
    async with vigil(*arguments) as process:
        out, err = await asyncio.wait_for(process.communicate(), 150)
        return process.returncode, out.decode(), err.decode()


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in (folder / "decisions.jsonl").read_bytes().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a recording and a voice."""
    (tmp_path / "in.wav").write_bytes(write_wav(ORDER.samples, ORDER.rate_hz))
    (tmp_path / "voice.wav").write_bytes(base64.b64decode(reference().partition(",")[2]))
    return tmp_path


async def test_a_recording_is_played_to_a_served_engine(folder: Path) -> None:
    flags = ("--audio", str(folder / "in.wav"), "--ref-audio", str(folder / "voice.wav"))
    async with (
        DuplexEngine("pattern:LE", MINICPM_LIKE) as engine,
        serving(folder / "data", engine) as (url, told),
    ):
        assert any("opening a session" in line for line in told)
        out = folder / "talk" / "OUT.wav"
        code, said, err = await run("talk", "--server", url, *flags, "--out", str(out))
        assert code == 0, err
        assert "unit" in said and "1 responses" in err
        samples, _ = read_wav(out.read_bytes())
        assert np.isfinite(samples).all() and samples.any()
        rows = rows_of(out.parent)
        units = [row for row in rows if row["kind"] == "unit"]
        assert [unit["decision"] for unit in units[:2]] == ["listen", "speak"]
        # What the model did is told beside the unit that had been sent when it came.
        assert any(unit["playback"] and unit["playback"]["generated_ms"] > 0 for unit in units)
        (answer,) = (row for row in rows if row["kind"] == "response")
        assert answer["playback"]["played_ms"] == answer["audio_ms"] > 0
        assert answer["timing"]["commit_to_first_audio_ms"] is None
        assert rows[-1]["kind"] == "session" and rows[-1]["ok"] is True
        timeline = orjson.loads((out.parent / "input_timeline.json").read_bytes())
        assert [unit["end_ms"] for unit in timeline["units"]] == [1000, 2000, 2400]
        code, _, err = await run(
            *("replay", "--server", url, *flags, "--commit", "--out", str(folder / "replay"))
        )
        assert code == 0, err
        with wave.open(str(folder / "replay" / "out.wav")) as file:
            assert file.getnframes() > 0
        (answer,) = (row for row in rows_of(folder / "replay") if row["kind"] == "response")
        assert answer["timing"]["commit_to_first_audio_ms"] > 0
        sound = await scored(folder / "replay")
        assert (sound["responses"], sound["turns"]["unanswered"], sound["ledger"]["disordered"]) == (1, 0, 0)
        assert sound["ledger"]["played_ms"] == answer["playback"]["played_ms"]
        assert sound["client_timing"]["commit_to_first_audio_ms"]["count"] == 1


async def scored(replay: Path) -> dict[str, Any]:
    """What ``vigil eval score`` says of the sound of a replay, of which the first second is a question."""
    speech = {"id": "s", "start_s": 0, "end_s": 1, "expects": "answer", "within_ms": 10_000}
    truth = {"format": "vigil-clip-1", "id": "talk", "scene": {}, "speech": [speech]}
    (replay.parent / "truth.jsonl").write_bytes(orjson.dumps(truth))
    code, _, err = await run("eval", "score", str(replay), "--truth", str(replay.parent / "truth.jsonl"))
    assert code == 0, err
    sound: dict[str, Any] = orjson.loads((replay / "scores.json").read_bytes())["sound"]
    return sound


async def test_ctrl_c_closes_the_session_and_writes_what_came(folder: Path) -> None:
    flags = ("--audio", str(folder / "in.wav"), "--ref-audio", str(folder / "voice.wav"), "--tail", "60")
    async with (
        DuplexEngine("pattern:LE", MINICPM_LIKE) as engine,
        serving(folder / "data", engine) as (url, _),
        vigil("talk", "--server", url, *flags, "--out", str(folder / "cut" / "OUT.wav")) as process,
    ):
        await eventually(lambda: len(engine.sessions) > 1 and len(engine.sessions[-1].units) >= 2, 150)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(process.communicate(), 150)
        assert process.returncode == 130 and b"Traceback" not in err, err
        assert rows_of(folder / "cut")[-1]["closed"] == "client_close"
        await eventually(lambda: not engine.live)


async def test_an_engine_that_is_away_is_told_of_and_the_other_one_serves(folder: Path) -> None:
    away = DuplexEngine("listen", MINICPM_LIKE)
    async with away:
        pass
    async with (
        DuplexEngine("listen", MINICPM_LIKE) as engine,
        serving(folder / "data", away, engine) as (_, told),
    ):
        assert any(away.url[5:] in line and "nothing answers" in line for line in told)


@pytest.mark.parametrize(
    ("flags", "code", "why"),
    [
        (("--engine", "ws://127.0.0.1:9"), 5, "can't reach ws://127.0.0.1:9"),
        (("--engine", "ws://127.0.0.1:9", "--family", "nobody"), 2, "--family"),
        (("--engine", "ws://127.0.0.1:9", "--family", FAMILY), 5, "no engine answers"),
    ],
)
async def test_what_can_t_be_served_is_said(
    tmp_path: Path, flags: tuple[str, ...], code: int, why: str
) -> None:
    returned, _, err = await run(
        "serve", *flags, "--port", "0", "--data", str(tmp_path), "--no-auth-required"
    )
    assert returned == code and why in err, err
    assert "Traceback" not in err


async def test_what_is_wrong_with_a_recording_is_said(tmp_path: Path) -> None:
    (tmp_path / "no.wav").write_bytes(b"nothing of the kind")
    for flags, code, why in (
        (("--audio", str(tmp_path / "none.wav"), "--out", "o.wav"), 3, "none.wav"),
        (("--audio", str(tmp_path / "no.wav"), "--out", "o.wav"), 3, "16-bit"),
        (("--audio", str(tmp_path / "no.wav")), 2, "--out"),
    ):
        returned, _, err = await run("talk", *flags)
        assert returned == code and why in err, err
        assert "Traceback" not in err
