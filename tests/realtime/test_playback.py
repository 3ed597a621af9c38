"""Cases E: what was played, and what of it counts as heard."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.session.backend import AudioDelta, TextDelta, TurnEnd
from orchestrator.session.told import Heard
from tests.realtime.serving import Scripted, eventually
from tests.realtime.talker import Talker
from tests.realtime.test_output import CHUNK
from tests.realtime.test_turns import begin_response

TEN, TWENTY = "0123456789", "abcdefghi jklmnopqrs"


async def speaking(server: Scripted, t: Talker, seconds: int, *, end: bool = True) -> str:
    """A response that has said ten characters in each second."""
    response_id = await begin_response(server, t)
    fence = server.asked()[-1]
    for second in range(1, seconds + 1):
        server.backend().emit(TextDelta(fence, TEN))
        marks = tuple((10 * n, 1000 * n) for n in range(1, second + 1))
        server.backend().emit(AudioDelta(fence, CHUNK, 24000, marks))
    for _ in range(seconds):
        await t.until("response.output_audio_transcript.delta")
    if end:
        server.backend().emit(TurnEnd(fence))
        await t.until("rate_limits.updated")
    return response_id


async def transcript(t: Talker, response_id: str) -> str:
    await t.send("conversation.item.retrieve", item_id=f"item_{response_id}")
    item = (await t.until("conversation.item.retrieved"))["item"]
    return "".join(part["transcript"] for part in item["content"])


def heard(server: Scripted) -> str:
    """What the backend was last told of."""
    facts = [c.arguments[0] for c in server.backend().calls if c.method == "tell"]
    return [fact.text for fact in facts if isinstance(fact, Heard)][-1]


async def acknowledged(t: Talker, **fields: Any) -> dict[str, Any]:
    await t.send("playback.ack", **fields)
    return dict((await t.until("playback.acknowledged"))["event"])


async def test_case_46_acks_only_grow_and_commit_what_was_played() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await speaking(server, t, 3)
        for played in (1200.7, 800):
            event = await acknowledged(t, played_ms=played, response_id=response_id)
            assert event["playback"] == {
                "generated_ms": 3000, "sent_ms": 3000, "played_ms": 1200, "committed_ms": 1200,
            }  # fmt: skip
            assert event["item_id"] == f"item_{response_id}"
        event = await acknowledged(t, played_ms=2000, committed_ms=1500)
        assert event["playback"]["played_ms"] == 2000 and event["playback"]["committed_ms"] == 1500


@pytest.mark.parametrize(
    ("names", "code"),
    [
        ({"item_id": "item_other"}, "playback_item_mismatch"),
        ({"response_id": "resp-nobody", "item_id": None}, "playback_item_not_found"),
        ({"response_id": None, "item_id": "item_resp-nobody"}, "playback_item_not_found"),
    ],
)
async def test_case_47_acks_of_something_else(names: dict[str, Any], code: str) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await speaking(server, t, 1)
        fields = {"response_id": response_id, **names}
        await t.send("playback.ack", played_ms=1, event_id="e1", **fields)
        assert (await t.error(code))["event_id"] == "e1"
        assert (await acknowledged(t, played_ms=500))["item_id"] == f"item_{response_id}"


@pytest.mark.parametrize("ms", [True, "1", None])
async def test_case_47_acks_without_a_number(ms: Any) -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        await t.send("playback.ack", played_ms=ms)
        await t.error("bad_event")


async def test_case_48_an_ack_that_comes_after_the_next_turn() -> None:
    """The slot in history was never reserved: it is too late. One early ack, even of nothing, keeps it."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for early in (False, True):
            response_id = await speaking(server, t, 1)
            if early:
                await acknowledged(t, played_ms=0, response_id=response_id)
            await t.send("output_audio_buffer.clear")
            await t.until("output_audio_buffer.cleared")
            await t.ask("next?")
            await t.until("conversation.item.done")
            await t.send("playback.ack", played_ms=1000, response_id=response_id)
            if early:
                await t.until("playback.acknowledged")
            else:
                await t.error("playback_ack_too_late")
        await t.answered()


async def test_case_49_a_cancel_keeps_what_was_heard() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await speaking(server, t, 2, end=False)
        await acknowledged(t, played_ms=1500)
        await t.send("response.cancel")
        done = await t.until("response.done")
        assert done["response"]["output"][0]["content"][0]["transcript"] == (TEN + TEN)[:15]
        assert done["response"]["status_details"] == {"type": "cancelled", "reason": "client_cancelled"}
        assert await transcript(t, response_id) == (TEN + TEN)[:15]
        await eventually(lambda: heard(server) == (TEN + TEN)[:15])


async def test_case_50_a_truncation_is_a_cap_for_good() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        response_id = await speaking(server, t, 2)
        item_id = f"item_{response_id}"
        for fields in (
            {"audio_end_ms": 2001},
            {"audio_end_ms": -1},
            {"audio_end_ms": 100, "content_index": 1},
            {"audio_end_ms": "100"},
        ):
            await t.send("conversation.item.truncate", item_id=item_id, **fields)
            await t.error("bad_event")
        await t.send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=500)
        truncated = await t.until("conversation.item.truncated")
        assert (truncated["item_id"], truncated["audio_end_ms"]) == (item_id, 500)
        told = await t.next()
        assert told["type"] == "playback.acknowledged" and told["event"]["truncate"] is True
        await acknowledged(t, played_ms=2000, response_id=response_id)
        await eventually(lambda: heard(server) == TEN[:5])
        await t.send("conversation.item.truncate", item_id="item_x", audio_end_ms=1)
        await t.error("item_not_found")


async def test_case_50_a_later_truncation_gives_nothing_back() -> None:
    """Nor does the end of a response that was truncated while it was made."""
    async with Scripted() as server, Talker(server.url, opening={}) as t:
        for end in (True, False):
            response_id = await speaking(server, t, 2, end=end)
            for ms in (500, 1500):
                await t.send("conversation.item.truncate", item_id=f"item_{response_id}", audio_end_ms=ms)
                await t.until("playback.acknowledged")
            if not end:
                server.backend().emit(TurnEnd(server.asked()[-1]))
                await t.until("response.done")
            await t.send("conversation.item.retrieve", item_id=f"item_{response_id}")
            (part,) = (await t.until("conversation.item.retrieved"))["item"]["content"]
            assert (part["transcript"], part["audio_duration_ms"]) == (TEN[:5], 500)


@pytest.mark.parametrize("policy", ["ack_only", "wall_clock"])
async def test_what_is_said_beside_the_conversation_never_enters_it(policy: str) -> None:
    query = "autostart=0&duplex=1" if policy == "ack_only" else "autostart=0"
    async with Scripted() as server, Talker(server.url, query=query, opening={}) as t:
        await t.ask("aside")
        await t.send("response.create", response={"conversation": "none"})
        response_id = (await t.until("response.created"))["response_id"]
        await eventually(server.asked)
        fence = server.asked()[-1]
        server.backend().emit(TextDelta(fence, TEN), AudioDelta(fence, CHUNK, 24000, ()), TurnEnd(fence))
        await t.until("response.done")
        if policy == "wall_clock":
            await eventually(lambda: session_of(server).view()["playback"]["committed_ms"] == 1000)
        event = await acknowledged(t, played_ms=1000, response_id=response_id)
        assert event["history_committed"] is False and event["committed_ms"] == 1000
        await t.send("conversation.item.truncate", item_id=f"item_{response_id}", audio_end_ms=500)
        await t.until("playback.acknowledged")
        facts = [call.arguments[0] for call in server.backend().calls if call.method == "tell"]
        assert {fact.text for fact in facts if isinstance(fact, Heard)} == {""}
        assert [line.role for line in session_of(server)._core.history.entries()] == ["user"]


def session_of(server: Scripted) -> Any:
    (session,) = server.registry.sessions()
    return session


async def test_case_51_clients_that_never_acknowledge() -> None:
    """Without ``duplex=1`` the wall clock plays: a next turn waits for the sound to end, not for ever."""
    async with Scripted() as server, Talker(server.url, query="autostart=0", opening={}) as t:
        response_id = await begin_response(server, t)
        fence = server.asked()[-1]
        server.backend().emit(TextDelta(fence, TEN), AudioDelta(fence, bytes(4800), 24000), TurnEnd(fence))
        await t.until("response.done")
        await eventually(lambda: heard(server) == TEN)
        await t.answered()
        assert await begin_response(server, t) != response_id
        assert (await acknowledged(t, played_ms=0))["playback"]["played_ms"] == 0
