"""Cases A: how a connection begins and how a session is configured, over real sockets."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest
from websockets.exceptions import InvalidStatus

from orchestrator.api.context import RealtimeLimits
from orchestrator.session.backend import AudioDelta, Capabilities, SessionConfig
from orchestrator.wire.errors import InvalidRequest, VigilError
from tests.realtime import strictly
from tests.realtime.serving import MODEL, VOICE, Scripted, eventually
from tests.realtime.talker import Talker


async def test_case_1_session_update_opens_and_is_numbered() -> None:
    async with Scripted() as server, Talker(server.url, query=f"duplex=1&model={MODEL}&autostart=0") as t:
        await t.send("session.update", session={"instructions": "hi", "id": "mine"})
        created, updated = await t.next(), await t.next()
        assert created["type"] == "session.created" and "server_event_seq" not in created
        assert created["session"]["id"].startswith("duplex-")
        assert created["session"]["instructions"] == "hi"
        assert updated["type"] == "session.updated" and updated["server_event_seq"] == 1
        assert updated["session"]["id"] == created["session"]["id"]
        assert created["resume_token"] and created["attachment_generation"] == 1


@pytest.mark.parametrize("auto", [False, True])
async def test_case_2_a_model_in_the_address_opens_unprompted(auto: bool) -> None:
    """The profile's own mode holds: native profiles wait to be asked, replay profiles don't."""
    capabilities = Capabilities(
        chunk_period_ms=1000, optional_input_modalities=("audio", "video"), auto_response=auto
    )
    async with Scripted(capabilities) as server, Talker(server.url, query=f"model={MODEL}") as t:
        created = await t.opened()
        assert len(created["session"]["capabilities"]) == 40
        assert created["session"]["auto_response"] is auto
        assert created["session"]["playback_commit_policy"] == "wall_clock"
        await t.speech(1000)
        await t.send("input_audio_buffer.commit")
        events = [e["type"] for e in await t.answered()]
        assert "input_audio_buffer.committed" in events and "response.created" not in events


@pytest.mark.parametrize(
    "query", ["", "resume=1&model=scripted", "model=scripted&autostart=off", "autostart=0"]
)
async def test_case_3_a_silent_client_is_not_waited_for(query: str) -> None:
    async with Scripted(realtime=RealtimeLimits(first_message_s=0.1)) as server:
        async with Talker(server.url, query=query) as t:
            await t.error("config_timeout")
            assert await t.closed() == (1008, "config_timeout")
        assert server.registry.statistics()["slots"] == 0


@pytest.mark.parametrize(
    ("frame", "code"),
    [("{not json", "invalid_json"), ("[1]", "bad_event"), ('"x"', "bad_event"), (b"\x01", "bad_event")],
)
async def test_case_4_a_first_frame_that_says_nothing(frame: str | bytes, code: str) -> None:
    async with Scripted() as server, Talker(server.url) as t:
        await t.raw(frame)
        error = await t.error(code)
        assert error["type"] == "invalid_request_error" and t.seen[-1]["event_id"].startswith("event_")
        assert await t.closed() == (1008, code)
        assert t.types == ["error"] and not server.backends


async def test_case_5_another_command_first_opens_the_default_session() -> None:
    async with Scripted() as server, Talker(server.url) as t:
        await t.send("input_audio_buffer.clear")
        await t.until("input_audio_buffer.cleared")
        assert t.types == ["session.created", "session.updated", "input_audio_buffer.cleared"]
        assert t.seen[0]["session"]["model"] == MODEL


@pytest.mark.parametrize("first", [{"type": "no.such.event", "event_id": "e1"}, {"event_id": "e1"}])
async def test_case_6_even_one_that_nobody_knows(first: dict[str, Any]) -> None:
    async with Scripted() as server, Talker(server.url) as t:
        await t.raw(orjson.dumps(first).decode())
        error = await t.error("unknown_event" if "type" in first else "bad_event")
        assert error["event_id"] == "e1"
        assert t.types == ["session.created", "session.updated", "error"]
        await t.answered()


@pytest.mark.parametrize("name", ["session.create", "session.update"])
async def test_case_6_a_body_may_be_the_event_itself(name: str) -> None:
    async with Scripted() as server, Talker(server.url) as t:
        await t.send(name, instructions="flat", event_id="e1")
        await t.opened()
        assert t.session["instructions"] == "flat" and "event_id" not in t.session


async def test_case_7_formats_are_checked_at_open_and_in_an_update() -> None:
    async with Scripted() as server:
        async with Talker(server.url) as t:
            await t.send("session.update", event_id="e1", session={"input_audio_format": "mp3"})
            error = await t.error("invalid_session_config")
            assert (error["param"], error["event_id"]) == ("input_audio_format", "e1")
            assert await t.closed() == (1008, "invalid_session_config")
        assert server.registry.statistics()["slots"] == 0
        async with Talker(server.url, opening={}) as t:
            patch = {"input_audio_format": "mp3", "instructions": "not this"}
            await t.send("session.update", event_id="e2", session=patch)
            assert (await t.error("unsupported_audio_format"))["event_id"] == "e2"
            await t.send("session.update", session={"temperature": 0.5})
            updated = await t.until("session.updated")
            assert updated["session"]["instructions"] is None
            assert updated["session"]["input_audio_format"] == "pcm16"


async def test_a_refused_update_leaves_the_formats_of_appends_too() -> None:
    """All or nothing: what comes next is decoded as before, and a later update builds on that."""
    voice = replace(VOICE, auto_response=True, holds_turn_input=False)
    async with Scripted(voice) as server, Talker(server.url, opening={}) as t:
        server.backend().fail("update", InvalidRequest("not now", code="instructions_update_unsupported"))
        phone = {"input_audio_format": "g711_ulaw", "sample_rate_hz": 8000}
        await t.send("session.update", session={**phone, "instructions": "x"}, event_id="u")
        assert (await t.error("instructions_update_unsupported"))["event_id"] == "u"
        await t.speech(1000)
        await t.answered()
        assert server.heard() == 16000
        server.backend().fail("update", InvalidRequest("not now", code="instructions_update_unsupported"))
        await t.send("session.update", session=phone)
        await t.send("session.update", session={"sample_rate_hz": 24000})
        await t.error("instructions_update_unsupported")
        updated = (await t.until("session.updated"))["session"]
        assert (updated["input_audio_format"], updated["audio"]["input"]["sample_rate_hz"]) == (
            "pcm16",
            24000,
        )
        await t.send("input_audio_buffer.clear")
        await t.speech(1000, rate=24000)
        await t.answered()
        assert abs(server.heard() - 32000) < 400  # the filter keeps a little until the end


@pytest.mark.parametrize(
    "audio",
    [
        {"input": {"format": {"type": "audio/pcm", "rate": 16000}}},
        {"input": {"format": "pcm16"}, "output": {"format": "g711_ulaw", "voice": "x"}},
        {"output": {"format": {"type": "pcm16", "rate": 22050}}},
    ],
)
async def test_case_44_formats_however_they_are_spelled_are_shown_as_the_sdk_knows_them(
    audio: dict[str, Any],
) -> None:
    async with Scripted() as server, Talker(server.url, opening={"audio": audio}) as t:
        assert all(strictly.check(event) for event in t.seen)
        for side, own in audio.items():
            assert t.session["audio"][side].keys() >= own.keys()


async def test_a_null_says_nothing() -> None:
    """In every field that may be left out; where one name for something is null, another may say it."""
    formats = {"input_audio_format": None, "output_audio_format": None, "response_format": None}
    audio = {"input": {"format": {"type": "audio/pcm", "rate": 24000}}, "output": {"format": "g711_alaw"}}
    async with Scripted() as server, Talker(server.url, opening={**formats, "audio": audio}) as t:
        assert t.session["output_audio_format"] == "g711_alaw"
        hints = (
            "video_frames",
            "format",
            "sample_rate_hz",
            "force_barge_in",
            "force_listen",
            "vad",
            "is_speech",
        )
        await t.speech(1000, rate=24000, **dict.fromkeys(hints))
        await t.send(
            "input_audio_buffer.commit",
            final=None,
            response_create=None,
            create_response=True,
            is_speech=None,
        )
        await t.until("response.created")
        await eventually(server.asked)
        assert abs(server.heard() - 16000) <= 16
        await t.send("response.cancel", response_id=None)
        await t.until("response.done")
        item = {"id": None, "type": None, "role": None, "content": [{"type": "input_text", "text": "hello"}]}
        await t.send("conversation.item.create", item=item, previous_item_id=None)
        await t.until("conversation.item.done")
        body = {
            "output_modalities": None,
            "modalities": ["text", "text"],
            "conversation": None,
            "voice": None,
        }
        await t.send("response.create", response={**body, "metadata": {"a": True, "b": {"c": 1}, "d": "e"}})
        response = (await t.until("response.created"))["response"]
        assert response["modalities"] == ["text"]
        assert response["metadata"] == {"a": "true", "b": '{"c":1}', "d": "e"}
        await t.send("response.cancel", response_id="")
        await t.until("response.done")
        await t.send("session.close", reason=None)
        assert await t.closed() == (1000, "client_close")
        assert not t.of("error")


async def test_what_is_said_of_the_users_sound_has_one_meaning_by_either_name() -> None:
    heard = {"transcription": {"model": "whisper-1"}, "noise_reduction": {"type": "near_field"}}
    async with Scripted() as server, Talker(server.url, opening={"audio": {"input": heard}}) as t:
        for name, value in heard.items():
            assert t.session[f"input_audio_{name}"] == t.session["audio"]["input"][name] == value
        assert all(strictly.check(event) for event in t.seen)


@pytest.mark.parametrize("audio", ["x", 5, [], {"input": 5, "output": []}])
async def test_audio_of_a_wrong_type_is_not_shown(audio: Any) -> None:
    async with Scripted() as server, Talker(server.url, opening={"audio": audio}) as t:
        assert all(strictly.check(event) for event in t.seen)
        assert isinstance(t.session["audio"], dict)


@pytest.mark.parametrize("first", ["session.update", "session.create", "session.resume"])
async def test_an_opening_that_cannot_be_read_opens_nothing(first: str) -> None:
    async with Scripted() as server, Talker(server.url) as t:
        await t.send(first, session={}, event_id="e" * 600)
        await t.error("bad_event")
        assert await t.closed() == (1008, "bad_event")
        assert not server.backends


@pytest.mark.parametrize(
    "detection",
    [
        {"type": "server_vad", "threshold": 0.15},
        {"type": "server_vad", "threshold": 1.5},
        {"type": "semantic_vad"},
        {"type": "server_vad", "foo": 1},
        {"type": "server_vad", "interrupt_response": False},
        {"type": "server_vad", "silence_duration_ms": -1},
        {"type": "server_vad", "prefix_padding_ms": True},
        "server_vad",
    ],
)
async def test_case_8_detectors_that_are_refused(detection: Any) -> None:
    async with Scripted() as server:
        async with Talker(server.url) as t:
            await t.send("session.update", session={"turn_detection": detection})
            assert (await t.error("invalid_session_config"))["param"] == "turn_detection"
        async with Talker(server.url, opening={}) as t:
            await t.send("session.update", session={"audio": {"input": {"turn_detection": detection}}})
            await t.error("unsupported_turn_detection")


async def test_case_8_a_detector_gets_its_defaults() -> None:
    opening = {"turn_detection": {"type": "server_vad"}}
    async with Scripted() as server, Talker(server.url, opening=opening) as t:
        assert t.session["turn_detection"] == {
            "type": "server_vad",
            "threshold": 0.5,
            "prefix_padding_ms": 300,
            "silence_duration_ms": 500,
            "min_speech_duration_ms": 96,
            "create_response": True,
            "interrupt_response": True,
        }
        assert t.session["overlap_policy"] == "barge_in_on_speech"


@pytest.mark.parametrize(
    "body",
    [
        {"overlap_policy": "barge_in_on_speech"},
        {"overlap_policy": "listen_only", "turn_detection": {"type": "server_vad"}},
        {"extra_body": {"overlap_policy": "barge_in_on_speech"}, "turn_detection": None},
    ],
)
async def test_case_9_a_policy_may_not_contradict_the_detector(body: dict[str, Any]) -> None:
    async with Scripted() as server, Talker(server.url) as t:
        await t.send("session.update", session=body)
        await t.error("invalid_session_config")


async def test_case_10_what_a_session_has_by_default() -> None:
    opening = {"playback_commit_policy": "commit_all_on_done"}
    async with Scripted() as server, Talker(server.url, opening=opening) as t:
        assert t.session["playback_commit_policy"] == "ack_only"
        assert t.session["overlap_short_ack_ms"] == 700 and t.session["overlap_barge_in_ms"] == 1200
        assert t.session["overlap_silence_rms"] == 0.003 and t.session["idle_timeout_s"] == 300


async def test_case_11_what_an_open_session_does_not_change() -> None:
    async with Scripted() as server, Talker(server.url, opening={"voice": "a"}) as t:
        for patch, code in (
            ({"model": "other"}, "model_update_unsupported"),
            ({"ref_audio": "data:audio/wav;base64,AAAA"}, "ref_audio_update_unsupported"),
            ({"extra_body": {"tts_ref_audio": "x"}}, "ref_audio_update_unsupported"),
        ):
            await t.send("session.update", session=patch)
            await t.error(code)
        await t.send("session.update", session={"voice": "b"})
        assert (await t.until("session.updated"))["session"]["voice"] == "b"
        await t.speech(1000)
        await t.send("input_audio_buffer.commit", response_create=True)
        await t.until("response.created")
        commit = next(c for c in server.backend().calls if c.method == "commit")
        server.backend().emit(AudioDelta(commit.arguments[0], bytes(4800), 24000))
        await t.until("response.output_audio.delta")
        before = len(t.of("session.updated"))
        await t.send("session.update", session={"voice": "c"})
        await t.error("voice_update_after_audio_unsupported")
        await t.answered()
        assert len(t.of("session.updated")) == before


async def test_case_12_an_update_keeps_what_it_does_not_name_and_echoes_what_nobody_knows() -> None:
    async with Scripted() as server, Talker(server.url, opening={"instructions": "a", "speed": 1.5}) as t:
        await t.send("session.update", session={"temperature": 0.25, "colour": {"of": "sky"}})
        session = (await t.until("session.updated"))["session"]
        assert (session["instructions"], session["speed"], session["temperature"]) == ("a", 1.5, 0.25)
        assert session["colour"] == {"of": "sky"}


async def test_case_13_rules_of_a_profile() -> None:
    """What a model's profile demands is asked of its backend's session, and refused under its own code."""

    def check(config: SessionConfig) -> VigilError | None:
        if "audio" in config.modalities and "ref_audio" not in config.extra_body:
            return InvalidRequest("give a reference voice", code="ref_audio_required", param="ref_audio")
        return None

    reserved = Capabilities(
        chunk_period_ms=1000,
        output_modalities=("text", "audio"),
        reserved_keys=("duplex_stage_max_tokens", "nvc_*"),
    )
    async with Scripted(reserved, check=check) as server:
        for body, code in (
            ({"modalities": ["audio", "text"]}, "ref_audio_required"),
            ({"extra_body": {"duplex_stage_max_tokens": 1}}, "invalid_duplex_runtime_config"),
            ({"extra_body": {"nvc_x": 1, "nvc_a": 1}}, "invalid_duplex_runtime_config"),
        ):
            async with Talker(server.url) as t:
                await t.send("session.update", session=body)
                error = await t.error(code)
                assert await t.closed() == (1008, code)
        assert "nvc_a, nvc_x" in error["message"]
        assert server.registry.statistics()["slots"] == 0
        async with Talker(server.url, opening={"modalities": ["text"]}) as t:
            assert t.session["modalities"] == ["text"]


async def test_case_14_a_reference_voice_is_never_echoed() -> None:
    voice = "data:audio/wav;base64," + base64.b64encode(bytes(2**20)).decode()
    async with Scripted() as server, Talker(server.url, opening={"ref_audio": voice}) as t:
        assert max(len(orjson.dumps(event)) for event in t.seen) < 32 * 1024
        assert b"AAAAAAAA" not in orjson.dumps(t.seen)
        assert server.backend().calls[0].arguments[0].extra_body["ref_audio"] == voice


@pytest.mark.parametrize("told_by_engine", [False, True])
@pytest.mark.parametrize(
    "opening", [{"initial_user_text": "go"}, {"extra_body": {"duplex_initial_user_text": "go"}}]
)
async def test_opening_words_wait_for_a_response(opening: dict[str, Any], told_by_engine: bool) -> None:
    """One unanswered message of the user's; a model that takes them with its settings is not told twice."""
    voice = replace(VOICE, takes_opening=told_by_engine)
    async with Scripted(voice) as server, Talker(server.url, opening=opening) as t:
        if not told_by_engine:
            done = await t.until("conversation.item.done")
            assert done["item"]["content"] == [{"type": "input_text", "text": "go"}]
        await t.send("response.create")
        await t.until("response.created")
        await eventually(server.asked)
        assert server.backend().methods().count("tell") == (0 if told_by_engine else 1)
        assert server.backend().calls[0].arguments[0].opening_text == "go"


async def test_case_15_another_model_is_refused() -> None:
    async with Scripted() as server, Talker(server.url, query="model=nobody") as t:
        assert (await t.error("model_not_found"))["param"] == "model"
        assert await t.closed() == (1008, "model_not_found")


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/duplex"])
@pytest.mark.parametrize("asked", ["", "duplex=on", "duplex=yes"])
async def test_which_protocol_an_address_asks_for(path: str, asked: str) -> None:
    """``yes`` is no duplex; without a word it is, but its client is not known to acknowledge playback."""
    auto = Capabilities(chunk_period_ms=1000, optional_input_modalities=("video",))
    async with Scripted(auto) as server, Talker(server.url, path, asked, opening={}) as t:
        duplex = path == "/v1/duplex" or asked == "duplex=on"
        assert t.session["playback_commit_policy"] == ("ack_only" if duplex else "wall_clock")
        assert t.session["auto_response"] is (duplex or asked == "")


async def test_browsers_bring_their_key_in_the_list_of_subprotocols() -> None:
    async with Scripted(VOICE, tenants={"secret": "me"}) as server:
        offered = ["realtime", "openai-insecure-api-key.secret"]
        async with Talker(server.url, subprotocols=offered, opening={}) as t:
            assert t.socket.subprotocol == "realtime"
        async with Talker(server.url, headers={"Authorization": "Bearer secret"}, opening={}) as t:
            assert t.socket.subprotocol is None
        for wrong in (["realtime"], ["realtime", "openai-insecure-api-key.guess"]):
            with pytest.raises(InvalidStatus) as refused:
                await Talker(server.url, subprotocols=wrong).__aenter__()
            assert refused.value.response.status_code == 401
            body = orjson.loads(refused.value.response.body or b"")
            assert body["error"]["code"] == "invalid_api_key"


async def test_text_is_json_and_binary_is_refused_while_the_session_goes_on() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for frame, code in (
            (b"\x00\x01", "bad_event"),
            ("{", "invalid_json"),
            ("[]", "bad_event"),
            ("7", "bad_event"),
        ):
            await t.raw(frame)
            await t.error(code)
            assert "server_event_seq" not in t.seen[-1]
        await t.send("nonsense", event_id="mine")
        assert (await t.error("unknown_event"))["event_id"] == "mine"
        assert await t.answered() == []
