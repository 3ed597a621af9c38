"""The whole service over a WebSocket, a scripted engine behind it: frames in, decisions and words out."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from memory.plan import WantPrewarm
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Pace, Script, Seen
from tests.fakes.pictures import jpeg
from tests.fakes.solver import FakeSolver
from tests.realtime import strictly
from tests.realtime.serving import eventually
from tests.realtime.talker import Talker, resumed

TICKS = {"include": ["vigil.tick"]}


def spots(seen: Seen) -> str:
    """Speaks at every third decision, and whenever words are asked for."""
    if seen.continued:
        return " You asked."
    return f"<response> A dog, {seen.tick}." if seen.tick % 3 == 2 else "<silence>"


def picture(n: int) -> bytes:
    return jpeg(n, 224, 224)


@asynccontextmanager
async def watching(
    folder: Path,
    script: Script = spots,
    opening: dict[str, Any] | None = None,
    pace: Pace = Pace(),  # noqa: B008 - immutable
    **settings: Any,
) -> AsyncIterator[tuple[FakeEngine, Served, Talker]]:
    settings = {"decision": {"gate": False}, **settings}
    async with (
        FakeEngine(script, pace=pace) as engine,
        Served(engine, folder, **settings) as served,
        Talker(served.url, opening=TICKS if opening is None else opening) as t,
    ):
        yield engine, served, t


def decisions(engine: FakeEngine) -> list[Seen]:
    return [chat for chat in engine.chats if chat.kind == "decide"]


def unpacked(message: dict[str, Any]) -> str:
    """A message with its pictures by their ids: whether their bytes ride along depends on the engine."""
    parts = message["content"]
    return str(parts if isinstance(parts, str) else [part.get("uuid", part) for part in parts])


async def see(t: Talker, n: int, **more: Any) -> dict[str, Any]:
    """Show the frame of second ``n``; the tick that decided on it."""
    await t.show(picture(n), frame_times_ms=[1000 * n], **more)
    return await t.until("vigil.tick", lambda tick: tick["media_time_ms"] == 1000 * n)


async def test_a_clip_is_watched(tmp_path: Path) -> None:
    """Frames alone, auto mode: silence is quiet, speech is text, and each tick is told as it was asked."""
    async with watching(tmp_path) as (_, _, t):
        capabilities = t.session["capabilities"]
        assert capabilities["required_input_modalities"] == []
        assert capabilities["optional_input_modalities"] == ["video"]
        assert capabilities["input_modes"] == ["reencode_context", "replace_latest_chunk"]
        assert capabilities["supports_multi_session"] is True and capabilities["chunk_period_ms"] == 1000
        assert t.session["auto_response"] is True and t.session["modalities"] == ["text"]
        await t.ask("what do you see?")
        ticks = [await see(t, n) for n in range(9)]
        spoken = [e["text"] for e in t.of("response.output_text.done")]
        assert len(spoken) >= 3 and all(words.startswith("A dog") for words in spoken)
        assert [tick["tick"] for tick in ticks] == sorted(tick["tick"] for tick in ticks)
        assert {tick["action"] for tick in ticks} == {"silence", "response"}
        assert all(tick["cached_tokens"] == tick["expected_cached_tokens"] for tick in ticks)
        assert ticks[-1]["cached_tokens"] > 0 and ticks[-1]["latency_ms"] > 0
        assert 1 <= len(t.of("response.listen")) <= 4
        figures = t.of("response.done")[-1]["vllm_omni"]["stage_metrics"]["0"]
        assert figures["num_tokens_in"] > figures["num_tokens_out"] > 0
        assert figures["vllm_ttft_ms"] > 0 and len(figures["vllm_itls_ms"]) > 0
        assert sum(strictly.check(e) for e in t.seen if not e["type"].startswith("session.")) > 20
        await t.send("session.close")
        assert await t.closed() == (1000, "client_close")


async def test_a_clock_that_is_hours_wrong_once_costs_one_append(tmp_path: Path) -> None:
    """Contract: the append is refused by name; neither frames before it nor after it are lost."""
    async with watching(tmp_path) as (_, _, t):
        await t.ask("what do you see?")
        await see(t, 0)
        await t.show(picture(1), frame_times_ms=[7_200_000], event_id="wrong")
        error = await t.error("frame_time_ahead")
        assert (error["event_id"], error["param"]) == ("wrong", "frame_times_ms")
        for n in (2, 3):
            assert (await see(t, n)).get("reason") != "late"
        await t.send("session.close")
        assert await t.closed() == (1000, "client_close")


async def test_ticks_are_told_only_to_whom_asks(tmp_path: Path) -> None:
    async with watching(tmp_path, ["<response> A dog."], opening={}) as (_, _, t):
        await t.show(picture(0), frame_times_ms=[0])
        await t.until("response.done")
        await t.answered()
        assert not t.of("vigil.tick")


async def test_the_gate_holds_until_the_first_question(tmp_path: Path) -> None:
    async with watching(tmp_path, decision={"gate": True}) as (engine, served, t):
        assert (await see(t, 0))["reason"] == "gated"
        assert not decisions(engine)
        await t.ask("and now?")
        await t.until("vigil.tick")
        assert (await see(t, 1))["reason"] != "gated"
        item_id = t.of("conversation.item.done")[0]["item"]["id"]
        await t.send("conversation.item.delete", item_id=item_id)
        assert (await t.until("conversation.item.deleted"))["item_id"] == item_id
        await eventually(lambda: "and now?" not in str(served.core.memory_of(t.session_id).query))


async def test_a_question_with_pictures_is_answered_in_turn_mode(tmp_path: Path) -> None:
    opening = {**TICKS, "extra_body": {"auto_response": False}}
    async with watching(tmp_path, opening=opening) as (engine, _, t):
        for n in range(3):
            await t.show(picture(n), frame_times_ms=[1000 * n])
        url = "data:image/png;base64," + base64.b64encode(picture(9)).decode()
        content = [{"type": "input_text", "text": "which is it?"}, {"type": "input_image", "image_url": url}]
        item = {"type": "message", "role": "user", "content": content}
        await t.send("conversation.item.create", item=item)
        added = (await t.until("conversation.item.done"))["item"]
        assert [part["type"] for part in added["content"]] == ["input_text", "input_image"]
        await t.answered()
        assert not decisions(engine) and not t.of("response.created")
        await t.send("response.create")
        done = await t.until("response.done")
        assert done["response"]["output"][0]["content"] == [{"type": "output_text", "text": "You asked."}]
        asked = decisions(engine)[-1]
        assert asked.continued and len(asked.images) == 4 and "which is it?" in str(asked.messages)


async def test_settings_of_one_response_hold_for_it_alone(tmp_path: Path) -> None:
    """Afterwards the prompt is byte for byte what it would have been, and no setting is left behind."""
    prompts: dict[bool, list[Any]] = {}
    own_settings = {"instructions": "Answer in verse.", "temperature": 0.1, "max_output_tokens": 7}
    async with watching(tmp_path) as (engine, served, _):
        for own in (False, True):
            async with Talker(served.url, opening={**TICKS, "temperature": 0.4}) as t:
                await see(t, 0)
                await t.ask("what is it?")
                await t.until("vigil.tick")
                await t.send("response.create", response=own_settings if own else {})
                await t.until("response.done")
                asked = decisions(engine)[-1]
                assert ("Answer in verse." in str(asked.messages)) is own
                assert asked.params["temperature"] == (0.1 if own else 0.4)
                assert (asked.params["max_tokens"] == 7) is own
                for n in (1, 2):
                    tick = await see(t, n)
                    assert tick["cached_tokens"] >= tick["expected_cached_tokens"] > 0
                    assert decisions(engine)[-1].params["temperature"] == 0.4
                assert decisions(engine)[-1].params["max_tokens"] != 7
                prompts[own] = [unpacked(message) for message in decisions(engine)[-1].messages]
    assert prompts[True] == prompts[False]


@pytest.mark.parametrize("asked", ["of the session", "of one response"])
async def test_an_answer_that_is_as_long_as_it_may_be_is_incomplete(tmp_path: Path, asked: str) -> None:
    """Contract: it is told as OpenAI tells it, kept as it was said, and no interruption to the model."""

    def tells(seen: Seen) -> str:
        return " A dog runs over the bridge." if seen.continued else "<silence>"

    opening = {**TICKS, **({"max_response_output_tokens": 4} if asked == "of the session" else {})}
    async with watching(tmp_path, tells, opening=opening) as (engine, _, t):
        await see(t, 0)
        await t.ask("what is it?")
        await t.until("vigil.tick")
        await t.send(
            "response.create", response={} if asked == "of the session" else {"max_output_tokens": 4}
        )
        done = (await t.until("response.done"))["response"]
        assert done["status"] == "incomplete"
        assert done["status_details"] == {"type": "incomplete", "reason": "max_output_tokens"}
        said = done["output"][0]["content"][0]["text"]
        assert (
            said and said != "A dog runs over the bridge." and "A dog runs over the bridge.".startswith(said)
        )
        tick = await t.until("vigil.tick")
        assert (tick["action"], tick["reason"]) == ("response", "max_output_tokens")
        await t.send("conversation.item.retrieve", item_id=done["output"][0]["id"])
        item = (await t.until("conversation.item.retrieved"))["item"]
        assert (item["status"], item["content"][0]["text"]) == ("incomplete", said)
        await see(t, 1)
        last = decisions(engine)[-1].messages[-3:]
        assert [message["role"] for message in last[:2]] == ["user", "assistant"]
        assert said in str(last[1]) and "interrupt" not in str(last[2])
        assert sum(strictly.check(e) for e in t.seen if not e["type"].startswith("session.")) > 10


async def test_an_answer_without_room_for_its_tag_speaks_against_nobody(tmp_path: Path) -> None:
    """A model whose answers a client cuts before their first tag is not ill: its speech is not stopped."""
    opening = {**TICKS, "max_response_output_tokens": 1}
    async with watching(tmp_path, lambda _: "<response> A dog.", opening=opening) as (_, _, t):
        await t.ask("what do you see?")
        ticks = [await see(t, n) for n in range(8)]
        assert {(tick["action"], tick["reason"]) for tick in ticks} == {("silence", "max_output_tokens")}
        assert not t.of("vigil.notice")


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ({"tools": [{"type": "function", "name": "f"}]}, "unsupported_tools"),
        ({"voice": "x"}, "unsupported_native_response_options"),
        ({"output_audio_format": "mp3"}, "unsupported_audio_format"),
        ({"instructions": "x" * 65_537}, "bad_event"),
        ({"output_modalities": ["video"]}, "unsupported_response_modality"),
    ],
)
async def test_what_a_response_cannot_have(tmp_path: Path, response: dict[str, Any], code: str) -> None:
    async with watching(tmp_path) as (_, _, t):
        await t.ask("what is it?")
        await t.send("response.create", event_id="e1", response=response)
        assert (await t.error(code))["event_id"] == "e1"


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({"tools": [{"type": "function", "name": "f"}]}, "unsupported_tools", "tools"),
        ({"extra_body": {"realtime_tools": [{"name": "f"}]}}, "unsupported_tools", "extra_body"),
        ({"cameras": ["left", "right"]}, "unsupported_cameras", "cameras"),
        ({"cameras": 2}, "unsupported_cameras", "cameras"),
        ({"extra_body": {"cameras": ["left", "right"]}}, "unsupported_cameras", "extra_body"),
        ({"persona": "nobody"}, "unknown_persona", "persona"),
        ({"modalities": ["video"]}, "unsupported_response_modality", "modalities"),
    ],
)
async def test_what_a_session_cannot_have(
    tmp_path: Path, body: dict[str, Any], code: str, param: str
) -> None:
    async with watching(tmp_path) as (_, served, t):
        await t.send("session.update", session=body)
        assert (await t.error(code))["param"] == param
        async with Talker(served.url) as other:
            await other.send("session.update", session=body)
            assert (await other.error(code))["param"] == param
        assert served.core.registry.statistics()["open"] == 1


async def test_audio_needs_a_speech_bridge(tmp_path: Path) -> None:
    async with watching(tmp_path) as (_, _, t):
        await t.speech(200)
        await t.error("invalid_input_modality")


async def test_an_answer_beside_the_conversation_is_not_remembered(tmp_path: Path) -> None:
    opening = {**TICKS, "extra_body": {"auto_response": False}}
    async with watching(tmp_path, opening=opening) as (_, served, t):
        for conversation in ("none", "auto"):
            await t.ask(f"{conversation}?")
            await t.send("response.create", response={"conversation": conversation})
            await t.until("response.done")
        memory = f"/v1/sessions/{t.session_id}/memory"
        while len(entries := (await served.client.get(memory)).json()["qa"]["entries"]) > 3:
            await t.answered()
        assert [entry["kind"] for entry in entries] == ["query", "query", "response"]


async def test_words_that_are_typed_piece_by_piece(tmp_path: Path) -> None:
    async with watching(tmp_path) as (engine, _, t):
        await t.send("input.text.append", text="what is ")
        await t.send("push_text", text="that?")
        await t.send("input_audio_buffer.commit", response_create=True)
        committed = await t.until("input_audio_buffer.committed")
        await t.until("response.done")
        assert "what is that?" in str(decisions(engine)[-1].messages)
        item = next(
            e["item"] for e in t.of("conversation.item.done") if e["item"]["id"] == committed["item_id"]
        )
        assert item["content"] == [{"type": "input_text", "text": "what is that?"}]


@pytest.mark.parametrize("how", ["response.cancel", "barge_in"])
async def test_a_cancel_ends_the_request_at_the_engine(tmp_path: Path, how: str) -> None:
    def long(seen: Seen) -> str:
        return "<response> " + "word " * 400 if seen.tick == 0 else "<silence>"

    async with watching(tmp_path, long, pace=Pace(per_token_s=0.02)) as (engine, _, t):
        await t.ask("talk")
        await t.until("response.output_text.delta")
        await t.send(how)
        done = await t.until("response.done")
        assert done["response"]["status"] == "cancelled"
        said = done["response"]["output"][0]["content"][0]["text"]
        assert said and said == "".join(e["delta"] for e in t.of("response.output_text.delta"))
        await eventually(lambda: decisions(engine)[0].disconnected)
        await see(t, 5)
        assert not [e for e in t.seen[t.seen.index(done) :] if "delta" in e["type"]]


async def test_questions_that_are_handed_on(tmp_path: Path) -> None:
    def asks(seen: Seen) -> str:
        return "<response> Let me look. <delegation> Who painted this?" if seen.tick == 0 else "<silence>"

    async with FakeSolver(["Vermeer."]) as solver:
        solvers = [{"name": "a", "url": solver.url, "model": solver.model}]
        async with watching(tmp_path, asks, solvers=solvers) as (_, _, t):
            await t.ask("what is it?")
            told = [await t.until("vigil.delegation") for _ in range(2)]
            assert [e["status"] for e in told] == ["started", "completed"]
            assert told[1]["question"] == "Who painted this?" and told[1]["text"] == "Vermeer."
            assert t.of("response.output_text.done")[0]["text"] == "Let me look."


async def test_an_engine_that_dies_is_told_and_the_session_lives(tmp_path: Path) -> None:
    async with watching(tmp_path) as (engine, _, t):
        await see(t, 0)
        engine.kill()
        await t.show(picture(1), frame_times_ms=[1000])
        assert (await t.until("vigil.notice"))["code"] == "engine_lost"
        await engine.restart()
        assert (await t.until("vigil.notice"))["code"] == "engine_recovered"
        assert (await see(t, 2))["frames"] >= 1


async def test_a_session_is_resumed_in_the_middle_of_a_response(tmp_path: Path) -> None:
    def long(seen: Seen) -> str:
        return "<response> " + " ".join(map(str, range(60))) if seen.tick == 0 else "<silence>"

    async with watching(tmp_path, long, pace=Pace(per_token_s=0.005)) as (_, served, t):
        await t.ask("count")
        await t.until("response.output_text.delta")
        t.drop()
        second = await resumed(served.url, t)
        done = await second.until("response.done")
        everything = [*t.seen, *second.seen]
        deltas = [e["delta"] for e in everything if e["type"] == "response.output_text.delta"]
        assert "".join(deltas) == " ".join(map(str, range(60)))
        assert done["response"]["status"] == "completed"
        second.drop()


async def test_an_update_says_when_the_model_is_told(tmp_path: Path) -> None:
    """Another persona and smaller pictures come with an early handover; what is refused changes nothing."""
    async with watching(tmp_path) as (engine, served, t):
        for n in range(4):
            last = await see(t, n)
        memory = served.memory(t.session_id)
        await t.send("session.update", session={"persona": "silent", "max_pixels": 65_536})
        updated = await t.until("session.updated", lambda event: "planned_tick" in event)
        assert updated["planned_tick"] == last["tick"] + 3
        n, old = 4, decisions(engine)[0].messages[0]
        while decisions(engine)[-1].messages[0] == old:
            await see(t, n)
            n += 1
            # The next window is warmed while no decision waits: this camera gives it the time.
            await eventually(lambda: not any(isinstance(w, WantPrewarm) for w in memory.wants()))
        assert decisions(engine)[-1].tick < updated["planned_tick"] + 3
        before = len(t.of("session.updated"))
        await t.send("session.update", session={"max_pixels": 7})
        assert (await t.until("error"))["error"]["code"] == "invalid_max_pixels"
        await t.send("session.update", session={})
        await t.until("session.updated", lambda event: "planned_tick" not in event)
        assert len(t.of("session.updated")) > before
