"""The compose file is valid, and the very commands and environment it names start as processes."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from engine_launch.profile import load_profile
from orchestrator.settings import load_settings
from tests.engine_launch.real_engine import free_port

ROOT = Path(__file__).parent.parent
KEY = "a-key-for-this-test"
HASH = f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.mark.parametrize("profile", ["gpu", "native", "cpu", "several"])
def test_the_file_is_valid(profile: str) -> None:
    program = shutil.which("docker-compose")
    assert program, "docker-compose is missing: `make system` installs it"
    done = subprocess.run(
        [program, "--profile", profile, "config"],
        cwd=ROOT,
        env={**os.environ, "VIGIL_AUTH__API_KEYS": f"me={HASH}"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr


def test_it_refuses_to_start_without_keys() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "VIGIL_AUTH__API_KEYS"}
    done = subprocess.run(
        ["docker-compose", "--profile", "cpu", "config"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    assert done.returncode != 0
    assert "NAME=sha256:HASH" in done.stderr


def test_services_of_a_profile_belong_together() -> None:
    for name in ("gpu", "native", "cpu"):
        engine, vigil = COMPOSE["services"][f"engine-{name}"], COMPOSE["services"][f"vigil-{name}"]
        assert engine["profiles"] == vigil["profiles"] == [name]
        assert vigil["environment"]["VIGIL_ENGINE"] == f"http://engine-{name}:8000"
        # A bare name would look for a graphics card; any variant tells what they have in common.
        launched = load_profile(engine["command"][3] + (":80gb" if name == "gpu" else ""))
        assert launched.port == 8000
        assert launched.family == vigil["environment"]["VIGIL_FAMILY"]


def test_several_orchestrators_share_what_they_have_to() -> None:
    services = COMPOSE["services"]
    members = {name: spec for name, spec in services.items() if name in ("vigil-a", "vigil-b")}
    assert len(members) == 2
    settings = [spec["environment"] for spec in members.values()]
    assert {each["VIGIL_ADVERTISE"] for each in settings} == {f"http://{name}:8070" for name in members}
    for name in ("VIGIL_ENGINE", "VIGIL_STORE__URL", "VIGIL_DATA"):
        assert len({each[name] for each in settings}) == 1
    for url in settings[0]["VIGIL_ENGINE"].split(","):
        assert services[url.removeprefix("http://").removesuffix(":8000")]["profiles"] == ["several"]
    assert all(spec["volumes"] == ["sessions:/data"] and "ports" not in spec for spec in members.values())
    mounted = services["balancer"]["volumes"][0].split(":")[0]
    balancer = (ROOT / mounted).read_text()
    assert set(re.findall(r"server (\S+:\d+) ", balancer)) == {f"{name}:8070" for name in members}
    assert balancer.count("{") == balancer.count("}")


@pytest.mark.parametrize("member", ["vigil-a", "vigil-b"])
def test_the_settings_of_a_member_are_settings(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in COMPOSE["services"][member]["environment"].items():
        given = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        monkeypatch.setenv(name, f"me={HASH}" if name == "VIGIL_AUTH__API_KEYS" else given)
    assert load_settings().advertise == f"http://{member}:8070"


def test_shared_memory_holds_the_image_cache() -> None:
    """A shared-memory image cache that does not fit fails silently: frames would be sent again and again."""
    for service, variants in (("engine-gpu", ("24gb", "48gb", "80gb")), ("engine-cpu", (None,))):
        spec = COMPOSE["services"][service]
        size = int(spec["shm_size"].removesuffix("gb")) * 1024
        for variant in variants:
            profile = load_profile(spec["command"][3] + (f":{variant}" if variant else ""))
            assert profile.image_cache is not None and profile.image_cache.mib < size


@pytest.mark.parametrize("name", ["Dockerfile", "engine_launch/Dockerfile"])
def test_dockerfiles_copy_what_exists(name: str) -> None:
    for line in (ROOT / name).read_text().splitlines():
        if line.startswith("COPY"):
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists(), line


@contextmanager
def started(command: list[str], environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A service's command as a process; ended by SIGTERM, as a container is."""
    program = str(Path(sys.executable).with_name(command[0]))
    with log.open("wb") as out:
        process = subprocess.Popen(
            [program, *command[1:]], env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, seconds: float) -> httpx.Response:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text()
        try:
            answer = httpx.get(url, headers={"Authorization": f"Bearer {KEY}"}, timeout=5)
            if answer.status_code == 200:
                return answer
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"{url} did not answer in {seconds} s:\n{log.read_text()[-3000:]}")


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_the_commands_of_the_cpu_profile_start(tmp_path: Path) -> None:
    """Only what a container would isolate is replaced: addresses, ports and the data folder."""
    engine_port, port = free_port(), free_port()
    engine, vigil = COMPOSE["services"]["engine-cpu"], COMPOSE["services"]["vigil-cpu"]
    command = ["127.0.0.1" if word == "0.0.0.0" else word for word in engine["command"]]
    own_cache = {"VIGIL_CACHE": os.environ["VIGIL_CACHE"]} if "VIGIL_CACHE" in os.environ else {}
    base = {k: v for k, v in os.environ.items() if not k.startswith("VIGIL_")} | own_cache
    environment = {
        **base,
        **vigil["environment"],
        "VIGIL_HOST": "127.0.0.1",
        "VIGIL_PORT": str(port),
        "VIGIL_DATA": str(tmp_path / "data"),
        "VIGIL_ENGINE": f"http://127.0.0.1:{engine_port}",
        "VIGIL_AUTH__API_KEYS": f"me={HASH}",
    }
    engine_log, log = tmp_path / "engine.log", tmp_path / "vigil.log"
    named = [*command, "--port", str(engine_port), "--name", f"compose-{engine_port}"]
    with started(named, base, engine_log) as engine_process:
        wait_for(f"http://127.0.0.1:{engine_port}/v1/models", engine_process, engine_log, 300)
        with started(vigil["command"], environment, log) as process:
            wait_for(f"http://127.0.0.1:{port}/ready", process, log, 150)
            refused = httpx.get(f"http://127.0.0.1:{port}/v1/models", timeout=5)
            assert refused.status_code == 401
            models = wait_for(f"http://127.0.0.1:{port}/v1/models", process, log, 150).json()
            assert json.dumps(models).count("standin") >= 1
        assert process.returncode == 0, log.read_text()
