"""``vigil attach``, ``vigil detach`` and ``vigil session sources`` on a real service."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from orchestrator.attach_cli import line
from tests.api.serving import Served
from tests.fakes.clips import make_clip
from tests.fakes.engine import FakeEngine, Seen
from tests.realtime.serving import eventually
from tests.test_session_cli import vigil

PROGRAM = (sys.executable, "-m", "orchestrator.cli")


class Result(NamedTuple):
    exit_code: int | None
    output: str


def says(_: Seen) -> str:
    return "<silence>"


async def attach(*arguments: str) -> Result:
    """As a process, since the command minds signals."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "attach", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return Result(process.returncode, out.decode())


def settings(folder: Path) -> dict[str, Any]:
    return {"decision": {"gate": False}, "sources": {"folder": folder, "allow_hosts": ("127.0.0.1",)}}


async def test_a_file_is_shown_to_its_end(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 1200, 100))
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        shown = await attach("cam", "clip.mp4", "--server", served.url)
        assert shown.exit_code == 0, shown.output
        assert "ended: 2 frames" in shown.output.splitlines()[-1]
        listed = await vigil("session", "sources", "cam", "--server", served.url, "--json")
        (told,) = orjson.loads(listed.stdout)
        assert (told["state"], told["source"]) == ("ended", "clip.mp4")
        plain = await vigil("session", "sources", "cam", "--server", served.url)
        assert plain.stdout.strip() == f"{line(told)}, clip.mp4"


async def test_what_goes_wrong_is_said_with_an_exit_code(tmp_path: Path) -> None:
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        at = ("--server", served.url)
        for wanted, words in (
            ("rtsp://127.0.0.1:9/x", "unreachable: rtsp://127.0.0.1:9/x cannot be opened"),
            ("rtsp://elsewhere/x", "not allowed"),
            ("none.mp4", "there is no none.mp4"),
        ):
            failed = await attach("cam", wanted, *at)
            assert (failed.exit_code, words in failed.output) == (1, True), failed.output
        assert not served.core.registry.sessions()
        await served.see(0)
        nothing = await vigil("detach", "cam", *at)
        assert (nothing.exit_code, "no source that plays" in nothing.output) == (1, True)
        unknown = await vigil("detach", "cam", "src_1", *at)
        assert (unknown.exit_code, "no source src_1" in unknown.output) == (1, True)
    assert (await vigil("attach", "cam", "a.mp4", "--server", served.url)).exit_code == 5
    assert (await vigil("attach", "cam", "a.mp4", "--server", "nowhere")).exit_code == 2


async def test_a_source_is_left_and_detached(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 60_000, 1000))
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        left = await vigil("attach", "cam", "clip.mp4", "--leave", "--json", "--server", served.url)
        assert left.exit_code == 0, left.output
        source_id = orjson.loads(left.stdout)["id"]
        gone = await vigil("detach", "cam", "--server", served.url)
        assert gone.stdout.strip() == f"detached {source_id}"
        (session,) = served.core.registry.sessions()
        assert served.core.sources.of(session) == [] and session.is_open
        listed = await vigil("session", "sources", "cam", "--server", served.url)
        assert listed.exit_code == 0 and listed.stderr.strip() == "vigil: nothing is shown to cam"


async def test_ctrl_c_detaches(tmp_path: Path) -> None:
    make_clip(tmp_path / "clip.mp4", times_ms=range(0, 60_000, 1000))
    async with FakeEngine(says) as engine, Served(engine, tmp_path, **settings(tmp_path)) as served:
        for number in (signal.SIGINT, signal.SIGTERM):
            command = [*PROGRAM, "attach", "cam", "clip.mp4"]
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", 'trap "" INT; exec "$@"', "sh"),  # as a shell begins what is to run behind it
                *command,
                "--server",
                served.url,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            assert b"0 frames" in await process.stdout.readline()
            await process.stdout.readline()
            process.send_signal(number)
            _, told = await process.communicate()
            assert (process.returncode, b"detached clip.mp4" in told) == (0, True), told
            (session,) = served.core.registry.sessions()
            await eventually(lambda: not served.core.sources._leaving)
            assert served.core.sources.of(session) == [] and session.is_open
