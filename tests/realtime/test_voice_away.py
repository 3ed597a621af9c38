"""A speech server that is away: another voice speaks, or nobody; the text comes in any case."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speech_server import SpeechServer
from tests.realtime.talker import Talker

WORDS = "A red car has reached the bridge. A man walks by."
AT_ONCE = {"lead_s": 10.0}
"""What is sent does not wait until it is played."""


def says(seen: Seen) -> str:
    return f" {WORDS} {seen.tick}" if seen.continued else "<silence>"


def nobody() -> str:
    """An address at which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def answer(talker: Talker) -> tuple[str, int]:
    """Its text, and bytes of its sound."""
    before = len(talker.seen)
    await talker.ask("what is there?")
    await talker.send("response.create")
    done = await talker.until("response.done")
    assert done["response"]["status"] == "completed"
    sound = [e for e in talker.seen[before:] if e["type"] == "response.output_audio.delta"]
    (part,) = done["response"]["output"][0]["content"]
    return part["transcript"], sum(len(each["delta"]) for each in sound)


def notices(talker: Talker) -> list[str]:
    return [e["message"] for e in talker.of("vigil.notice") if e["code"] == "quality_reduced"]


def metric(text: str, sample: str) -> float:
    found = [line for line in text.splitlines() if line.startswith(f"vigil_{sample} ")]
    return float(found[0].rpartition(" ")[2])


async def test_the_systems_voice_stands_in_and_the_client_is_told_once_an_answer(tmp_path: Path) -> None:
    voice = {"bridge": "openai", "url": nobody(), "model": "tts", **AT_ONCE}
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, voice=voice) as served,
        Talker(served.url, opening={}) as talker,
    ):
        for number in range(2):
            text, sound = await answer(talker)
            assert text.startswith(WORDS) and sound > 100_000
            assert len(notices(talker)) == number + 1 and "speech_unreachable" in notices(talker)[-1]
        metrics = (await served.client.get("/metrics")).text
        health = (await served.client.get("/health")).json()
    assert metric(metrics, "voice_requests_total") == metric(metrics, "voice_requests_failed_total") >= 1
    assert (
        metric(metrics, "voice_stand_in_texts_total") >= 4
        and metric(metrics, "voice_texts_failed_total") == 0
    )
    assert metric(metrics, "voice_first_sound_seconds_count") == 2
    assert metric(metrics, 'notices_total{code="quality_reduced"}') == 2
    assert health["voice"] == "openai, with flite and espeak-ng to stand in"


async def test_without_another_voice_the_text_comes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    voice = {"bridge": "openai", "url": nobody(), "model": "tts", **AT_ONCE}
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, voice=voice) as served,
        Talker(served.url, opening={}) as talker,
    ):
        text, sound = await answer(talker)
        assert text.startswith(WORDS) and not sound
        assert "text alone" in notices(talker)[0]
        assert not talker.of("error")


async def test_a_server_that_breaks_off_in_the_middle_says_nothing_twice(tmp_path: Path) -> None:
    async with SpeechServer() as speech:
        speech.break_after = 2
        voice = {"bridge": "openai", "url": speech.url, "model": "tts", **AT_ONCE}
        async with (
            FakeEngine(says, pace=Pace()) as engine,
            Served(engine, tmp_path, voice=voice) as served,
            Talker(served.url, opening={}) as talker,
        ):
            text, sound = await answer(talker)
            assert text.startswith(WORDS) and sound and len(speech.asked) == 1
            assert "speech_unreachable" in notices(talker)[0]


@pytest.mark.parametrize(
    ("opening", "heard"),
    [
        ({}, False),
        ({"modalities": ["text"]}, False),
        ({"modalities": ["text", "audio"]}, True),
        ({"output_modalities": ["audio"]}, True),
    ],
)
async def test_a_voice_that_nobody_set_up_speaks_to_who_asks_for_it(
    tmp_path: Path, opening: dict[str, Any], heard: bool
) -> None:
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, voice=AT_ONCE) as served,
        Talker(served.url, opening=opening) as talker,
    ):
        await talker.ask("what is there?")
        await talker.send("response.create")
        done = await talker.until("response.done")
        (part,) = done["response"]["output"][0]["content"]
        assert (part["type"] == "output_audio") is heard
        assert bool(talker.of("response.output_audio.delta")) is heard
        (model,) = (await served.client.get("/v1/models")).json()["data"]
        assert model["audio_output"] == {"default": False}
        assert "flite" in (await served.client.get("/health")).json()["voice"]


async def test_a_session_may_begin_to_listen_in_the_middle(tmp_path: Path) -> None:
    """What began as text stays so; the next answer is spoken. So is a single one that asks for it."""
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, voice=AT_ONCE) as served,
        Talker(served.url, opening={}) as talker,
    ):
        for modalities, heard in ((None, False), (["audio"], True), (None, False)):
            before = len(talker.seen)
            await talker.ask("what is there?")
            await talker.send("response.create", response={"modalities": modalities} if modalities else {})
            await talker.until("response.done")
            kinds = {event["type"] for event in talker.seen[before:]}
            assert ("response.output_audio.delta" in kinds) is heard
        await talker.send("session.update", session={"modalities": ["text", "audio"]})
        text, sound = await answer(talker)
        assert text.startswith(WORDS) and sound


async def test_no_voice_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    async with (
        FakeEngine(says, pace=Pace()) as engine,
        Served(engine, tmp_path, voice=AT_ONCE) as served,
        Talker(served.url, opening={"modalities": ["text", "audio"]}) as talker,
    ):
        assert talker.session["modalities"] == ["text"]
        assert (await served.client.get("/v1/models")).json()["data"][0]["audio_output"] is None
        assert (await served.client.get("/health")).json()["voice"] is None
