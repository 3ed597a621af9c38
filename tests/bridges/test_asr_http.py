"""Transcripts from an OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from bridges.asr import AsrError
from bridges.asr_http import IN_WORK, HttpTranscriber
from tests.fakes.clock import VirtualClock, settle

SAMPLES = np.full(1600, 0.5, np.float32)


def server(answer: Callable[[httpx.Request], Any], clock: VirtualClock | None = None) -> HttpTranscriber:
    return HttpTranscriber(
        "http://asr:1/v1/", "whisper", api_key="k", clock=clock, transport=httpx.MockTransport(answer)
    )


async def ask(asr: HttpTranscriber, final: bool = True, language: str | None = "de") -> str:
    return await asr.transcribe(SAMPLES, "s", language=language, final=final, deadline_s=5.0)


async def test_what_is_sent_and_what_comes_back() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        segments = [{"text": " Guten Tag", "avg_logprob": -0.2}, {"text": "x", "avg_logprob": -3.0}]
        return httpx.Response(200, json={"text": "Guten Tag x", "segments": segments})

    asr = server(answer)
    assert await ask(asr) == "Guten Tag"
    (request,) = seen
    body = request.content
    assert request.url == "http://asr:1/v1/audio/transcriptions"
    assert request.headers["authorization"] == "Bearer k"
    for field in (b'name="model"\r\n\r\nwhisper', b'name="language"\r\n\r\nde', b"verbose_json"):
        assert field in body
    with wave.open(io.BytesIO(body[body.index(b"RIFF") :])) as file:
        assert (file.getframerate(), file.getnframes()) == (16000, 1600)
    await asr.aclose()


async def test_a_plain_answer_is_taken_at_its_word() -> None:
    asr = server(lambda _: httpx.Response(200, json={"text": "hello [noise]"}))
    assert await ask(asr, language=None) == "hello"
    await asr.aclose()


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (httpx.Response(500), "asr_failed"),
        (httpx.Response(200, text="no json"), "asr_failed"),
        (httpx.Response(200, json=["list"]), "asr_failed"),
        (httpx.Response(200, json={"text": None}), "asr_failed"),
        (httpx.ConnectError("refused"), "asr_worker_lost"),
    ],
)
async def test_faults_have_codes(reply: Any, code: str) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        if isinstance(reply, Exception):
            raise reply
        return reply

    asr = server(answer)
    with pytest.raises(AsrError) as error:
        await ask(asr)
    assert error.value.code == code and asr.statistics()["failed"] == 1
    await asr.aclose()


async def test_deadlines_and_load() -> None:
    clock, gate = VirtualClock(), asyncio.Event()

    async def answer(_: httpx.Request) -> httpx.Response:
        await gate.wait()
        return httpx.Response(200, json={"text": "late"})

    asr = server(answer, clock)
    asking = [asyncio.create_task(ask(asr)) for _ in range(IN_WORK + 1)]
    await settle()
    assert asr.statistics()["in_work"] == IN_WORK and asr.statistics()["waiting"] == 1
    with pytest.raises(AsrError, match="asr_overloaded"):
        await ask(asr, final=False)
    await clock.advance(5.0)
    done = await asyncio.gather(*asking, return_exceptions=True)
    assert {each.code for each in done if isinstance(each, AsrError)} == {"asr_timeout"}
    assert asr.statistics()["in_work"] == 0
    await asr.aclose()
