"""Cases D: what one response looks like on the wire."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.session.backend import Action, AudioDelta, Decision, Failed, Metrics, TextDelta, TurnEnd
from orchestrator.session.fence import Fence
from tests.realtime import strictly
from tests.realtime.serving import Scripted, eventually
from tests.realtime.talker import Talker
from tests.realtime.test_turns import begin_response

CHUNK = bytes(48000)  # a second at 24 kHz


async def spoken(server: Scripted, t: Talker) -> str:
    """A whole spoken response of three seconds, the middle one without words."""
    response_id = await begin_response(server, t)
    fence = server.asked()[-1]
    server.backend().emit(
        Decision(fence, 1, Action.RESPONSE, 0.9),
        TextDelta(fence, "one "),
        AudioDelta(fence, CHUNK, 24000, ((4, 1000),)),
        AudioDelta(fence, CHUNK, 24000, ((4, 1000),)),
        TextDelta(fence, "two"),
        AudioDelta(fence, CHUNK, 24000, ((4, 1000), (7, 3000))),
        TurnEnd(fence),
    )
    await t.until("rate_limits.updated")
    return response_id


async def test_case_40_the_events_of_a_spoken_response() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        start = len(t.seen)
        response_id = await spoken(server, t)
        kinds = [e["type"] for e in t.seen[start:] if e["type"].startswith("response.")]
        deltas = ["response.output_audio.delta", "response.output_audio_transcript.delta"]
        audio = t.of("response.output_audio.delta")
        words = t.of("response.output_audio_transcript.delta")
        assert [k for k in kinds if k in deltas] == deltas * 3
        assert [w["delta"] for w in words] == ["one ", "", "two"]
        assert [a["metadata"]["audio_duration_ms"] for a in audio] == [1000, 2000, 3000]
        assert all(base64.b64decode(a["delta"]) == CHUNK and a["sample_rate_hz"] == 24000 for a in audio)
        assert len(t.of("response.output_audio.done")) == 1
        (done,) = t.of("response.output_audio_transcript.done")
        assert done["transcript"] == "one two"
        assert len(t.of("response.speak")) == 1
        assert kinds.index("response.speak") < kinds.index("response.output_audio.delta")
        assert kinds[:3] == ["response.created", "response.output_item.added", "response.content_part.added"]
        assert kinds[-3:] == ["response.content_part.done", "response.output_item.done", "response.done"]
        assert t.types[-2:] == ["response.done", "rate_limits.updated"]
        assert {e["response_id"] for e in t.seen if "response_id" in e} == {response_id}


@pytest.mark.parametrize("how", ["header", "subprotocol", None])
async def test_case_41_one_dialect_in_one_connection(how: str | None) -> None:
    asked: Mapping[str, Any] = {
        "header": {"headers": {"OpenAI-Beta": "realtime=v1"}},
        "subprotocol": {"subprotocols": ["realtime", "openai-beta.realtime-v1"]},
    }.get(how or "", {})
    async with Scripted() as server, Talker(server.url, opening={}, **asked) as t:
        await spoken(server, t)
        await t.ask("in words?")
        await t.send("response.create", response={"modalities": ["text"]})
        await t.until("response.created")
        await t.answered()
        fence = server.asked()[-1]
        server.backend().emit(TextDelta(fence, "words"), TurnEnd(fence))
        await t.until("response.done")
        old = {t_ for t_ in t.types if t_.startswith(("response.audio", "response.text"))}
        new = {t_ for t_ in t.types if t_.startswith("response.output_") and "item" not in t_}
        assert bool(old) is (how is not None) and bool(new) is (how is None)
        assert len(old or new) == 6
        parts = {part["type"] for e in t.seen if "item" in e for part in e["item"]["content"]}
        assert not parts & ({"output_text", "output_audio"} if how else {"text", "audio"})


@pytest.mark.parametrize("rate", [8000, 11025])
@pytest.mark.parametrize("where", ["session", "response"])
async def test_telephone_sound_is_whole(where: str, rate: int) -> None:
    """In its own rate every chunk counts, to the last sample; a format of one response is that one's only."""
    wanted = {"audio": {"output": {"format": {"type": "audio/pcmu", "rate": rate}}}}
    opening = wanted if where == "session" else {}
    async with Scripted() as server, Talker(server.url, opening=opening) as t:
        await t.ask("hello")
        await t.send("response.create", response=wanted if where == "response" else {})
        await eventually(server.asked)
        fence = server.asked()[-1]
        for _ in range(3):
            server.backend().emit(AudioDelta(fence, CHUNK, 24000, ()))
        server.backend().emit(TextDelta(fence, "bye"), TurnEnd(fence))
        await t.until("response.done")
        deltas = t.of("response.output_audio.delta")
        assert {(d["format"], d["sample_rate_hz"]) for d in deltas} == {("g711_ulaw", rate)}
        assert abs(sum(len(base64.b64decode(d["delta"])) for d in deltas) - 3 * rate) <= 1
        assert deltas[-1]["metadata"]["audio_duration_ms"] == 3000
        words = t.of("response.output_audio_transcript.delta")
        assert len(words) == len(deltas) and "".join(w["delta"] for w in words) == "bye"
        await t.send("playback.ack", played_ms=3000)
        await spoken(server, t)
        last = t.of("response.output_audio.delta")[-1]
        assert last["format"] == ("g711_ulaw" if where == "session" else "pcm16")


async def test_a_format_that_no_response_can_have() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.ask("hello")
        for body in ({"output_audio_format": "mp3"}, {"audio": {"output": {"format": {"type": "opus"}}}}):
            await t.send("response.create", response=body, event_id="e")
            assert (await t.error("unsupported_audio_format"))["event_id"] == "e"


async def test_case_42_text_alone_has_text_events() -> None:
    async with Scripted() as server, Talker(server.url, opening={"modalities": ["text"]}) as t:
        await begin_response(server, t)
        (fence,) = server.asked()
        server.backend().emit(TextDelta(fence, "a "), TextDelta(fence, "b"), TurnEnd(fence))
        done = await t.until("response.done")
        assert [e["delta"] for e in t.of("response.output_text.delta")] == ["a ", "b"]
        assert t.of("response.output_text.done")[0]["text"] == "a b"
        assert done["response"]["output"][0]["content"] == [{"type": "output_text", "text": "a b"}]
        assert not [k for k in t.types if "audio" in k and k.startswith("response.")]


async def test_case_43_one_id_of_the_item_everywhere_and_snapshots_that_do_not_grow() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await spoken(server, t)
        item_id = f"item_{response_id}"
        named = [e["item_id"] for e in t.seen if e.get("response_id") == response_id and "item_id" in e]
        assert named and set(named) == {item_id}
        creation = ("conversation.item.added", "conversation.item.created", "response.output_item.added")
        items = [e["item"] for e in t.seen if e["type"] in creation]
        created = [item for item in items if item["role"] == "assistant"]
        assert len(created) == 3 and all(i["id"] == item_id and i["content"] == [] for i in created)
        await t.send("conversation.item.retrieve", item_id=item_id)
        item = (await t.until("conversation.item.retrieved"))["item"]
        assert item["content"][0]["transcript"] == "one two"
        await t.send("conversation.item.retrieve", item_id="item_x")
        await t.error("item_not_found")
        await t.send("conversation.item.retrieve")
        await t.error("missing_item_id")


async def test_case_44_the_sdks_types_take_every_event_of_theirs() -> None:
    """A spoken response, one in words, a cancelled one, items, errors: strictly, each into its class."""
    opening = {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 24000}}}, "metadata": {"a": "b"}}
    async with Scripted() as server, Talker(server.url, opening=opening) as t:
        await spoken(server, t)
        await t.send("playback.ack", played_ms=3000)
        await t.until("playback.acknowledged")
        for end in ("words", "cancel"):
            await t.ask("in words?")
            await t.send("response.create", response={"modalities": ["text"], "metadata": {"n": "1"}})
            await t.until("response.created")
            await t.answered()
            fence = server.asked()[-1]
            server.backend().emit(TextDelta(fence, "words"))
            await t.until("response.output_text.delta")
            if end == "cancel":
                await t.send("response.cancel")
            else:
                server.backend().emit(TurnEnd(fence))
            await t.until("response.done")
        assert t.seen[-1]["response"]["metadata"] == {"n": "1"}
        assert t.seen[-1]["response"]["status_details"]["reason"] == "client_cancelled"
        await t.send("conversation.item.truncate", item_id="item_x", content_index=0, audio_end_ms=1)
        await t.until("error")
        await t.send("input_audio_buffer.clear")
        await t.answered()
        assert sum(map(strictly.check, t.seen)) > 40


async def test_case_45_a_backend_that_fails_says_so_once() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await begin_response(server, t)
        (fence,) = server.asked()
        server.backend().emit(
            TextDelta(fence, "half"),
            Failed(fence, "engine_error", "it broke"),
            TurnEnd(fence, "failed", "engine_error"),
        )
        error = await t.error("engine_error")
        assert error["type"] == "server_error"
        done = await t.until("response.done")
        assert done["response"]["id"] == response_id and done["response"]["status"] == "failed"
        server.backend().emit(Failed(fence, "engine_dead", "for good", fatal=True))
        await t.error("engine_dead")
        assert (await t.until("session.expired"))["reason"] == "request_cleanup"
        assert await t.closed() == (1000, "request_cleanup")


async def test_every_event_says_its_epoch_and_turn_and_figures_reach_the_end() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        (fence,) = server.asked()
        server.backend().emit(
            TextDelta(fence, "x"),
            Metrics(fence, {"0": {"num_tokens_in": 5, "vllm_ttft_ms": 2.0}}),
            TurnEnd(fence),
        )
        done = await t.until("response.done")
        assert done["vllm_omni"]["stage_metrics"]["0"]["num_tokens_in"] == 5
        of_it = [e for e in t.seen if e["type"].startswith("response.")]
        assert all(Fence(e["duplex"]["epoch"], e["duplex"]["turn_id"]) == fence for e in of_it)
        seqs = [e["server_event_seq"] for e in t.seen if "server_event_seq" in e]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len({e["event_id"] for e in t.seen}) == len(t.seen)
