"""Messages that hold sound: items of their own, beside what the user is saying into the microphone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.session.backend import AudioDelta, TextDelta, TurnEnd
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import ServerFault
from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker, pcm16


def sound(ms: int = 800, *, loud: bool = True) -> dict[str, Any]:
    return {"type": "input_audio", "audio": pcm16(ms, loud=loud)}


async def say(t: Talker, item_id: str, *content: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """Create a user's message; the events up to everything having been executed."""
    item = {"id": item_id, "type": "message", "role": "user", "content": list(content)}
    await t.send("conversation.item.create", item=item, event_id=f"e-{item_id}", **more)
    return await t.answered()


async def test_silent_parts_are_skipped_and_the_message_is_kept() -> None:
    """Also while the user is in the middle of an item, which goes on."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        events = await say(t, "quiet", sound(loud=False))
        assert [e["type"].rpartition(".")[2] for e in events] == ["added", "created", "done"]
        assert events[-1]["item"]["content"] == [{"type": "input_audio"}]
        await t.send("response.create")
        await t.error("response_create_without_input")
        await t.speech(800)
        started = await t.until("input_audio_buffer.speech_started")
        assert {e["item"]["id"] for e in await say(t, "hush", sound(loud=False))} == {"hush"}
        await t.send("input_audio_buffer.commit", response_create=True)
        committed = await t.until("input_audio_buffer.committed")
        assert committed["item_id"] == started["item_id"]
        await eventually(server.asked)
        assert server.heard() == 12800 and not t.of("error")[1:]


async def test_a_spoken_message_is_no_part_of_what_is_being_said() -> None:
    """Each starts, stops and is committed under its own id, with its own sound."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.speech(1000)
        mine = (await t.until("input_audio_buffer.speech_started"))["item_id"]
        await say(t, "note", sound(800))
        await t.speech(1000)
        await t.send("input_audio_buffer.commit", response_create=True)
        await eventually(server.asked)
        await t.answered()
        for name in ("speech_started", "speech_stopped", "committed"):
            assert [e["item_id"] for e in t.of(f"input_audio_buffer.{name}")] == (
                [mine, "note"] if name == "speech_started" else ["note", mine]
            )
        assert server.heard() == 16 * 2800


async def test_what_is_being_said_survives_nothing_that_drops_it() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.speech(1000)
        await say(t, "note", sound(800))
        await t.send("input_audio_buffer.clear")
        await t.answered()
        await t.send("input_audio_buffer.commit")
        await t.error("input_audio_buffer_empty")
        await eventually(lambda: server.pending_bytes() == 0)


@pytest.mark.parametrize("auto", [False, True])
async def test_a_refused_message_is_one_error_and_leaves_nothing(auto: bool) -> None:
    """Its id is taken, or its place unknown. What is said next is committed as ever."""
    capabilities = replace(VOICE, auto_response=True, holds_turn_input=False) if auto else VOICE
    async with Scripted(capabilities) as server, Talker(server.url, opening={}) as t:
        await t.ask("hello", id="X")
        await t.until("conversation.item.done")
        (refused,) = await say(t, "X", sound(), sound())
        assert (refused["error"]["code"], refused["error"]["event_id"]) == ("bad_event", "e-X")
        (refused,) = await say(t, "Y", sound(), previous_item_id="nobody")
        assert (refused["error"]["code"], refused["error"]["event_id"]) == ("item_not_found", "e-Y")
        assert server.pending_bytes() == 0 and not server.appended()
        await t.speech(800)
        await t.send("input_audio_buffer.commit")
        committed = await t.until("input_audio_buffer.committed")
        assert committed["item_id"] not in ("X", "Y") and len(t.of("error")) == 2


async def test_a_spoken_message_takes_its_place() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for name in ("one", "two"):
            await t.ask(name, id=name)
            await t.until("conversation.item.done")
        events = await say(t, "between", sound(), previous_item_id="one")
        places = [e["previous_item_id"] for e in events if "previous_item_id" in e]
        assert places and set(places) == {"one"}


async def test_nothing_follows_a_message_that_nobody_has_seen() -> None:
    """A message has its place from when it is told on: not while the model has not taken it yet."""
    auto = replace(VOICE, auto_response=True, holds_turn_input=False)
    async with Scripted(auto) as server, Talker(server.url, opening={}) as t:
        server.backend().hold("tell")
        await t.ask("hello", id="X")
        await eventually(lambda: "tell" in server.backend().methods())
        server.backend().emit(TextDelta(Fence(), "I say"), AudioDelta(Fence(), bytes(480), 24000, ()))
        answer = await t.until("conversation.item.added")
        assert answer["previous_item_id"] is None
        assert (await say(t, "X", sound()))[-1]["error"]["param"] == "item.id"
        server.backend().free("tell")
        added = await t.until("conversation.item.added")
        assert (added["item"]["id"], added["previous_item_id"]) == ("X", answer["item"]["id"])


async def test_a_message_that_the_model_refuses_is_no_item() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        server.backend().fail("tell", ServerFault("no", code="engine_error"))
        await t.ask("hello", id="X", status="completed")
        await t.error("engine_error")
        await t.send("conversation.item.retrieve", item_id="X")
        await t.error("item_not_found")
        await t.ask("hello", id="X")
        assert (await t.until("conversation.item.added"))["previous_item_id"] is None


async def test_a_text_response_has_no_sound_whatever_the_model_does() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.ask("in words?")
        await t.send("response.create", response={"modalities": ["text"]})
        await eventually(server.asked)
        fence = server.asked()[-1]
        sounds = AudioDelta(fence, bytes(480), 24000, ())
        server.backend().emit(sounds, TextDelta(fence, "words"), sounds, TurnEnd(fence))
        done = await t.until("response.done")
        assert done["response"]["output"][0]["content"] == [{"type": "output_text", "text": "words"}]
        assert not t.of("response.output_audio.delta")
        assert done["vllm_omni"]["playback"]["generated_ms"] == 0
