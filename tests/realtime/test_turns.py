"""Cases C: commits and the responses that follow from them, or don't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.session.backend import (
    Action,
    AudioDelta,
    Decision,
    SpeechStarted,
    SpeechStopped,
    TextDelta,
    TurnEnd,
)
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import ServerFault
from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker

AUTO = replace(VOICE, auto_response=True, holds_turn_input=False)


async def begin_response(server: Scripted, t: Talker) -> str:
    """Speak and ask for an answer, which the backend has begun to make; the response's id."""
    count = len(server.asked()) if server.backends else 0
    await t.speech(1000)
    await t.send("input_audio_buffer.commit", response_create=True)
    created = await t.until("response.created")
    await eventually(lambda: len(server.asked()) > count)
    return str(created["response_id"])


async def test_case_28_silence_is_committed_and_not_answered() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for _ in range(3):
            await t.speech(400, loud=False)
        await t.send("input_audio_buffer.commit", response_create=True)
        committed = await t.until("input_audio_buffer.committed")
        flags = {"is_speech": False, "no_response": True, "empty": True}
        assert committed["event"].items() >= flags.items()
        await t.answered()
        (done,) = t.of("conversation.item.done")
        assert done["item"]["content"] == [{"type": "input_audio", "is_speech": False}]
        listens = t.of("response.listen")
        assert listens and listens[-1]["response"]["metadata"]["reason"] == "silence_or_noise"
        assert "response_id" not in listens[-1] and not t.of("response.created") and not server.asked()


async def test_case_28_every_silent_commit_is_told_of_in_order() -> None:
    """Silences are told of seldom; the answer to a commit is no such one, and comes behind it."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for _ in range(3):
            await t.speech(400, loud=False)
            await t.answered()
            await t.send("input_audio_buffer.commit")
            events = [event["type"] for event in await t.answered()]
            assert events.index("input_audio_buffer.committed") < events.index("response.listen")
        await t.speech(400)
        await t.send("input_audio_buffer.commit", response_create=True, duration_ms=400)
        events = [event["type"] for event in await t.answered()]
        assert events.index("input_audio_buffer.committed") < events.index("response.listen")
        assert not server.asked()


async def test_case_29_turn_mode_answers_when_it_is_asked() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.speech(600)
        await t.until("input_audio_buffer.speech_started")
        await t.send("input_audio_buffer.commit")
        events = [event["type"] for event in await t.answered()]
        assert events == [
            "input_audio_buffer.speech_stopped",
            "conversation.item.added",
            "conversation.item.created",
            "input_audio_buffer.committed",
            "conversation.item.done",
        ]
        assert not server.asked()
        await t.send("response.create", event_id="e")
        await t.until("response.created")
        await eventually(server.asked)
        assert server.heard() == 9600


async def test_case_30_nothing_to_commit_is_an_error() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.send("input_audio_buffer.commit", event_id="e1")
        assert (await t.error("input_audio_buffer_empty"))["event_id"] == "e1"
        await t.send("response.create")
        await t.error("response_create_without_input")
        await t.speech()
        await t.send("input_audio_buffer.clear")
        await t.until("input_audio_buffer.cleared")
        await t.send("input_audio_buffer.commit")
        await t.error("input_audio_buffer_empty")
        await eventually(lambda: server.pending_bytes() == 0)


@pytest.mark.parametrize("residue_ms", [0, 400])
async def test_case_31_auto_mode_commits_what_has_gone_already(residue_ms: int) -> None:
    """All of it is with the backend before the commit; the commit adds no sound of its own."""
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.speech(1000 + residue_ms)
        await t.answered()
        before = server.heard()
        await t.send("input_audio_buffer.commit")
        await t.until("input_audio_buffer.committed")
        await t.answered()
        assert server.heard() == before == 16 * (1000 + residue_ms)
        assert not t.of("response.created")


async def test_case_32_a_model_that_listens_has_no_response() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.speech(1000)
        await t.send("input_audio_buffer.commit")
        await t.until("input_audio_buffer.committed")
        for tick in range(5):
            server.backend().stay_silent(tick=tick)
        listen = await t.until("response.listen")
        assert "response_id" not in listen and listen["response"]["metadata"]["model_listen"] is True
        await t.answered()
        assert len(t.of("response.listen")) == 1 and not t.of("response.created")


async def test_case_33_text_is_answered_when_it_is_asked() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.ask("what is it?")
        await t.until("conversation.item.done")
        assert "response.created" not in [e["type"] for e in await t.answered()]
        await t.send("response.create")
        await t.until("response.created")
    voice_alone = replace(VOICE, supports_text_only_turn=False)
    async with Scripted(voice_alone) as server, Talker(server.url, opening={}) as t:
        await t.ask("what is it?")
        await t.send("response.create")
        await t.error("text_only_turn_unsupported")


async def test_case_34_one_response_at_a_time() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await begin_response(server, t)
        await t.ask("and?")
        await t.send("response.create", event_id="e1")
        assert (await t.error("response_already_active"))["event_id"] == "e1"
        (fence,) = server.asked()
        server.backend().emit(TextDelta(fence, "whole"), TurnEnd(fence))
        done = await t.until("response.done")
        assert done["response"]["id"] == response_id and done["response"]["status"] == "completed"


@pytest.mark.parametrize("overlap_ms", [700, 701])
async def test_case_35_a_murmur_is_no_turn_and_a_turn_waits(overlap_ms: int) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        first = await begin_response(server, t)
        (fence,) = server.asked()
        await t.speech(overlap_ms, duration_ms=overlap_ms)
        await t.send("input_audio_buffer.commit", response_create=True)
        committed = (await t.until("input_audio_buffer.committed"))["event"]
        murmur = overlap_ms <= 700
        if murmur:
            assert committed["overlap_ack"] and committed["no_response"] and not committed["is_speech"]
        else:
            assert committed["overlap_deferred"] and committed["response_create_deferred"]
        assert len(server.asked()) == 1
        server.backend().emit(TextDelta(fence, "said"), TurnEnd(fence))
        await t.until("response.done")
        if murmur:
            await t.answered()
            assert len(t.of("response.created")) == 1
        else:
            second = await t.until("response.created")
            assert second["response_id"] != first
            await eventually(lambda: len(server.asked()) == 2)
        await t.answered()
        await eventually(lambda: server.pending_bytes() == 0)


async def test_case_36_overlap_decisions_are_told() -> None:
    """Turn mode, listen only: speech over a response is kept, silence dropped, a barge-in hint ends it."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        for fields, action, reason in (
            ({}, "listen", "policy_listen_only"),
            ({"is_speech": False}, "drop", "silence_or_noise"),
            ({"transcript": "Okay!"}, "listen", "short_ack_transcript"),
            ({"overlap_action": "ignore"}, "drop", "client_overlap_action"),
            ({"force_listen": True}, "listen", "client_force_listen"),
            ({"force_barge_in": True}, "barge_in", "client_force_barge_in"),
        ):
            await t.speech(100, **fields)
            decision = await t.until("overlap.decision")
            assert (decision["action"], decision["reason"]) == (action, reason)
        done = await t.until("response.done")
        assert done["response"]["status"] == "cancelled"


@pytest.mark.parametrize("spoken", [False, True])
async def test_create_cancel_create_in_one_burst_leaves_exactly_one_response(spoken: bool) -> None:
    """What was cancelled before it said a word has answered nothing; what has said one, has."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        if spoken:
            await t.speech(800)
            await t.send("input_audio_buffer.commit")
        else:
            await t.ask("well?")
        await t.until("conversation.item.done")
        for kind in ("create", "cancel", "create"):
            await t.send(f"response.{kind}")
        await eventually(lambda: len(server.asked()) == 2)
        for fence in server.asked():
            server.backend().emit(TextDelta(fence, "word"), TurnEnd(fence))
        for status in ("cancelled", "completed"):
            assert (await t.until("response.done"))["response"]["status"] == status
        await t.send("response.create")
        await t.error("response_create_without_input")
        assert len(t.of("response.created")) == 2


async def test_an_error_about_an_append_names_its_event() -> None:
    """Also one that waited for its commit, and one over a response that can't be interrupted."""
    voice = replace(VOICE, supports_barge_in=False)
    async with Scripted(voice) as server, Talker(server.url, opening={}) as t:
        server.backend().fail("append", ServerFault("no", code="engine_error"))
        await t.speech(800, event_id="a")
        await t.send("input_audio_buffer.commit", event_id="c", response_create=True)
        assert (await t.error("runtime_append_failed"))["event_id"] == "a"
        assert (await t.error("commit_aborted"))["event_id"] == "c"
        await begin_response(server, t)
        await t.speech(200, force_barge_in=True, event_id="b")
        assert (await t.error("barge_in_unsupported"))["event_id"] == "b"


async def test_case_37_at_most_four_commits_wait() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        server.backend().hold("append")
        for n in range(5):
            await t.speech(100, event_id=f"a{n}")
            await t.send("input_audio_buffer.commit", event_id=f"c{n}")
        error = await t.error("input_backpressure")
        assert error["type"] == "rate_limit_error" and error["event_id"] == "c4" and error["retryable"]
        server.backend().free("append")
        for _ in range(4):
            await t.until("input_audio_buffer.committed")
        await t.answered()
        assert len(t.of("error")) == 1 and len(t.of("input_audio_buffer.committed")) == 4


async def test_case_38_a_failed_append_takes_its_commit_along() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        server.backend().fail("append", ServerFault("the engine broke"))
        await t.speech(event_id="a")
        await t.send("input_audio_buffer.commit", event_id="c")
        assert (await t.error("runtime_append_failed"))["event_id"] == "a"
        assert (await t.error("commit_aborted"))["event_id"] == "c"
        await t.speech()
        await t.send("input_audio_buffer.commit")
        await t.until("input_audio_buffer.committed")
        await eventually(lambda: server.pending_bytes() == 0)


async def test_case_39_asked_for_and_found_nothing_to_say() -> None:
    """Listening ends the response on the client: it is told with the response's id, then done."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await begin_response(server, t)
        (fence,) = server.asked()
        server.backend().emit(Decision(fence, 1, Action.SILENCE, 0.1, "model"))
        assert (await t.until("response.listen"))["response_id"] == response_id
        assert (await t.until("response.done"))["response"]["status"] == "completed"


async def test_auto_mode_speaks_unasked() -> None:
    async with Scripted(AUTO) as server, Talker(server.url, opening={}) as t:
        await t.speech(1000)
        await t.answered()
        backend = server.backend()
        fence = backend.calls[-1].arguments[1]
        backend.emit(Decision(fence, 1, Action.RESPONSE, 0.75), AudioDelta(fence, bytes(960), 24000))
        speak = await t.until("response.speak")
        assert speak["metadata"]["score"] == 0.75 and speak["metadata"]["model_speak"] is True
        await t.until("response.output_audio.delta")


async def test_a_failed_append_aborts_the_detectors_commit_and_not_the_session() -> None:
    """What case 38 says of a client's commit holds for the one that the detector makes."""
    opening = {"turn_detection": {"type": "server_vad"}, "extra_body": {"auto_response": False}}
    recording = replace(VOICE, holds_turn_input=False)
    async with Scripted(recording) as server, Talker(server.url, opening=opening) as t:
        server.backend().fail("append", ServerFault("out of order"))
        await t.speech()
        await t.error("runtime_append_failed")
        server.backend().emit(SpeechStarted(Fence(), 0), SpeechStopped(Fence(), 200))
        await t.error("commit_aborted")
        await t.speech()
        server.backend().emit(SpeechStarted(Fence(), 200), SpeechStopped(Fence(), 400))
        await t.until("input_audio_buffer.committed")
        await t.until("response.created")


@pytest.mark.parametrize("reason", ["idle_ttl_expired", "disconnect_grace_expired", "request_cleanup"])
async def test_a_client_closes_and_does_not_expire(reason: str) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.send("session.close", reason=reason)
        assert await t.closed() == (1000, "client_close")
        assert t.types[-1] == "session.closed"
