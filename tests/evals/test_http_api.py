"""The served API as a drive: one request a frame, retries that double nothing, errors that say what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from evals.replay.drive import Frame
from evals.replay.http_api import HttpDrive
from evals.replay.options import ReplayError
from orchestrator.exits import Exit
from tests.evals.drives import StepClock
from tests.evals.fake_server import FakeServer


class Told:
    def __init__(self) -> None:
        self.text = ""
        self.rows: list[Mapping[str, Any]] = []
        self.notices: list[str] = []

    def delta(self, text: str) -> None:
        self.text += text

    def tick(self, record: Mapping[str, Any]) -> None:
        self.rows.append(record)

    def notice(self, code: str, message: str) -> None:
        self.notices.append(code)


def drive_of(url: str, model: str | None = None, persona: str | None = None) -> HttpDrive:
    return HttpDrive(url, model=model, persona=persona, api_key="secret", clock=StepClock())


async def run(drive: HttpDrive, times: list[int], *, query: str | None = None, lossless: bool = True) -> Told:
    told = Told()
    try:
        await drive.prepare()
        await drive.open(told)
        if query:
            await drive.ask(query)
        for time in times:
            await drive.show(Frame(time, b"\xff\xd8jpeg"), lossless=lossless)
    finally:
        await drive.close()
    return told


async def test_a_query_is_withdrawn_from_the_session_if_that_is_there():
    async with FakeServer() as server:
        drive = drive_of(server.url)
        await drive.prepare()
        await drive.open(Told())
        await drive.ask("What happens?")
        await drive.withdraw()
        await drive.show(Frame(0, b"\xff\xd8jpeg"), lossless=True)
        await drive.withdraw()
        await drive.close()
    assert [part["type"] for part in server.requests[0][1]["messages"][0]["content"]] == ["image_url"]
    assert server.withdrawn == server.resets


async def test_each_frame_is_one_request_with_its_time_and_the_query_rides_once():
    async with FakeServer(lambda n, body: "Hello." if n == 1 else "") as server:
        drive = drive_of(server.url, persona="talkative")
        told = await run(drive, [0, 500], query="What happens?")
    (head, first), (_, second) = server.requests
    assert [part["type"] for part in first["messages"][0]["content"]] == ["text", "image_url"]
    assert [part["type"] for part in second["messages"][0]["content"]] == ["image_url"]
    assert [body["frame_time_ranges"] for _, body in server.requests] == [[0.0], [0.5]]
    assert (head["authorization"], head["x-system-prompt-key"]) == ("Bearer secret", "talkative")
    assert len({head["x-session-id"] for head, _ in server.requests}) == 1
    assert server.resets == [head["x-session-id"]]
    assert drive.engine_facts()["model"] == "scripted"
    assert told.text == "Hello."
    assert [row["action"] for row in told.rows] == ["silence", "response"]
    assert [row["cached_tokens"] for row in told.rows] == [64, 64]


async def test_a_broken_stream_is_read_again_and_told_once():
    async with FakeServer(lambda n, body: "cut:A red car." if n == 0 else "") as server:
        told = await run(drive_of(server.url), [0])
    first, second = (head["idempotency-key"] for head, _ in server.requests)
    assert first == second
    assert told.text == "A red car."
    assert len(told.rows) == 1


async def test_a_busy_server_is_asked_again():
    async with FakeServer(lambda n, body: (429, "resource_exhausted") if n < 2 else "ok") as server:
        told = await run(drive_of(server.url), [0])
    assert len(server.requests) == 3
    assert told.text == "ok"


async def test_a_lost_engine_is_waited_for_and_the_frame_is_not_sent_twice():
    async with FakeServer(lambda n, body: (503, "engine_unreachable") if n == 0 else "") as server:
        server.ready_after = 3
        told = await run(drive_of(server.url), [0, 500])
    assert told.notices == ["engine_unreachable"]
    assert [body["frame_time_ranges"] for _, body in server.requests] == [[0.0], [0.5]]
    assert len(told.rows) == 1


async def test_a_refusal_ends_the_run_with_what_the_server_said():
    async with FakeServer(lambda n, body: (401, "invalid_api_key")) as server:
        with pytest.raises(ReplayError, match="invalid_api_key!") as caught:
            await run(drive_of(server.url), [0])
    assert caught.value.exit_code is Exit.USAGE


async def test_a_model_that_is_not_served_is_named_with_those_that_are():
    async with FakeServer() as server:
        with pytest.raises(ReplayError, match=r"does not serve other.*scripted") as caught:
            await run(drive_of(server.url, model="other"), [0])
    assert caught.value.exit_code is Exit.MODEL_MISSING


async def test_nobody_there():
    async with FakeServer() as server:
        url = server.url
    with pytest.raises(ReplayError, match="does not answer") as caught:
        await run(drive_of(url), [0])
    assert caught.value.exit_code is Exit.ENGINE_UNREACHABLE
