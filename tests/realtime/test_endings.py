"""Cases F: what a client ends, and that nothing of it comes afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.session.backend import Action, AudioDelta, Decision, SpeechStarted, TextDelta, TurnEnd
from orchestrator.session.fence import Fence
from tests.realtime.serving import VOICE, Scripted, eventually
from tests.realtime.talker import Talker
from tests.realtime.test_output import CHUNK
from tests.realtime.test_playback import acknowledged, speaking
from tests.realtime.test_turns import begin_response


async def test_case_52_cancels_that_find_nothing() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.send("response.cancel", event_id="e1")
        assert (await t.error("response_not_active"))["event_id"] == "e1"
        await t.send("response.cancel", response_id="resp-nobody")
        assert await t.answered() == []
        done = await speaking(server, t, 1)
        await t.send("response.cancel", response_id=done)
        await t.error("response_not_active")
        active = await begin_response_after(server, t)
        await t.send("response.cancel", response_id=done)
        await t.error("response_not_active")
        await t.send("response.cancel", response_id=active)
        ended = await t.until("response.done")
        assert (ended["response_id"], ended["response"]["status"]) == (active, "cancelled")


async def begin_response_after(server: Scripted, t: Talker) -> str:
    """The next response, once the last one has been played."""
    await acknowledged(t, played_ms=60_000)
    return await begin_response(server, t)


async def test_case_53_clearing_the_playback_of_a_response_that_is_done() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await speaking(server, t, 2)
        await acknowledged(t, played_ms=500)
        await t.send("output_audio_buffer.clear")
        assert (await t.until("output_audio_buffer.cleared"))["response_id"] == response_id
        await t.answered()
        assert len(t.of("response.done")) == 1
        await t.send("output_audio_buffer.clear")
        assert await t.answered() == []


@pytest.mark.parametrize("how", ["response.cancel", "output_audio_buffer.clear", "barge_in", "input.cancel"])
async def test_case_54_what_comes_late_is_not_heard(how: str) -> None:
    """The epoch moves at once; what the backend still yields of the old one reaches nobody."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await speaking(server, t, 1, end=False)
        old = server.asked()[-1]
        server.backend().hold("cancel")
        await t.send(how)
        await eventually(lambda: "cancel" in server.backend().methods())
        server.backend().emit(TextDelta(old, "afterwards"), AudioDelta(old, CHUNK, 24000), TurnEnd(old))
        await t.answered()
        assert not t.of("response.done")
        server.backend().free("cancel")
        done = await t.until("response.done")
        reason = {
            "response.cancel": "client_cancelled",
            "output_audio_buffer.clear": "output_audio_buffer_clear",
        }.get(how, "barge_in")
        assert done["response"]["status"] == "cancelled"
        assert done["duplex"]["reason"] == reason
        at = t.seen.index(done)
        await t.answered()
        assert not [e for e in t.seen[at + 1 :] if e.get("response_id") == response_id]
        assert "afterwards" not in str(t.seen)
        cleared = {e["type"] for e in t.seen if e["type"].endswith("buffer.cleared")}
        assert ("output_audio_buffer.cleared" in cleared) is (how == "output_audio_buffer.clear")
        assert ("input_audio_buffer.cleared" in cleared) is (how in ("barge_in", "input.cancel"))
        assert await begin_response_after(server, t) != response_id
        assert server.asked()[-1].epoch == old.epoch + 1


async def test_case_55_a_cancel_ends_all_that_drain() -> None:
    """Turns that run concurrently: three are cancelled, each by its own id, and none is heard again."""
    concurrent = replace(VOICE, auto_response=True, holds_turn_input=False, concurrent_turns=True)
    async with Scripted(concurrent) as server, Talker(server.url, opening={}) as t:
        await t.speech(1000)
        await t.answered()
        epoch = server.backend().calls[-1].arguments[1].epoch
        fences = [Fence(epoch, turn) for turn in (1, 2, 3)]
        for fence in fences:
            server.backend().emit(
                Decision(fence, fence.turn, Action.RESPONSE, 0.9),
                TextDelta(fence, "hm"),
                AudioDelta(fence, CHUNK, 24000),
            )
            await t.until("response.output_audio_transcript.delta")
        ids = [e["response_id"] for e in t.of("response.created")]
        assert len(set(ids)) == 3 and not t.of("response.done")
        server.backend().hold("cancel")
        await t.send("response.cancel")
        await eventually(lambda: "cancel" in server.backend().methods())
        for fence in fences:
            server.backend().emit(AudioDelta(fence, CHUNK, 24000))
        assert not [e for e in await t.answered() if e["type"] == "response.output_audio.delta"]
        server.backend().free("cancel")
        done = [(await t.until("response.done")) for _ in ids]
        assert sorted(d["response_id"] for d in done) == sorted(ids)
        assert {d["response"]["status"] for d in done} == {"cancelled"}
        await t.answered()
        assert len(t.of("response.done")) == len(t.of("response.output_audio.delta")) == 3


async def test_case_57_the_users_voice_interrupts() -> None:
    opening = {"turn_detection": {"type": "server_vad"}}
    async with Scripted() as server, Talker(server.url, opening=opening) as t:
        await t.speech(1000)
        await t.send("input_audio_buffer.commit", response_create=True)
        await t.until("response.created")
        await eventually(server.asked)
        fence = server.asked()[-1]
        server.backend().emit(TextDelta(fence, "I say"), AudioDelta(fence, CHUNK, 24000))
        await t.until("response.output_audio_transcript.delta")
        server.backend().emit(SpeechStarted(fence, 1200))
        decision = await t.until("overlap.decision")
        assert (decision["action"], decision["reason"]) == ("barge_in", "server_vad_speech_started")
        done = await t.until("response.done")
        assert done["response"]["status_details"]["reason"] == "turn_detected"


async def test_a_model_that_cannot_be_interrupted_says_so() -> None:
    async with (
        Scripted(replace(VOICE, supports_barge_in=False)) as server,
        Talker(server.url, opening={}) as t,
    ):
        await t.send("barge_in", event_id="e1")
        assert (await t.error("barge_in_unsupported"))["event_id"] == "e1"
        await t.answered()


async def test_deferred_input_goes_with_a_cancel() -> None:
    """Committed and unanswered: a cancel drops it and gives its bytes back; the open item stays."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await begin_response(server, t)
        await t.speech(1000)
        await t.send("input_audio_buffer.commit", response_create=True)
        await t.until("input_audio_buffer.committed")
        assert server.pending_bytes() > 0
        await t.send("response.cancel")
        await t.until("response.done")
        await eventually(lambda: server.pending_bytes() == 0)
        await t.answered()
        assert len(t.of("response.created")) == 1
