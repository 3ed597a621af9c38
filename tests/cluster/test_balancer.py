"""The load balancer of the compose profile: a real nginx with its configuration, in front of two services."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.cluster.members import Member, members
from tests.engine_launch.real_engine import free_port
from tests.fakes.postgres import PrivatePostgres
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "balancer.conf"
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")

pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is missing: `make system` installs it")


def configured(folder: Path, both: list[Member], port: int) -> Path:
    """The shipped file, with this machine's addresses, in what a container's nginx has around it."""
    shipped = CONFIGURATION.read_text()
    for name, member in zip(("vigil-a:8070", "vigil-b:8070"), both, strict=True):
        assert name in shipped
        shipped = shipped.replace(name, member.address.removeprefix("http://"))
    shipped = shipped.replace("listen 8070;", f"listen 127.0.0.1:{port};")
    (folder / "balancer.conf").write_text(shipped)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    whole = folder / "nginx.conf"
    user = "user root;\n" if os.geteuid() == 0 else ""  # else its workers may not read the folder
    whole.write_text(
        f"{user}daemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\n    access_log off;\n{paths}    include {folder}/balancer.conf;\n}}\n"
    )
    return whole


@asynccontextmanager
async def balanced(folder: Path, both: list[Member]) -> AsyncIterator[str]:
    """Its address. nginx itself says that the configuration is sound before it is started."""
    assert NGINX is not None
    port = free_port()
    command = [
        NGINX,
        "-c",
        str(configured(folder, both, port)),
        "-p",
        str(folder),
        "-e",
        f"{folder}/early.log",
    ]
    tried = await asyncio.create_subprocess_exec(*command, "-t", stderr=asyncio.subprocess.PIPE)
    _, said = await tried.communicate()
    assert tried.returncode == 0, said.decode()
    running = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        # Its file is written once it has its socket.
        await eventually(lambda: (folder / "nginx.pid").exists() or running.returncode is not None)
        assert running.returncode is None, (folder / "error.log").read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        running.terminate()
        await running.wait()


async def test_a_name_has_one_door_and_another_when_that_is_gone(
    postgres: PrivatePostgres, tmp_path: Path
) -> None:
    async with (
        members(postgres, tmp_path) as (_, both),
        balanced(tmp_path, both) as url,
        httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as door,
    ):
        for each in both:  # what they are asked for is passed through the balancer
            await each.client.aclose()
            each.client = door
        names = [f"cam-{number}" for number in range(8)]
        for number in range(3):
            for name in names:
                reply = await both[0].see(number, headers={"x-session-id": name})
                assert reply.status_code == 200 and reply.json()["interaction"]["frame_index"] == number + 1
        assert [len(each.live()) for each in both] != [0, 0] and sum(len(each.live()) for each in both) == 8
        taken = [each.core.metrics.render().decode() for each in both]
        for each, text in zip(both, taken, strict=True):
            asked = sum(
                float(line.rpartition(" ")[2])
                for line in text.splitlines()
                if line.startswith("vigil_http_requests_total") and "chat" in line
            )
            assert asked == 3 * len(each.live()), "a session's requests come to its owner at once"
        async with Talker(url, opening={}) as talker:
            await talker.send("session.heartbeat")
            await talker.until("session.heartbeat_ack")
        gone, left = both if both[0].live() else reversed(both)
        await gone.core.drain()
        await gone.owning._store.leases.leave()  # type: ignore[union-attr]
        await gone._listening.aclose()
        for name in names:
            reply = await left.see(3, headers={"x-session-id": name})
            assert reply.status_code == 200 and reply.json()["interaction"]["frame_index"] == 4
        await eventually(lambda: len(left.live()) >= len(names))
