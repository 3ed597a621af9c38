"""What a client sends comes back in events: it is kept small, or refused by name, and the session goes on.

An event of the client's own words that is larger than the outbox, or that cannot be written as JSON, would
end the session of a client that reads as fast as it can.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import orjson
import pytest

from orchestrator.session.configuration import MAX_TEXT_CHARS
from orchestrator.session.intake import MAX_ITEM_CHARS
from orchestrator.wire.client import MAX_DEPTH, MAX_NAME_CHARS
from tests.realtime.serving import Scripted, eventually
from tests.realtime.talker import Event, Talker

LONG = "x" * 3_000_000


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def message(text: str, role: str = "user", **item: Any) -> Event:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}], **item}


FRAMES: dict[str, tuple[Event, str | None]] = {
    "metadata": ({"type": "response.create", "response": {"metadata": {"a": LONG}}}, "bad_event"),
    "retrieve": ({"type": "conversation.item.retrieve", "item_id": LONG}, "bad_event"),
    "delete": ({"type": "conversation.item.delete", "item_id": LONG}, "bad_event"),
    "event_id": ({"type": "conversation.item.retrieve", "item_id": "a", "event_id": LONG}, "bad_event"),
    "type": ({"type": LONG}, "unknown_event"),
    "signal": ({"type": "turn.signal", "event": LONG}, "bad_event"),
    "ack": ({"type": "playback.ack", "played_ms": 1, "response_id": LONG}, "bad_event"),
    "format": (
        {"type": "input_audio_buffer.append", "audio": "AAAA", "format": LONG},
        "unsupported_audio_format",
    ),
    "operation": ({"type": "input_audio_buffer.append", "audio": "AAAA", "operation_id": LONG}, "bad_event"),
    "user": ({"type": "conversation.item.create", "item": message(LONG)}, "event_too_large"),
    "assistant": (
        {"type": "conversation.item.create", "item": message(LONG, "assistant")},
        "event_too_large",
    ),
    "item id": ({"type": "conversation.item.create", "item": message("a", id=LONG)}, "bad_event"),
    "previous": (
        {"type": "conversation.item.create", "item": message("a"), "previous_item_id": LONG},
        "bad_event",
    ),
    "deep": ({"type": "response.create", "response": {"metadata": {"a": nested(300)}}}, "bad_event"),
}
BODIES: dict[str, tuple[Event, str | None]] = {
    "instructions": ({"instructions": LONG}, "bad_event"),
    "voice": ({"voice": LONG}, "bad_event"),
    "include": ({"include": [LONG, *["a"] * 100]}, None),
    "model": ({"model": LONG}, "model_update_unsupported"),
    "modality": ({"modalities": [LONG]}, "unsupported_response_modality"),
    "detector's key": ({"turn_detection": {"type": "server_vad", LONG: 1}}, "unsupported_turn_detection"),
    "detector's time": (
        {"turn_detection": {"type": "server_vad", "silence_duration_ms": 1e300}},
        "unsupported_turn_detection",
    ),
    "tokens": ({"max_output_tokens": 2**64 - 1, "speed": 1e308, "idle_timeout_s": 1e308}, None),
    "unknown": ({"mine": LONG}, None),
    "unknown and deep": ({"mine": nested(252)}, "bad_event"),
    "audio": ({"audio": {"mine": nested(252)}}, "bad_event"),
    "extra_body": ({"extra_body": {"mine": LONG}}, "bad_event"),
    "deep extra_body": ({"extra_body": {"mine": nested(300)}}, "bad_event"),
}


async def settled(server: Scripted) -> None:
    (session,) = server.registry.sessions()
    await eventually(lambda: not session.busy)


async def test_nothing_a_client_says_is_too_much_for_its_own_session() -> None:
    updates = {
        name: ({"type": "session.update", "session": body}, code) for name, (body, code) in BODIES.items()
    }
    async with Scripted() as server, Talker(server.url, opening={}) as talker:
        for name, (frame, code) in {**FRAMES, **updates}.items():
            start = len(talker.seen)
            await talker.raw(json.dumps({"event_id": "mine", **frame}))
            await talker.answered()
            await settled(server)
            await talker.answered()
            got = talker.seen[start:]
            assert [e["error"]["code"] for e in got if e["type"] == "error"] == [code] * (code is not None), (
                name
            )
            assert all(len(orjson.dumps(event)) < 64 * 1024 for event in got), name
        assert len(server.registry.sessions()) == 1


@pytest.mark.parametrize(
    "name", [n for n, (_, code) in BODIES.items() if code not in (None, "model_update_unsupported")]
)
async def test_an_opening_that_says_too_much_is_refused_and_keeps_no_place(name: str) -> None:
    body, _ = BODIES[name]
    async with Scripted() as server:
        async with Talker(server.url) as talker:
            await talker.raw(json.dumps({"type": "session.update", "session": body}))
            refusal = await talker.error(
                "unsupported_response_modality"
                if name == "modality"
                else "bad_event"
                if "deep" in name or name == "audio"
                else "invalid_session_config"
            )
            assert len(refusal["message"]) <= 500
            assert (await talker.closed())[0] == 1008
        await eventually(lambda: not server.registry.sessions())


async def test_what_is_just_short_enough_is_taken() -> None:
    async with (
        Scripted() as server,
        Talker(server.url, opening={"instructions": "é" * MAX_TEXT_CHARS}) as talker,
    ):
        await talker.ask("é" * MAX_ITEM_CHARS, id="i" * MAX_NAME_CHARS)
        await talker.until("conversation.item.done")
        await talker.send("session.update", session={"mine": nested(MAX_DEPTH - 2)})
        assert (await talker.until("session.updated"))["session"]["mine"] == nested(MAX_DEPTH - 2)


async def test_a_session_that_cannot_be_attached_keeps_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise TypeError("the first events cannot be written")

    async with Scripted() as server:
        monkeypatch.setattr("orchestrator.runtime.actor.Session.attach", broken)
        async with Talker(server.url) as talker:
            await talker.send("session.update", session={})
            assert await talker.closed() == (1011, "internal_error")
        await eventually(lambda: not server.registry.sessions())


async def test_an_id_of_a_response_to_come_is_not_the_clients_to_take() -> None:
    async with Scripted() as server, Talker(server.url, opening={}) as talker:
        coming = f"resp-{talker.session_id}-0-00000000"
        await talker.ask("first", id=f"item_{coming}")
        assert (await talker.error("bad_event"))["param"] == "item.id"
        await talker.ask("first")
        await talker.until("conversation.item.done")
        await talker.send("response.create")
        assert (await talker.until("response.created"))["response"]["id"] == coming


async def test_a_session_object_that_is_sent_back_freezes_nothing() -> None:
    """Clients change one key of the object they got and send all of it."""
    async with Scripted() as server, Talker(server.url, opening={}) as talker:
        await talker.send("session.update", session={**talker.session, "instructions": "look"})
        await talker.until("session.updated")
        await talker.ask("now?")
        await talker.until("conversation.item.done")
        await talker.send("response.create")
        created = await talker.until("response.created")
        await talker.send("session.update", session={"extra_body": {"auto_response": True}})
        async with asyncio.timeout(60):
            session = (await talker.until("session.updated"))["session"]
        assert session["active_response_id"] == created["response"]["id"]
        assert session["turn_state"] == "assistant_generating"
        assert session["auto_response"] is True
