"""The summarizer's bridge over a real socket: what is sent, what comes back, and when it rests."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from bridges.circuit import EngineState
from bridges.engine import (
    EngineError,
    EngineRefused,
    EngineServerError,
    EngineTimeout,
    EngineUnreachable,
    ImageMissing,
)
from bridges.summarizer import ChatSummarizer, Written
from tests.fakes.clock import VirtualClock
from tests.fakes.pictures import jpeg
from tests.fakes.solver import FakeSolver, Reply

PICTURE = jpeg(1)
SAMPLING = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.1}
MESSAGES = [
    {
        "role": "user",
        "content": [{"type": "text", "text": "Summarise."}, {"type": "image_url", "uuid": "u1"}],
    }
]
TEXTS = [{"role": "user", "content": [{"type": "text", "text": "Merge."}]}]


def images(uuid: str) -> bytes:
    return {"u1": PICTURE}[uuid]


def summarizer(fake: FakeSolver, **more: Any) -> ChatSummarizer:
    return ChatSummarizer(fake.url, "writer", more.pop("params", {}), **more)


async def ask(asked: ChatSummarizer, messages: Any = TEXTS) -> Written:
    return await asked.write(messages, SAMPLING, 800, images)


async def test_a_request_carries_bytes_and_plain_sampling_alone() -> None:
    async with FakeSolver(["<think>hm</think> All quiet. "]) as fake:
        asked = summarizer(fake, api_key="secret", params={"top_p": 0.5, "mine": 1})
        assert await ask(asked, MESSAGES) == Written("All quiet.", "stop")
        (seen,) = fake.asked
        assert seen.headers["authorization"] == "Bearer secret"
        url = "data:image/jpeg;base64," + base64.b64encode(PICTURE).decode()
        content = [{"type": "text", "text": "Summarise."}, {"type": "image_url", "image_url": {"url": url}}]
        assert seen.body == {
            "model": "writer",
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 800,
            "temperature": 0.8,
            "top_p": 0.5,
            "mine": 1,
            "stream": False,
        }
        await asked.aclose()


async def test_a_text_that_was_cut_off_says_so() -> None:
    choice = {"message": {"content": "All qui"}, "finish_reason": "length"}
    async with FakeSolver([Reply({"choices": [choice]})]) as fake:
        asked = summarizer(fake)
        assert await ask(asked) == Written("All qui", "length")
        await asked.aclose()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply({"choices": []}), EngineServerError),
        (Reply(["no"]), EngineServerError),
        (Reply(b"not json"), EngineServerError),
        (Reply({"error": {"message": "boom"}}, status=500), EngineServerError),
        (Reply({"error": {"message": "no such model"}}, status=404), EngineRefused),
        (Reply(drop=True), EngineUnreachable),
    ],
)
async def test_every_way_of_getting_no_text(reply: Reply, error: type[EngineError]) -> None:
    async with FakeSolver([reply]) as fake:
        asked = summarizer(fake)
        with pytest.raises(error):
            await ask(asked)
        assert asked.statistics() == {"in_flight": 0, "waiting": 0, "written": 0, "failed": 1, "cancelled": 0}
        await asked.aclose()


async def test_a_picture_that_is_gone_is_told() -> None:
    async with FakeSolver() as fake:
        asked = summarizer(fake)
        with pytest.raises(ImageMissing):
            await asked.write(MESSAGES, SAMPLING, 800, {}.__getitem__)
        assert asked.ready
        assert fake.asked == []
        await asked.aclose()


async def test_the_deadline_is_its_own_and_three_misses_make_it_rest() -> None:
    clock = VirtualClock()
    async with FakeSolver() as fake:
        fake.hold()
        asked = summarizer(fake, deadline_s=7.0, clock=clock)
        for n in range(3):
            assert asked.ready
            task = asyncio.create_task(ask(asked))
            await fake.until(lambda n=n: len(fake.asked) == n + 1)  # type: ignore[misc]
            await clock.advance(7.0)
            with pytest.raises(EngineTimeout):
                await task
        assert (asked.state, asked.ready) == (EngineState.WEDGED, False)
        fake.let_go()
        await clock.advance(1.0)
        assert asked.ready
        await ask(asked)
        assert (asked.state, asked.ready) == (EngineState.UP, True)
        await asked.aclose()


async def test_one_that_is_away_is_asked_ever_less_often_up_to_once_a_minute() -> None:
    clock = VirtualClock()
    asked = ChatSummarizer("http://127.0.0.1:9", "m", {}, clock=clock)
    for rest in (1, 2, 4, 8, 16, 32, 60, 60):
        assert asked.ready
        with pytest.raises(EngineUnreachable):
            await ask(asked)
        assert asked.state is EngineState.DOWN
        await clock.advance(rest - 0.1)
        assert not asked.ready
        await clock.advance(0.2)
    await asked.aclose()


async def test_places_are_bounded_and_closing_frees_one() -> None:
    async with FakeSolver() as fake:
        fake.hold()
        asked = summarizer(fake, max_in_flight=1)
        first, second = (asyncio.create_task(ask(asked)) for _ in range(2))
        await fake.until(lambda: len(fake.asked) == 1)
        assert asked.statistics()["in_flight"] == asked.statistics()["waiting"] == 1
        first.cancel()
        await fake.until(lambda: len(fake.asked) == 2)
        fake.let_go()
        assert await second == Written("An answer.", "stop")
        assert fake.most_at_once == 1
        assert asked.statistics()["cancelled"] == 1
        await asked.aclose()
