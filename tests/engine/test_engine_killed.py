"""An engine that is killed in the middle of a run and started again costs time, and nothing else.

Contract: a file waits. Every frame is in exactly one answered turn; what was shown of an answer when the
engine died stands and is never said again; the client hears once that the engine went and once that it is
back.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from bridges.engine import ChatRequest
from tests.engine.watching import Watched, pictures, watch
from tests.engine_launch.real_engine import RealEngine

pytestmark = pytest.mark.engine

TICKS = 40
KILLED_AFTER = 15
"""Ticks; the engine dies at the first word that is spoken from then on."""


@pytest.fixture(scope="module")
def watched(small_engine: Callable[..., RealEngine], tmp_path_factory: pytest.TempPathFactory) -> Watched:
    engine = small_engine(context=12000, images=8)  # an instance of its own: others use the shared one
    starting: list[threading.Thread] = []

    def kill(done: int, _: str) -> None:
        if done >= KILLED_AFTER and not starting:
            engine.kill()
            starting.append(threading.Thread(target=engine.restart))
            starting[0].start()

    out = tmp_path_factory.mktemp("run")
    try:
        return asyncio.run(watch(engine, out, pictures(TICKS), seed=3, on_delta=kill))
    finally:
        for thread in starting:
            thread.join()


def test_the_run_finishes(watched: Watched) -> None:
    assert (watched.outcome, watched.error) == ("complete", None)
    assert (watched.kinds()["engine_lost"], watched.kinds()["engine_recovered"]) == (1, 1)


def test_no_frame_is_lost_or_doubled(watched: Watched) -> None:
    assert len(watched.seen_frames) == len(set(watched.seen_frames)) == TICKS
    assert watched.answered_frames == watched.seen_frames
    for request in watched.asked:
        uuids = [
            part["uuid"] for message in request.messages for part in message["content"]
            if isinstance(part, dict) and part["type"] == "image_url"
        ]  # fmt: skip
        assert len(uuids) == len(set(uuids))


def test_nothing_is_said_twice(watched: Watched) -> None:
    ticks = [row["tick"] for row in watched.rows]
    assert len(ticks) == len(set(ticks)), "each tick ends once"
    # What was streamed inside each tick is what its row says, and a failed tick showed nothing.
    assert watched.spoken == [row["text"] for row in watched.rows]
    assert {row["text"] for row in watched.rows if row["status"] == "failed"} <= {""}
    # The answer broke off, or all of it was on its way when the engine died; either is the answer.
    begun = next(row for row in watched.rows[KILLED_AFTER:] if row["text"])
    assert begun["status"] in ("incomplete", "completed")
    assert [row for row in watched.rows if row["status"] == "incomplete"] in ([], [begun])
    # The engine that came back is told what was heard of it.
    assert any(f"</response> {begun['text']}" in said(request) for request in watched.asked)


def test_the_client_hears_of_it_once(watched: Watched) -> None:
    about = [code for code in watched.notices if code.startswith("engine_")]
    assert about == ["engine_lost", "engine_recovered"]


def said(request: ChatRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages if message["role"] == "assistant"]
