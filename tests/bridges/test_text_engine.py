"""Plain chat goes through as it is, with deadlines and typed errors."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import orjson
import pytest

from bridges.engine import (
    Deadlines,
    EngineBroken,
    EngineRefused,
    EngineServerError,
    EngineTimeout,
    EngineUnreachable,
)
from bridges.text_engine import TextEngine
from tests.fakes.engine import FakeEngine, Fault

BODY = {"model": "stand-in", "messages": [{"role": "user", "content": "hello"}]}


async def streamed(texts: TextEngine) -> list[bytes]:
    async with aclosing(texts.stream({**BODY, "stream": True})) as payloads:
        return [payload async for payload in payloads]


async def test_an_answer_whole_and_streamed() -> None:
    async with FakeEngine(["plain words"]) as engine:
        texts = TextEngine(engine.url + "/v1/")
        whole = await texts.complete(BODY)
        assert whole["choices"][0]["message"]["content"] == "plain words"
        payloads = await streamed(texts)
        assert payloads[-1] == b"[DONE]"
        words = [orjson.loads(p)["choices"] for p in payloads[:-1]]
        assert "".join(c["delta"].get("content") or "" for choices in words for c in choices) == "plain words"
        await texts.aclose()


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(status=400, message="no"), EngineRefused),
        (Fault(status=500, message="oh"), EngineServerError),
        (Fault(status=503, message="busy"), EngineServerError),
        (Fault(drop=True), EngineUnreachable),
        (Fault(hang=True), EngineTimeout),
    ],
)
async def test_faults_are_typed(fault: Fault, error: type[Exception]) -> None:
    for stream in (False, True):
        async with FakeEngine() as engine:
            engine.faults.append(replace(fault))
            texts = TextEngine(engine.url, deadlines=Deadlines(0.3, 0.3))
            with pytest.raises(error):
                await (streamed(texts) if stream else texts.complete(BODY))
            await texts.aclose()


async def test_a_stream_that_breaks_after_words_says_so() -> None:
    async with FakeEngine(["one two three four five"]) as engine:
        engine.faults.append(Fault(cut_after=2))
        texts = TextEngine(engine.url)
        with pytest.raises(EngineBroken):
            await streamed(texts)
        await texts.aclose()


async def test_an_engine_that_is_not_there() -> None:
    async with FakeEngine() as engine:
        url = engine.url
    texts = TextEngine(url)
    with pytest.raises(EngineUnreachable):
        await texts.complete(BODY)
    await texts.aclose()
