"""``vigil talk``: a real process against a real server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.wire.audio import write_wav
from tests.api.serving import Served
from tests.fakes.clips import make_clip
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.pictures import jpeg
from tests.realtime.serving import eventually

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


def answers(seen: Seen) -> str:
    return f" Answer {seen.tick}." if seen.continued else "<silence>"


@asynccontextmanager
async def talking(url: str, *flags: str, stdin: int = PIPE) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orchestrator.cli", "talk", "--server", url, *flags),
        stdin=stdin, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def said(process: Process, lines: str) -> tuple[str, str]:
    """Everything that it prints for this input, to its end."""
    out, err = await asyncio.wait_for(process.communicate(lines.encode()), 150)
    return out.decode(), err.decode()


async def test_lines_are_answered_and_the_session_is_closed(tmp_path: Path) -> None:
    picture = tmp_path / "a.jpg"
    picture.write_bytes(jpeg(1, 224, 224))
    async with FakeEngine(answers) as engine, Served(engine, tmp_path, **UNGATED) as served:
        async with talking(served.url, "--image", str(picture), "--instructions", "Be brief.") as process:
            out, err = await said(process, "what is it?\n\nand \x1b[31mthat?\n")
            assert process.returncode == 0, err
            assert [line.split()[0] for line in out.splitlines()] == ["Answer", "Answer"]
            assert "session duplex-" in err
        asked = [chat for chat in engine.chats if chat.continued]
        assert len(asked[-1].images) == 1 and "Be brief." in str(asked[-1].messages)
        assert "that?" in str(asked[-1].messages)
        await eventually(lambda: not served.core.registry.statistics()["open"])


async def test_a_clip_is_watched_as_it_plays(tmp_path: Path) -> None:
    def counts(seen: Seen) -> str:
        return f"<response> \x1b[2JFrame {len(seen.images)}." if seen.images else "<silence>"

    clip = make_clip(tmp_path / "clip.mp4", times_ms=range(0, 2100, 100))
    async with (
        FakeEngine(counts) as engine,
        Served(engine, tmp_path, **UNGATED) as served,
        talking(served.url, "--video", str(clip)) as process,
    ):
        out, err = await said(process, "")
        assert process.returncode == 0, err
        assert "Frame 3." in out and "\x1b" not in out


async def test_ctrl_c_closes_the_session(tmp_path: Path) -> None:
    def long(seen: Seen) -> str:
        return " word" * 500

    async with (
        FakeEngine(long, pace=Pace(per_token_s=0.02)) as engine,
        Served(engine, tmp_path, **UNGATED) as served,
        talking(served.url) as process,
    ):
        assert process.stdin and process.stdout and process.stderr
        process.stdin.write(b"talk\n")
        await asyncio.wait_for(process.stdout.readexactly(10), 150)
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 150) == 0, await process.stderr.read()
        assert not served.core.registry.statistics()["open"]
        assert b"Traceback" not in await process.stderr.read()


async def test_a_session_is_joined_and_left(tmp_path: Path) -> None:
    async with FakeEngine(answers) as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        (session,) = served.core.registry.sessions()
        async with talking(served.url, "--session", "cam") as process:
            out, err = await said(process, "what is it?\n")
            assert process.returncode == 0 and out.startswith("Answer"), err
        assert f"session {session.id}" in err
        await eventually(lambda: not session.attached)
        assert (await served.see(1)).status_code == 200
        assert served.core.registry.sessions() == (session,) and session.is_open


async def test_what_goes_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    recording = tmp_path / "said.wav"
    recording.write_bytes(write_wav(np.zeros(16000, np.float32), 16000))
    cut = tmp_path / "cut.wav"
    cut.write_bytes(b"RIFF")
    played = ("--out", str(tmp_path / "heard.wav"))
    async with FakeEngine(answers) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for url, flags, code, why in (
            ("http://127.0.0.1:9", (), 5, "is vigil serve running there?"),
            ("ftp://127.0.0.1:9", (), 2, "no address of a service"),
            ("http://[::1", ("--session", "cam"), 2, "can't reach"),
            (served.url, ("--model", "nobody"), 6, "nobody"),
            (served.url, ("--session", "nobody"), 1, "no session nobody"),
            (served.url, ("--image", str(tmp_path / "none.jpg")), 3, "none.jpg"),
            (served.url, ("--audio", str(recording), *played), 1, "does not hear; vigil serve --ears-model"),
            (served.url, ("--audio", str(cut), *played), 3, "not a wav file: it ends too early."),
        ):
            async with talking(url, *flags) as process:
                _, err = await said(process, "")
                assert process.returncode == code and why in err.lower(), err
                assert "Traceback" not in err


async def test_who_types_interrupts(tmp_path: Path) -> None:
    """At a terminal a new line ends what is being said; Ctrl-D ends the session once all was answered."""

    def long(seen: Seen) -> str:
        return " Enough." if "hush" in str(seen.messages) else " word" * 500

    keyboard, terminal = os.openpty()
    async with (
        FakeEngine(long, pace=Pace(per_token_s=0.02)) as engine,
        Served(engine, tmp_path, **UNGATED) as served,
        talking(served.url, stdin=terminal) as process,
    ):
        os.close(terminal)
        assert process.stdout and process.stderr
        os.write(keyboard, b"first\n")
        await asyncio.wait_for(process.stdout.readexactly(10), 150)
        os.write(keyboard, b"hush\n")
        await asyncio.wait_for(process.stdout.readuntil(b"Enough.\n"), 150)
        os.write(keyboard, b"\x04")
        assert await asyncio.wait_for(process.wait(), 150) == 0, await process.stderr.read()
        assert next(chat for chat in engine.chats if chat.continued).disconnected
    os.close(keyboard)
