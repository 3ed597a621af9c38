"""``vigil session`` and ``vigil doctor`` on real sessions: over a server, and from the data folder."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from orchestrator.cli import app
from orchestrator.folder_lock import FolderInUse, FolderLock
from orchestrator.session_access import AccessError, FolderAccess
from orchestrator.session_cli import _pairs
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Seen

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


def every_third(seen: Seen) -> str:
    return f"<response> A [bold]dog[/], {seen.tick}." if seen.tick % 3 == 0 else "<silence>"


async def vigil(*arguments: str, **more: Any) -> Result:
    """In a thread of its own, as the command is a process of its own."""
    env = {"COLUMNS": "200", "TERM": "dumb"}
    return await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env=env, **more)


def files(folder: Path, pattern: str = "*") -> list[str]:
    return [path.name for path in folder.glob(pattern) if path.is_file()]


@pytest.fixture(params=["server", "folder beside a server", "folder alone"])
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def used(folder: Path, where: str, *commands: tuple[str, ...]) -> list[Result]:
    """The commands after a session ``cam`` of five frames."""
    async with FakeEngine(every_third) as engine:
        async with Served(engine, folder, **UNGATED) as served:
            for n in range(5):
                await served.see(n, "what is there?")
            if where != "folder alone":
                flags = ("--server", served.url) if where == "server" else ("--data", str(folder))
                return [await vigil(*command, *flags) for command in commands]
        return [await vigil(*command, "--data", str(folder)) for command in commands]


async def test_sessions_are_looked_into(tmp_path: Path, where: str) -> None:
    listed, shown, memory, plain, told, doctor = await used(
        tmp_path,
        where,
        ("session", "list", "--json"),
        ("session", "show", "cam", "--json"),
        ("session", "memory", "cam", "--json"),
        ("session", "list"),
        ("session", "memory", "cam"),
        ("doctor", "prefix", "cam"),
    )
    (only,) = orjson.loads(listed.stdout)
    about = orjson.loads(shown.stdout)
    assert (only["id"], only["alias"]) == (about["id"], "cam")
    assert about["counts"]["frames"] == 5
    assert orjson.loads(memory.stdout)["window"]["frames"] == 5
    assert only["id"] in plain.stdout
    assert "response: A [bold]dog[/], 0." in told.stdout
    assert "Standing query" in told.stdout
    assert "Window 0: 5 frames in 5 turns" in told.stdout
    assert doctor.exit_code == 0, doctor.output
    assert "Every promise was kept" in doctor.stdout


async def test_show_is_readable(tmp_path: Path, where: str) -> None:
    (shown,) = await used(tmp_path, where, ("session", "show", "cam"))
    assert "silent_because" in shown.stdout
    assert "model=3" in shown.stdout


async def test_an_export_is_whole(tmp_path: Path, where: str) -> None:
    out = tmp_path / "out.tar"
    done, missing = await used(
        tmp_path,
        where,
        ("session", "export", "cam", "--out", str(out)),
        ("session", "export", "nobody", "--out", str(tmp_path / "none.tar")),
    )
    assert done.exit_code == 0, done.output
    with tarfile.open(out) as tar:
        assert "end.json" in tar.getnames()
    assert (missing.exit_code, "no session nobody" in missing.output) == (1, True)
    assert files(tmp_path, "*.tar*") == ["out.tar"]


async def test_a_session_is_deleted_by_whoever_owns_the_folder(tmp_path: Path, where: str) -> None:
    """Contract: beside a running service only the service deletes."""
    deleted, listed = await used(
        tmp_path, where, ("session", "delete", "cam", "--yes"), ("session", "list", "--json")
    )
    if where == "folder beside a server":
        assert (deleted.exit_code, "--server" in deleted.output) == (2, True)
        assert len(orjson.loads(listed.stdout)) == 1
        return
    assert deleted.exit_code == 0, deleted.output
    assert orjson.loads(listed.stdout) == []
    assert files(tmp_path / "frames", "**/*") == []


async def test_deleting_asks_first(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        flags = ("session", "delete", "cam", "--server", served.url)
        assert (await vigil(*flags, input="n\n")).exit_code == 1
        assert (await served.client.get("/v1/sessions/cam")).status_code == 200
        assert (await vigil(*flags, input="y\n")).exit_code == 0
        assert (await served.client.get("/v1/sessions/cam")).status_code == 404


async def test_a_key_opens_its_own_sessions(tmp_path: Path) -> None:
    key = "k" * 20
    keys = {"auth": {"api_keys": {"ann": "sha256:" + hashlib.sha256(key.encode()).hexdigest()}}}
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED, **keys) as served:
        await served.see(0, headers={"authorization": f"Bearer {key}"})
        command = ("session", "list", "--json", "--server", served.url)
        listed = await vigil(*command, "--api-key", key)
        assert [s["alias"] for s in orjson.loads(listed.stdout)] == ["cam"]
        refused = await vigil(*command)
        assert (refused.exit_code, "API key" in refused.output) == (2, True)
    data = ("session", "list", "--json", "--data", str(tmp_path))
    assert orjson.loads((await vigil(*data)).stdout) == []
    assert len(orjson.loads((await vigil(*data, "--tenant", "ann")).stdout)) == 1


async def test_what_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        away = await vigil("session", "list", "--server", url)
    assert (away.exit_code, "can't reach" in away.output) == (5, True)
    nothing = await vigil("session", "list", "--data", str(tmp_path))
    assert (nothing.exit_code, "no sessions in" in nothing.output) == (2, True)
    assert files(tmp_path) == []
    both = await vigil("session", "list", "--server", url, "--data", str(tmp_path))
    assert both.exit_code == 2


def test_a_folder_is_shared_by_services_and_held_alone_by_no_other(tmp_path: Path) -> None:
    one, two = FolderLock(tmp_path, alone=False), FolderLock(tmp_path, alone=False)
    one.release()
    with pytest.raises(FolderInUse):
        FolderLock(tmp_path, alone=True)
    two.release()
    FolderLock(tmp_path, alone=True).release()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "vigil.db").touch()
    (tmp_path / "vigil.lock").mkdir()
    with pytest.raises(AccessError, match="can't write in"):
        FolderAccess(tmp_path, None, "local").delete("cam")


def test_a_store_that_may_only_be_read_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vigil.db").touch()
    may = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode, **more: not mode & os.W_OK and may(path, mode, **more)
    )
    with pytest.raises(AccessError, match="--server"):
        FolderAccess(tmp_path, None, "local")


def test_values_are_shown_as_people_write_them() -> None:
    config = {"modalities": ["text", "audio"], "include": [], "voice": None, "auto_response": True}
    assert _pairs(config) == "modalities=text, audio  auto_response=yes"
