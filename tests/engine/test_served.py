"""``vigil serve`` as a process in front of the real engine: the main job over HTTP, and an orderly end."""

from __future__ import annotations

import base64
import json
import re
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

from tests.engine.watching import QUERY, pictures
from tests.engine_launch.real_engine import RealEngine

pytestmark = pytest.mark.engine

TICKS = 30
START_S = 120.0


@contextmanager
def serving(engine: RealEngine, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    log = folder / "serve.log"
    command = [
        sys.executable,
        "-m",
        "orchestrator.cli",
        "serve",
        "--no-auth-required",
        "--engine",
        engine.url,
        "--family",
        "joyvl",
    ]
    command += ["--port", "0", "--data", str(folder / "data"), "--decision-seed", "5"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    try:
        url = said_url(process, log)
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            yield process, client
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def said_url(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        said = re.search(r"serving .* on (http://\S+)", log.read_text())
        if said:
            return said.group(1)
        assert process.poll() is None, log.read_text()
        time.sleep(0.1)
    raise AssertionError(log.read_text())


def request(number: int | None, text: str | None = None, **more: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    if number is not None:
        url = "data:image/jpeg;base64," + base64.b64encode(pictures(TICKS)[number]).decode()
        content.append({"type": "image_url", "image_url": {"url": url}})
    return {"model": "standin", "messages": [{"role": "user", "content": content}], **more}


def ask(client: httpx.Client, body: dict[str, Any], session: str = "cam", **headers: str) -> httpx.Response:
    response = client.post("/v1/chat/completions", json=body, headers={"x-session-id": session, **headers})
    assert response.status_code == 200, response.text
    return response


def streamed(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_session_over_http(engine: RealEngine, tmp_path: Path) -> None:
    with serving(engine, tmp_path) as (process, client):
        thirty_ticks(client)
        same_key_same_answer(client)
        text_alone(client)
        reset(client)
        assert client.get("/ready").status_code == 200
        metrics = client.get("/metrics").text
        assert re.search(r"^vigil_ticks_total\{.*\} \d", metrics, re.M)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    log = (tmp_path / "serve.log").read_text()
    assert "Traceback" not in log
    assert " ERROR " not in log


def test_kill_9_costs_a_session_nothing(engine: RealEngine, tmp_path: Path) -> None:
    """Contract: after a crash and a restart the next prompt has the bytes it would have had, so the engine
    has computed nearly all of it already."""
    with serving(engine, tmp_path) as (process, client):
        for n in range(TICKS - 1):
            ask(client, request(n, QUERY if n == 0 else None, frame_time_range=f"{n}-{n + 1}"))
        planned = client.get("/v1/sessions/cam/plan").json()
        process.kill()
        process.wait()
    with serving(engine, tmp_path) as (_, client):
        assert client.get("/v1/sessions/cam/plan").json() == {**planned, "live": False}
        reply = ask(client, request(TICKS - 1, None, frame_time_range=f"{TICKS - 1}-{TICKS}")).json()
        interaction, usage = reply["interaction"], reply["usage"]
        assert (interaction["tick"], interaction["frame_index"]) == (TICKS, TICKS)
        assert interaction["window_frames"] == TICKS
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached >= 0.95 * usage["prompt_tokens"]
        assert cached >= interaction["expected_cached_tokens"]


def thirty_ticks(client: httpx.Client) -> None:
    """One frame a request, every third of them streamed; the first brings the query."""
    spoken = 0
    for n in range(TICKS):
        timed = {"frame_time_range": f"{n}-{n + 1}", "stream": n % 3 == 2}
        response = ask(client, request(n, QUERY if n == 0 else None, **timed))
        assert response.headers["x-session-id"] == "cam"
        if timed["stream"]:
            chunks = streamed(response)
            text = "".join(c["delta"].get("content") or "" for e in chunks for c in e["choices"])
            reply = chunks[-1]
        else:
            reply = response.json()
            text = reply["choices"][0]["message"]["content"]
        interaction, usage = reply["interaction"], reply["usage"]
        assert interaction["status"] == "completed"
        assert (interaction["tick"], interaction["frame_index"]) == (n + 1, n + 1)
        assert interaction["media_time_s"] == float(n)
        assert interaction["text"] == text
        assert "</" not in text
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] > 196 * (n + 1)
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        assert cached == interaction["expected_cached_tokens"]
        assert cached > 196 * (n - 1)
        spoken += bool(text)
    assert spoken >= 2


def same_key_same_answer(client: httpx.Client) -> None:
    body = request(0, None, frame_time_range="30-31")
    first, again = (ask(client, body, **{"idempotency-key": "once"}) for _ in range(2))
    assert first.json() == again.json()
    assert first.json()["interaction"]["frame_index"] == TICKS + 1
    after = ask(client, request(1, None, frame_time_range="31-32")).json()
    assert after["interaction"]["frame_index"] == TICKS + 2


def text_alone(client: httpx.Client) -> None:
    """With a session it is a query, which replaces the standing one; without one the engine answers it."""
    reply = ask(client, request(None, "Is anybody there?")).json()
    assert reply["interaction"]["status"] == "completed"
    assert reply["interaction"]["frame_index"] == TICKS + 2
    body = {**request(None, "Hello."), "max_tokens": 8}
    plain = client.post("/v1/chat/completions", json=body)
    assert plain.status_code == 200
    assert "interaction" not in plain.json()
    assert plain.json()["usage"]["completion_tokens"] > 0


def reset(client: httpx.Client) -> None:
    gone = client.post("/v1/streaming/reset", json={"session_id": "cam"}).json()
    assert (gone["status"], gone["ok"], gone["removed"]) == ("reset", True, True)
    fresh = ask(client, request(2, None, frame_time_range="0-1")).json()["interaction"]
    assert (fresh["frame_index"], fresh["tick"], fresh["reason"]) == (1, 1, "gated")
