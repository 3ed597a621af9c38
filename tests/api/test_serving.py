"""The whole service over a real socket, in front of a scripted engine that accounts like a real one."""

from __future__ import annotations

import asyncio
import base64
import re
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.api.scripted import error, events
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Fault, Seen
from tests.fakes.pictures import jpeg


def every_third(seen: Seen) -> str:
    return f"<response> A dog, {seen.tick}." if seen.tick % 3 == 0 else "<silence>"


def frame(number: int) -> dict[str, Any]:
    """A request that shows one frame, taken at that second, to session ``cam``."""
    url = "data:image/jpeg;base64," + base64.b64encode(jpeg(number, 224, 224)).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": content}]
    return {"messages": messages, "frame_time_range": number, "session_id": "cam"}


async def test_a_watched_clip(tmp_path: Path) -> None:
    """Gate, query, speech, silence, reuse, metrics: the main job over HTTP."""
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path) as served:
        gated = (await served.see(0)).json()
        assert gated["interaction"]["reason"] == "gated"
        assert gated["interaction"]["inference_skipped"] is True
        replies = [(await served.see(n, "what is there?")).json() for n in range(1, 13)]
        spoken = [r["interaction"]["text"] for r in replies if r["interaction"]["spoke"]]
        assert spoken == [f"A dog, {n}." for n in (0, 3, 6, 9)]
        assert "<" not in "".join(spoken)
        for reply in replies[1:]:
            interaction = reply["interaction"]
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            assert (
                reply["usage"]["prompt_tokens_details"]["cached_tokens"]
                == interaction["expected_cached_tokens"]
            )
        # The standing query is asked once, and each request is one decision on its own frame.
        assert [r["interaction"]["media_time_s"] for r in replies] == [float(n) for n in range(1, 13)]
        assert [r["interaction"]["tick"] for r in replies] == list(range(2, 14))
        assert replies[-1]["interaction"]["frame_index"] == 13

        streamed = events(await served.see(13, stream=True))
        words = "".join(c["delta"].get("content", "") for e in streamed[:-1] for c in e["choices"])
        assert words == "A dog, 12."

        assert (await served.client.get("/ready")).status_code == 200
        text = (await served.client.get("/metrics")).text
        assert re.search(r'vigil_ticks_total\{action="response",reason=""\} 5\.0', text)
        assert 'vigil_sessions{state="open"} 1.0' in text
        assert 'vigil_engine_state{state="ready"} 1.0' in text


async def test_the_same_key_brings_no_second_frame(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, decision={"gate": False}) as served:
        headers = {"idempotency-key": "k"}
        first, again = [await served.see(0, headers=headers) for _ in range(2)]
        assert first.json() == again.json()
        assert (await served.see(1)).json()["interaction"]["window_frames"] == 2


async def test_a_broken_picture_is_the_clients_error(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path) as served:
        content = [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9j/AAAA"}}]
        body = {"messages": [{"role": "user", "content": content}]}
        response = await served.client.post("/v1/chat/completions", json=body)
        assert (response.status_code, error(response)["code"]) == (400, "invalid_image")


async def test_several_frames_of_one_request(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, decision={"gate": False}) as served:
        body = {**frame(0), "frame_time_range": "6-9"}
        body["messages"][0]["content"] = [frame(n)["messages"][0]["content"][0] for n in range(3)]
        interaction = (await served.client.post("/v1/chat/completions", json=body)).json()["interaction"]
        assert interaction["frame_index"] == interaction["window_frames"] == 3
        assert interaction["media_time_s"] == 8.0


async def test_an_engine_that_dies_costs_ticks_and_no_frames(tmp_path: Path) -> None:
    """The frame of a failed tick is kept; its retry under the same key is the same frame."""
    async with FakeEngine() as engine, Served(engine, tmp_path, decision={"gate": False}) as served:
        await served.see(0)
        engine.kill()
        headers = {"idempotency-key": "lost"}
        lost = await served.see(1, headers=headers)
        assert lost.status_code == 503
        assert int(lost.headers["retry-after"]) >= 1
        assert error(lost)["type"] == "server_error"
        assert (await served.client.get("/ready")).status_code == 503
        await engine.restart()
        async with asyncio.timeout(60):
            while (await served.see(1, headers=headers)).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert (await served.see(2)).json()["interaction"]["window_frames"] == 3
        assert (await served.client.get("/ready")).status_code == 200


async def test_a_wedged_engine_is_told_by_its_missing_answers(tmp_path: Path) -> None:
    timeouts = {"watch_s": 0.05, "ping_s": 0.05}
    async with FakeEngine() as engine, Served(engine, tmp_path, timeouts=timeouts) as served:
        engine.faults.append(Fault(hang=True, times=1000))
        async with asyncio.timeout(150):
            while "engine_wedged" not in (ready := await served.client.get("/ready")).text:
                pass
        assert ready.status_code == 503
        assert (await served.client.get("/health")).status_code == 200


async def test_a_cut_answer_ends_with_length(tmp_path: Path) -> None:
    def counts(seen: Seen) -> str:
        cars = " ".join(f"{seen.tick}: car {n}" for n in range(2000))
        return f"<response> {cars}" if len(seen.images) < 3 else "<response> A car."

    async with (
        FakeEngine(counts) as engine,
        Served(engine, tmp_path, decision={"gate": False}) as served,
    ):
        cut = (await served.see(0)).json()
        assert cut["choices"][0]["finish_reason"] == "length"
        said = cut["choices"][0]["message"]["content"]
        assert "car 0" in said and "car 1999" not in said
        assert (cut["interaction"]["status"], cut["interaction"]["reason"]) == (
            "incomplete",
            "max_output_tokens",
        )
        streamed = await served.see(1, stream=True)
        assert '"finish_reason":"length"' in streamed.text.replace(": ", ":")
        assert (await served.see(2)).json()["choices"][0]["finish_reason"] == "stop"


async def test_a_shutdown_keeps_the_session_and_a_reset_does_not(tmp_path: Path) -> None:
    async with FakeEngine() as engine:
        async with Served(engine, tmp_path, decision={"gate": False}) as served:
            for n in range(4):
                await served.see(n)
        async with Served(engine, tmp_path, decision={"gate": False}) as served:
            reply = (await served.see(4)).json()
            assert reply["interaction"]["window_frames"] == 5
            assert reply["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
            await served.client.post("/reset", headers={"x-session-id": "cam"})
            assert (await served.see(0)).json()["interaction"]["window_frames"] == 1
        async with Served(engine, tmp_path, decision={"gate": False}) as served:
            assert (await served.see(1)).json()["interaction"]["window_frames"] == 2


async def test_plain_text_passes_through(tmp_path: Path) -> None:
    async with FakeEngine(["plain words"]) as engine, Served(engine, tmp_path) as served:
        body = {"messages": [{"role": "user", "content": "hello"}]}
        whole = await served.client.post("/v1/chat/completions", json=body)
        assert whole.json()["choices"][0]["message"]["content"] == "plain words"
        streamed = await served.client.post("/v1/chat/completions", json={**body, "stream": True})
        assert events(streamed)[-1] == "[DONE]"
        engine.kill()
        lost = await served.client.post("/v1/chat/completions", json=body)
        assert (lost.status_code, error(lost)["code"]) == (503, "engine_unreachable")


@asynccontextmanager
async def command(*flags: str) -> AsyncIterator[tuple[Process, httpx.AsyncClient]]:
    """``vigil serve`` as a process of its own, ready to answer."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "orchestrator.cli", "serve", "--port", "0", "--no-auth-required", *flags),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(150):
            while not (found := re.search(rb"on (http://\S+)", line := await process.stderr.readline())):
                assert line, "it ended"
        async with httpx.AsyncClient(base_url=found[1].decode(), trust_env=False, timeout=120) as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_the_command_serves_and_drains_on_sigterm(tmp_path: Path) -> None:
    """It says where it listens, answers, and ends in order."""
    async with FakeEngine() as engine:
        flags = ("--engine", engine.url, "--model", engine.model, "--data", str(tmp_path))
        async with command(*flags, "--no-decision-gate") as (process, client):
            body = {"messages": [{"role": "user", "content": "what?"}], "session_id": "s"}
            answered = await client.post("/v1/chat/completions", json=body)
            assert answered.json()["interaction"]["action"] == "silence"
            process.send_signal(signal.SIGTERM)
            _, rest = await asyncio.wait_for(process.communicate(), 150)
            assert process.returncode == 0, rest
            assert b"Traceback" not in rest


async def test_after_kill_9_the_session_goes_on_with_the_same_bytes(tmp_path: Path) -> None:
    """Contract: a crash loses at most the tick in flight, and the engine's cache still hits."""
    async with FakeEngine(every_third) as engine:
        flags = ("--engine", engine.url, "--data", str(tmp_path), "--no-decision-gate")
        async with command(*flags) as (process, client):
            for n in range(6):
                before = (await client.post("/v1/chat/completions", json=frame(n))).json()
            process.kill()
            await process.wait()
        sent = engine.chats[-1]
        async with command(*flags) as (_, client):
            after = (await client.post("/v1/chat/completions", json=frame(6))).json()
        for count in ("window_frames", "frame_index"):
            assert after["interaction"][count] == before["interaction"][count] + 1 == 7
        cached = after["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached == (sent.prompt_tokens + sent.completion_tokens - 1) // 32 * 32
