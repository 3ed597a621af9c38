"""A bench's test stand: the scripted engine and ``vigil serve``, each in a process of its own."""

from __future__ import annotations

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

START_S, STOP_S = 180.0, 40.0
_SERVING = re.compile(rb" on (http://\S+)")


class StandFailed(Exception):
    """A process of the stand did not do its part."""


@dataclass
class Stand:
    """``url``: of the service; ``engine_url``: of the engine behind it. ``ended``: filled when the stand is
    taken down, with what the engine tells."""

    url: str
    engine_url: str
    server: Process
    engine: Process
    log: Path
    ended: dict[str, Any]

    @property
    def route(self) -> str:
        return f"ws{self.url.removeprefix('http')}/v1/realtime"


@asynccontextmanager
async def standing(
    folder: Path,
    flags: Sequence[str] = (),
    *,
    speak: float = 0.2,
    cost: Sequence[str] = (),
    profile: bool = False,
) -> AsyncIterator[Stand]:
    """:param folder: for the service's data and log; ``flags``: of ``vigil serve``
    :param cost: flags of the scripted engine that say what its answers cost
    :param profile: of the service: where its processor time goes from SIGUSR1 on is in ``ended``
    """
    python = sys.executable
    engine = await asyncio.create_subprocess_exec(
        python, "-m", "evals.bench.scripted_engine", "--speak", str(speak), *cost, stdout=PIPE
    )
    assert engine.stdout is not None
    ended: dict[str, Any] = {}
    try:
        async with asyncio.timeout(START_S):
            engine_url = (await engine.stdout.readline()).decode().strip()
        told = folder / "profile.json"
        module = ("evals.bench.profiled", "--wait", str(told)) if profile else ()
        async with serving(folder, engine_url, flags, module) as (server, url, log):
            yield Stand(url, engine_url, server, engine, log, ended)
            await stop(server)
            ended["server_code"] = server.returncode
            if profile:
                ended["profile"] = orjson.loads(told.read_bytes())
        engine.terminate()
        async with asyncio.timeout(STOP_S):
            rest, _ = await engine.communicate()
        ended["engine"] = orjson.loads(rest)
    finally:
        if engine.returncode is None:
            engine.kill()
            await engine.wait()


@asynccontextmanager
async def serving(
    folder: Path, engine_url: str, flags: Sequence[str], within: Sequence[str] = ()
) -> AsyncIterator[tuple[Process, str, Path]]:
    """:param within: a module that runs the service's, with what it is told"""
    log = folder / "serve.log"
    command = [sys.executable, "-m", *within, "orchestrator.cli", "serve", "--engine", engine_url]
    command += ["--port", "0"]
    with log.open("wb") as lines:
        server = await asyncio.create_subprocess_exec(
            *(*command, "--data", str(folder / "data"), "--no-auth-required", *flags),
            stderr=lines,
            stdout=lines,
        )
    try:
        yield server, await _url(server, log), log
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def _url(server: Process, log: Path) -> str:
    try:
        async with asyncio.timeout(START_S):
            while not (found := _SERVING.search(said := log.read_bytes())):  # noqa: ASYNC240  a few bytes
                if server.returncode is not None:
                    break
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    if found is None:
        raise StandFailed(f"vigil serve did not start:\n{said[-2000:].decode(errors='replace')}")
    return found.group(1).decode()


async def stop(server: Process) -> None:
    if server.returncode is None:
        server.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await server.wait()
        except TimeoutError:
            raise StandFailed("vigil serve did not end within its time") from None
