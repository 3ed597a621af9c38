"""Starting, finding and stopping process groups, with processes that only look like engines."""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from engine_launch import launch, supervisor
from engine_launch.errors import BootFailed, CheckpointError, LaunchError, NotRunning, PortTaken
from engine_launch.profile import ImageCache, Profile, load_profile
from engine_launch.supervisor import Running
from engine_launch.venv import EngineVenv
from tests.engine_launch import real_engine

PRETEND = Path(__file__).with_name("pretend_engine.py")
Start = Callable[..., Running]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Start]:
    """``start("crash")``: ``launch.up`` of a pretended engine, in a cache folder of its own."""
    monkeypatch.setenv("VIGIL_CACHE", str(tmp_path))
    profile = load_profile("standin-cpu").changed(
        deadlines={"boot_s": 90.0, "warmup_s": 90.0, "stop_s": 5.0}, model={"path": "x/y", "shipped": None}
    )
    monkeypatch.setattr(
        launch, "engine_venv", lambda kind, progress: EngineVenv(Path(sys.executable), "0.32.0", False)
    )
    port = real_engine.free_port()

    def begin(*how: str, change: dict[str, object] | None = None, **options: object) -> Running:
        monkeypatch.setattr(
            launch, "_command", lambda *parts: [sys.executable, str(PRETEND), str(parts[4]), *how]
        )
        chosen: Profile = profile.changed(**(change or {}))
        return launch.up(chosen, **{"port": port, **options})  # type: ignore[arg-type]

    yield begin
    for running in supervisor.running_engines():
        supervisor.stop(running, 0.2)


def group(running: Running) -> list[psutil.Process]:
    return supervisor.members(running)


def ended(process: psutil.Process) -> bool:
    """Gone, or waiting for a parent to read its exit status."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_up_finds_it_again_and_down_ends_every_process(start: Start) -> None:
    running = start()
    processes = group(running)
    assert len(processes) == 2, "the child is part of the group"
    assert start() == running, "a running one is kept"
    assert supervisor.find_by_url(f"{running.url}/v1") == running
    assert launch.down("standin-cpu", 5.0) == running
    assert all(map(ended, processes))
    assert supervisor.find("standin-cpu") is None
    with pytest.raises(NotRunning):
        launch.down("standin-cpu")


def test_other_settings_are_not_taken_for_the_running_one(start: Start) -> None:
    start()
    with pytest.raises(LaunchError, match="other settings"):
        start("stubborn")


def test_what_ignores_term_is_killed_and_leaves_no_memory(start: Start) -> None:
    running = start("stubborn", "shared")
    processes = group(running)
    segments = supervisor.shared_memory(processes)
    assert len(segments) == 1 and all(segment.is_file() for segment in segments)
    supervisor.stop(running, 0.3)
    assert all(map(ended, processes))
    assert not any(segment.exists() for segment in segments), "its shared memory is given back"


def test_a_child_that_outlives_its_leader_is_found_and_stopped(start: Start) -> None:
    running = start()
    leader, child = psutil.Process(running.pid), psutil.Process(running.pid).children()[0]
    leader.kill()
    leader.wait(60)
    assert not running.alive()
    found = supervisor.find("standin-cpu")
    assert found == running and group(found) == [child]
    supervisor.stop(found, 5.0)
    assert ended(child)


def test_a_dead_one_is_replaced(start: Start) -> None:
    first = start()
    for process in group(first):
        process.kill()
    supervisor.wait_until_gone(first, 60.0)
    second = start()
    assert second.pid != first.pid and second.alive()


def test_a_reused_pid_is_not_ours(start: Start) -> None:
    mine = psutil.Process()
    stranger = dataclasses.replace(start(), name="stranger", pid=os.getpid(), started=mine.create_time() - 50)
    supervisor.remember(stranger)
    assert not stranger.alive()
    supervisor.stop(stranger, 0.1)
    assert mine.is_running()


def test_a_crash_at_boot_shows_the_log_and_the_remedy(start: Start) -> None:
    with pytest.raises(BootFailed, match="ended while it was starting") as failure:
        start("crash")
    assert "pretending to load weights" in failure.value.log_tail
    assert "Another program uses the GPU" in failure.value.remedy
    assert supervisor.running_engines() == []


def test_one_that_never_listens_is_stopped_at_its_deadline(start: Start) -> None:
    with pytest.raises(BootFailed, match="not ready after 1 s"):
        start("deaf", change={"deadlines": {"boot_s": 1.0}})
    assert supervisor.running_engines() == []


@pytest.mark.parametrize(
    ("how", "warmup_s", "words"),
    [("mute", 1.0, "did not answer a request"), ("broken", 60.0, "EngineCore is gone")],
)
def test_health_alone_is_not_believed(start: Start, how: str, warmup_s: float, words: str) -> None:
    with pytest.raises(BootFailed, match=words):
        start(how, change={"deadlines": {"warmup_s": warmup_s}})
    assert supervisor.running_engines() == []


def test_an_interrupted_start_leaves_nothing(start: Start) -> None:
    def interrupt(stage: str, detail: str) -> None:
        if stage == "starting the engine":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start("deaf", progress=interrupt)
    assert supervisor.running_engines() == []


def test_a_taken_port_is_told_with_its_holder(start: Start) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(PortTaken, match="--port"):
            start(port=other.getsockname()[1])


def test_two_starts_at_once_make_one_engine(start: Start) -> None:
    """Contract: both callers get the same process, and neither fails."""
    got: list[Running] = []
    threads = [threading.Thread(target=lambda: got.append(start())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 2 and got[0].pid == got[1].pid


def test_a_missing_model_is_said_before_anything_starts(start: Start) -> None:
    with pytest.raises(CheckpointError, match="holds no model"):
        start(change={"model": {"path": "/nowhere"}})
    with pytest.raises(CheckpointError, match="the weights"):
        start(change={"model": {"path": None, "ask": "the weights"}})


def test_a_small_dev_shm_means_the_fallback_or_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "SHM", Path("/nowhere"))
    told: list[str] = []
    wanted = ImageCache(kind="shm", mib=1024, fallback="lru")
    assert launch._image_cache(wanted, lambda stage, detail: told.append(detail)) == ("lru", 1024)
    assert "lru" in told[0]
    with pytest.raises(LaunchError, match="--shm-size 1280m"):
        launch._image_cache(ImageCache(kind="shm", mib=1024), lambda stage, detail: None)


def test_a_state_file_that_is_not_ours_to_read_is_ignored(start: Start) -> None:
    supervisor.state_file("torn").write_text('{"name": "to')
    supervisor.state_file("older").write_text('{"name": "older"}')
    assert supervisor.running_engines() == []
