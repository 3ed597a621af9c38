"""A model that only writes, given a voice, over real sockets: audio, transcript, ledger, barge-in."""

from __future__ import annotations

import asyncio
import base64
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Seen
from tests.fakes.speaker import CHAR_MS, ScriptedSpeaker
from tests.realtime import strictly
from tests.realtime.omni import DuplexClient, SessionConfig
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker
from tests.realtime.test_duplex_client import AT_ONCE, ask, at, next_response
from tests.realtime.test_openai_sdk import Conversation

WORDS = "I see a dog, and behind it another one."
LONG = "A long story, that goes on and on, and never seems to come to its end at all, " * 3


def says(seen: Seen) -> str:
    return f" {WORDS}" if seen.continued else "<silence>"


def rambles(seen: Seen) -> str:
    return f" {LONG}" if seen.continued else "<silence>"


@asynccontextmanager
async def spoken(
    folder: Path, script: Any = says
) -> AsyncIterator[tuple[FakeEngine, Served, ScriptedSpeaker]]:
    speaker = ScriptedSpeaker()
    async with (
        FakeEngine(script, pace=Pace()) as engine,
        Served(engine, folder, speaker=speaker) as served,
    ):
        yield engine, served, speaker


def sound_ms(events: list[dict[str, Any]]) -> int:
    return sum(len(base64.b64decode(e["delta"])) // 48 for e in events)


async def test_a_text_model_answers_in_audio_with_its_transcript(tmp_path: Path) -> None:
    async with spoken(tmp_path) as (_, served, speaker), Talker(served.url, opening={}) as t:
        assert t.session["modalities"] == ["text", "audio"]
        assert t.session["capabilities"]["optional_input_modalities"] == ["video"], "it has no ears"
        await t.ask("what is there?")
        await t.send("response.create")
        done = await t.until("response.done")
        assert done["response"]["status"] == "completed"
        chunks, words = t.of("response.output_audio.delta"), t.of("response.output_audio_transcript.delta")
        assert "".join(e["delta"] for e in words) == WORDS == speaker.texts[0]
        assert len(chunks) == len(words) and sound_ms(chunks) == CHAR_MS * len(WORDS)
        assert t.of("response.output_audio_transcript.done")[0]["transcript"] == WORDS
        assert not t.of("response.output_text.delta")
        ends = [e["metadata"]["audio_duration_ms"] for e in chunks]
        assert ends == sorted(ends) and ends[-1] == CHAR_MS * len(WORDS)
        assert sum(strictly.check(e) for e in t.seen if not e["type"].startswith("session.")) > 10


async def test_one_response_may_be_text_alone(tmp_path: Path) -> None:
    async with spoken(tmp_path) as (_, served, _), Talker(served.url, opening={}) as t:
        await t.ask("what is there?")
        await t.send("response.create", response={"output_modalities": ["text"]})
        await t.until("response.done")
        assert not t.of("response.output_audio.delta")
        assert "".join(e["delta"] for e in t.of("response.output_text.delta")) == WORDS


async def test_acks_move_the_ledger_and_the_whole_is_heard(tmp_path: Path) -> None:
    async with spoken(tmp_path) as (_, served, _), Talker(served.url, opening={}) as t:
        await t.ask("what is there?")
        await t.send("response.create")
        done = await t.until("response.done")
        total = CHAR_MS * len(WORDS)
        await t.send("playback.ack", response_id=done["response_id"], played_ms=total)
        told = await t.until("playback.acknowledged")
        assert told["event"]["playback"] == {
            "generated_ms": total, "sent_ms": total, "played_ms": total, "committed_ms": total,
        }  # fmt: skip
        memory = served.memory(t.session_id)
        assert any(WORDS in line.text for line in memory.parts.qa.recent)
        assert not memory.parts.open.interruptions


async def test_a_barge_in_drops_what_was_not_heard_and_keeps_what_was(tmp_path: Path) -> None:
    async with spoken(tmp_path, rambles) as (engine, served, speaker), Talker(served.url, opening={}) as t:
        await t.ask("tell me a story")
        await t.send("response.create")
        await t.until("response.output_audio.delta", lambda e: e["metadata"]["audio_duration_ms"] >= 1000)
        name = t.of("response.created")[0]["response_id"]
        await t.send("playback.ack", response_id=name, played_ms=700)
        await t.send("response.cancel")
        done = await t.until("response.done")
        assert done["response"]["status"] == "cancelled"
        heard = LONG[: 700 // CHAR_MS].rstrip()
        (part,) = done["response"]["output"][0]["content"]
        assert part["transcript"] == heard
        before = len(t.of("response.output_audio.delta"))
        await eventually(lambda: speaker.cut == 1)
        history = served.memory(t.session_id).parts.qa
        await eventually(lambda: [line.text for line in history.recent if line.kind != "query"] == [heard])
        await t.ask("and now?")
        await t.send("response.create")
        await t.until("response.output_audio.delta")
        assert len(t.of("response.output_audio.delta")) == before + 1
        await t.send("response.cancel")
        await t.until("response.done")
        asked = str([chat for chat in engine.chats if chat.continued][-1].messages)
        assert asked.count("heard only") == 1 and heard in asked


async def test_the_openai_client_hears_it_and_acknowledges_nothing(tmp_path: Path) -> None:
    async with spoken(tmp_path) as (engine, served, _):
        client = AsyncOpenAI(api_key="none needed", base_url=f"{served.url}/v1")
        async with client.realtime.connect(model=engine.model) as connection:
            talk = Conversation(connection)
            await talk.until("session.created")
            await talk.ask("What do you see?")
            await connection.response.create()
            done = await talk.until("response.done")
            assert done.response.status == "completed"
            assert done.response.output[0].content[0].transcript == WORDS
            deltas = [e for e in talk.seen if e.type == "response.output_audio.delta"]
            assert sum(len(base64.b64decode(e.delta)) for e in deltas) == 48 * CHAR_MS * len(WORDS)
            (session,) = served.core.registry.sessions()
            assert session.view()["playback_commit_policy"] == "wall_clock"


async def test_the_duplex_client_hears_it(tmp_path: Path) -> None:
    async with (
        spoken(tmp_path) as (engine, served, _),
        DuplexClient(at(served.url), model=engine.model, config=SessionConfig(), reconnect=AT_ONCE) as client,
    ):
        await ask(client, "What do you see?")
        await client.send({"type": "response.create"})
        response = await next_response(client)
        chunks = [chunk async for chunk in response.audio()]
        assert sum(map(len, chunks)) == 48 * CHAR_MS * len(WORDS)
        assert response.transcript == WORDS
        await client.ack_playback(response.played_ms)
        (session,) = served.core.registry.sessions()
        await eventually(lambda: session.view()["playback"]["played_ms"] == CHAR_MS * len(WORDS))


async def test_talk_reads_what_others_hear(tmp_path: Path) -> None:
    async with spoken(tmp_path) as (_, served, speaker):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orchestrator.cli", "talk", "--server", served.url),
            stdin=PIPE, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(b"what is there?\n"), 150)
        assert process.returncode == 0, err
        assert WORDS in out.decode() and not speaker.texts
