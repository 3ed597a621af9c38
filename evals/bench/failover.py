"""One of two orchestrators and one of two engines killed under load: when does every session go on?

``make bench-failover``. Real processes: two scripted engines, two ``vigil serve`` over one private PostgreSQL
and one folder, sessions that show a picture a second each. A client does what a load balancer does for it:
where its door is gone it asks at the other one. Leases have a heartbeat of 0.5 s and a life of 2 s.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from evals.bench.machine import machine
from evals.bench.stand import START_S, serving
from tests.engine_launch.real_engine import free_port
from tests.fakes.pictures import jpeg
from tests.fakes.postgres import INSTALL_HINT, PrivatePostgres, find_binaries

RESULT = Path(__file__).parent / "results" / "failover.json"
HEARTBEAT_S, LIFE_S = 0.5, 2.0
PERIOD_S = 1.0
ANSWER_S = 20.0


@dataclass
class Watched:
    """One session as its client sees it. ``answers``: tick, when it was sent and answered, in s."""

    name: str
    door: int
    answers: list[tuple[int, float, float]] = field(default_factory=list)
    failed: list[tuple[int, float, str]] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    frames: int = 0


@dataclass
class Pair:
    """``doors``: addresses of the orchestrators; ``engines``: their processes."""

    doors: list[str]
    orchestrators: list[Process]
    engines: list[Process]
    began: float

    def now(self) -> float:
        return time.monotonic() - self.began


@asynccontextmanager
async def standing(folder: Path, url: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        engines, names = [], []
        for _ in range(2):
            engine = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "evals.bench.scripted_engine", stdout=PIPE
            )
            stack.push_async_callback(_end, engine)
            assert engine.stdout is not None
            async with asyncio.timeout(START_S):
                names.append((await engine.stdout.readline()).decode().strip())
            engines.append(engine)
        doors, orchestrators = [], []
        for number in range(2):
            port = free_port()
            door = f"http://127.0.0.1:{port}"
            own = folder / f"orchestrator-{number}"
            own.mkdir()
            flags = (
                *(
                    "--port",
                    str(port),
                    "--advertise",
                    door,
                    "--store-url",
                    url,
                    "--data",
                    str(folder / "data"),
                ),
                *("--store-heartbeat-s", str(HEARTBEAT_S), "--store-life-s", str(LIFE_S)),
                *("--limits-sessions", "1000", "--auth-quota-handshakes-per-minute", "100000"),
            )
            process, _, _ = await stack.enter_async_context(serving(own, ",".join(names), flags))
            doors.append(door)
            orchestrators.append(process)
        yield Pair(doors, orchestrators, engines, time.monotonic())


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()


async def _client(
    pair: Pair, one: Watched, ended: asyncio.Event, pictures: Sequence[str], offset_s: float
) -> None:
    async with httpx.AsyncClient(timeout=ANSWER_S, trust_env=False) as http:
        tick, due = 0, time.monotonic() + offset_s
        while not ended.is_set():
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            due = max(due + PERIOD_S, time.monotonic())
            sent = pair.now()
            try:
                reply = await http.post(
                    f"{pair.doors[one.door]}/v1/chat/completions",
                    headers={"x-session-id": one.name},
                    json=_body(tick, round(sent * 1000), pictures[tick % len(pictures)]),
                )
                reply.raise_for_status()
                block = reply.json()["interaction"]
            except (httpx.HTTPError, ValueError) as lost:
                told = lost.response.text[:160] if isinstance(lost, httpx.HTTPStatusError) else ""
                one.failed.append((tick, sent, f"{type(lost).__name__} {told}".strip()))
                if isinstance(lost, httpx.TransportError):
                    one.door = 1 - one.door  # as a load balancer would
            else:
                one.answers.append((tick, sent, pair.now()))
                one.ids.add(block["server_session_id"])
                one.frames = max(one.frames, block["frame_index"])
            tick += 1


def _body(tick: int, media_ms: int, jpeg: str) -> dict[str, Any]:
    content: list[dict[str, Any]] = (
        [{"type": "text", "text": "Say when a red car comes."}] if not tick else []
    )
    content.append({"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{jpeg}"}})
    return {"messages": [{"role": "user", "content": content}], "frame_time_range": media_ms / 1000}


async def failover(folder: Path, url: str, sessions: int, seconds: float) -> dict[str, Any]:
    """Load for ``seconds``, then orchestrator 0 and engine 0 are killed, and load for as long again."""
    pictures = [base64.b64encode(jpeg(number, 224, 224)).decode() for number in range(8)]
    async with standing(folder, url) as pair:
        watched = [Watched(f"cam-{n}", n % 2) for n in range(sessions)]
        ended = asyncio.Event()
        clients = [
            asyncio.create_task(_client(pair, one, ended, pictures, n * PERIOD_S / sessions))
            for n, one in enumerate(watched)
        ]
        try:
            await _until(clients, pair.now() + seconds, pair)
            killed = pair.now()
            os.kill(pair.orchestrators[0].pid, 9)
            os.kill(pair.engines[0].pid, 9)
            await _until(clients, killed + max(seconds, 10 * PERIOD_S), pair)
        finally:
            ended.set()
            await asyncio.gather(*clients, return_exceptions=True)
        kept = await _kept(pair.doors[1], watched)
    return _told(watched, killed, kept)


async def _until(clients: Sequence[asyncio.Task[None]], when: float, pair: Pair) -> None:
    """Raises what a client raised."""
    done, _ = await asyncio.wait(
        clients, timeout=max(0.0, when - pair.now()), return_when=asyncio.FIRST_EXCEPTION
    )
    for task in done:
        task.result()


async def _kept(door: str, watched: Sequence[Watched]) -> dict[str, int]:
    """Frames in each session's log, as the orchestrator that is left tells."""
    async with httpx.AsyncClient(base_url=door, timeout=ANSWER_S, trust_env=False) as http:
        found = [(await http.get(f"/v1/sessions/{one.name}")).json() for one in watched]
    return {one.name: about["counts"]["frames"] for one, about in zip(watched, found, strict=True)}


def _told(watched: Sequence[Watched], killed: float, kept: dict[str, int]) -> dict[str, Any]:
    gaps, ticks = [], []
    for one in watched:
        before = max((tick for tick, _, at in one.answers if at < killed), default=-1)
        after = [(tick, at) for tick, _, at in one.answers if at > killed]
        gaps.append(min((at for _, at in after), default=float("inf")) - killed)
        ticks.append(min((tick for tick, _ in after), default=10**6) - before)
    ordered = sorted(gaps)
    answered = {one.name: len(one.answers) for one in watched}
    return {
        "sessions": len(watched),
        "heartbeat_s": HEARTBEAT_S,
        "life_s": LIFE_S,
        "period_s": PERIOD_S,
        "gone_on": sum(gap != float("inf") for gap in gaps),
        "next_answer_s": {"p50": round(ordered[len(ordered) // 2], 3), "max": round(ordered[-1], 3)},
        "ticks_to_next_answer": {"p50": sorted(ticks)[len(ticks) // 2], "max": max(ticks)},
        "ticks_failed": {
            "all": sum(len(o.failed) for o in watched),
            "max": max(len(o.failed) for o in watched),
        },
        "ticks_answered": sum(answered.values()),
        "sessions_with_one_id": sum(len(one.ids) == 1 for one in watched),
        "answered_frames_lost": sum(max(0, answered[name] - frames) for name, frames in kept.items()),
        "why_failed": sorted({why for one in watched for _, _, why in one.failed}),
        "failed_before": sum(at < killed - PERIOD_S for one in watched for _, at, _ in one.failed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--out", type=Path, default=RESULT)
    given = parser.parse_args()
    binaries = find_binaries()
    if binaries is None:
        parser.exit(1, INSTALL_HINT + "\n")
    with PrivatePostgres(binaries) as server, tempfile.TemporaryDirectory(prefix="vigil-failover-") as folder:
        result = asyncio.run(failover(Path(folder), server.empty_database(), given.sessions, given.seconds))
    told = orjson.dumps({**result, "machine": machine()}, option=orjson.OPT_INDENT_2).decode()
    given.out.write_text(told + "\n")
    sys.stdout.write(told + "\n")
    within = result["ticks_to_next_answer"]["max"] <= 5 and result["gone_on"] == given.sessions
    parser.exit(0 if within and not result["answered_frames_lost"] else 1)


if __name__ == "__main__":
    main()
