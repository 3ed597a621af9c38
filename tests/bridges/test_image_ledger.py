"""Frames move once: payload the first time, then uuid, and payloads again whenever the engine forgot."""

from __future__ import annotations

import copy
import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridges.chat_engine import VllmChat
from bridges.engine import EngineError, EngineServerError, EngineTimeout, ImageMissing, Window
from bridges.image_ledger import ImageLedger, data_url, render
from tests.bridges.chatting import Frames, ask, request, user
from tests.fakes.engine import FakeEngine, Fault, has_image


async def test_a_frame_moves_once() -> None:
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model)
        frames = Frames()
        for count in range(1, 6):
            await ask(chat, request(user(*(f"f{number}" for number in range(1, count + 1)))), frames)
            assert engine.chats[-1].payloads == (f"f{count}",)
        assert frames.asked == ["f1", "f2", "f3", "f4", "f5"]
        assert chat.statistics()["images_held"] == 5
        await chat.aclose()


async def test_payloads_always_when_the_engine_knows_no_uuids() -> None:
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model, uuid_parts=False)
        for _ in range(2):
            await ask(chat, request(user("f1", "f2")))
        body = engine.chats[-1].json
        assert [sorted(part) for part in body["messages"][0]["content"]] == [["image_url", "type"]] * 2
        await chat.aclose()


async def test_a_miss_is_mended_inside_the_same_request() -> None:
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model)
        await ask(chat, request(user("f1", "f2")))
        engine.image_cache.drop("f2")
        _, done = await ask(chat, request(user("f1", "f2", "f3")))
        assert done.retries == 1
        assert [seen.status for seen in engine.chats] == [200, 400, 200]
        assert engine.chats[-1].payloads == ("f1", "f2", "f3")
        assert done.body_bytes == engine.chats[-1].body_bytes + engine.chats[-2].body_bytes
        _, done = await ask(chat, request(user("f1", "f2", "f3")))
        assert (done.retries, engine.chats[-1].payloads) == (0, ())
        await chat.aclose()


@pytest.mark.parametrize("in_stream", [False, True])
async def test_a_500_is_retried_once_with_payloads(in_stream: bool) -> None:
    """Contract: an image on which the engine's two caches disagree costs one retry, never the tick."""
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model)
        await ask(chat, request(user("f1")))
        engine.faults.append(Fault(status=500, message="KeyError", when=has_image("f1"), in_stream=in_stream))
        _, done = await ask(chat, request(user("f1", "f2")))
        assert done.retries == 1 and engine.chats[-1].payloads == ("f1", "f2")
        engine.faults.append(Fault(status=500, times=2, in_stream=in_stream))
        with pytest.raises(EngineServerError):
            await ask(chat, request(user("f1", "f2")))
        engine.faults.append(Fault(status=500))
        with pytest.raises(EngineServerError):
            await ask(chat, request(user("no image, so nothing to send again")))
        await chat.aclose()


async def test_the_retry_stays_inside_the_deadline() -> None:
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model)
        engine.faults += [Fault(status=500), Fault(hang=True)]
        with pytest.raises(EngineTimeout):
            await ask(chat, request(user("f1"), first=0.2, total=0.2))
        assert len(engine.chats) == 2
        await chat.aclose()


async def test_a_rejected_request_teaches_nothing() -> None:
    async with FakeEngine(max_images=2) as engine:
        chat = VllmChat(engine.url, engine.model)
        with pytest.raises(EngineError):
            await ask(chat, request(user("f1", "f2", "f3")))
        assert chat.statistics()["images_held"] == 0
        await chat.aclose()


async def test_a_new_instance_holds_nothing() -> None:
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model)
        await ask(chat, request(user("f1", "f2")))
        engine.kill()
        with pytest.raises(EngineError):
            await ask(chat, request(user("f1", "f2")))
        await engine.restart()
        _, done = await ask(chat, request(user("f1", "f2")))
        assert (done.retries, engine.chats[-1].payloads) == (0, ("f1", "f2"))
        await engine.restart()  # unseen by the bridge: found out by the miss
        _, done = await ask(chat, request(user("f1", "f2", "f3")))
        assert done.retries == 1
        await chat.aclose()


async def test_bytes_that_are_gone() -> None:
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model)
        frames = Frames()
        await ask(chat, request(user("f1")), frames)
        frames.gone.add("f1")
        await ask(chat, request(user("f1")), frames)
        engine.image_cache.clear()
        with pytest.raises(ImageMissing) as caught:
            await ask(chat, request(user("f1")), frames)
        assert caught.value.uuid == "f1"
        await chat.aclose()


@settings(max_examples=30, deadline=None)
@given(
    held=st.integers(1, 8),
    cache=st.integers(4, 8),
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 11), min_size=1, max_size=4, unique=True),
            st.sampled_from(["evict", "restart", "500"]),
        ),
        max_size=12,
    ),
)
async def test_every_request_is_answered_whatever_the_engine_forgets(
    held: int, cache: int, steps: list[list[int] | str]
) -> None:
    """Contract: with any ledger size, any eviction and one fault at a time, each answer takes at most one
    retry, and the ledger never outgrows its bound."""
    async with FakeEngine(image_cache=cache, image_tokens=4) as engine:
        chat = VllmChat(engine.url, engine.model, held_images=held)
        for step in steps:
            if step == "evict":
                engine.image_cache.clear()
            elif step == "restart":
                await engine.restart()
            elif step == "500":
                engine.image_cache.clear()
                engine.faults[:] = [Fault(status=500)]
            else:
                _, done = await ask(chat, request(user(*(f"f{number}" for number in step))))
                assert done.retries <= 1
                assert chat.statistics()["images_held"] <= held
        await chat.aclose()


@given(st.integers(1, 5), st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=20))
def test_the_ledger_is_a_bounded_lru(capacity: int, sends: list[list[int]]) -> None:
    ledger = ImageLedger(capacity)
    order: list[str] = []
    for numbers in sends:
        uuids = [str(number) for number in numbers]
        ledger.sent(uuids)
        for uuid in uuids:
            order = [*(old for old in order if old != uuid), uuid]
        order = order[-capacity:]
        assert {str(number) for number in range(10) if str(number) in ledger} == set(order)


PARTS = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text(max_size=40)),
    st.builds(lambda n: {"type": "image_url", "uuid": f"f{n}"}, st.integers(0, 5)),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}),
)
MESSAGES = st.builds(
    lambda role, content: {"role": role, "content": content},
    st.sampled_from(["system", "user", "assistant"]),
    st.one_of(st.text(max_size=40), st.lists(PARTS, max_size=4)),
)


def frame_bytes(uuid: str) -> bytes:
    return b"\xff\xd8" + uuid.encode()


def spelled_out(messages: list[dict[str, Any]], held: ImageLedger | None, with_uuid: bool) -> Any:
    """The body's messages, written in the plainest way."""
    out = copy.deepcopy(messages)
    for message in out:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if "uuid" in part:
                there = held is not None and part["uuid"] in held
                data = frame_bytes(part["uuid"])
                part["image_url"] = None if there else {"url": orjson.loads(orjson.dumps(data_url(data)))}
                if not with_uuid:
                    del part["uuid"]
    return out


@given(
    st.lists(MESSAGES, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.lists(MESSAGES, max_size=3), st.booleans()), max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_a_window_is_written_as_if_it_were_written_anew(
    messages: list[dict[str, Any]], steps: list[tuple[int, list[dict[str, Any]], bool]], known: set[int]
) -> None:
    """Contract: whatever a window is made to forget or to take in, and wherever its request goes."""
    window, ledger = Window("w"), ImageLedger(10)
    ledger.sent(f"f{number}" for number in known)
    for back, added, by_uuid in [(0, [], True), *steps]:
        messages = [*messages[: max(0, len(messages) - back)], *added]
        held = ledger if by_uuid else None
        grown = render(messages, frame_bytes, held, with_uuid=by_uuid, window=window)
        anew = render(messages, frame_bytes, held, with_uuid=by_uuid)
        assert orjson.dumps(grown.messages) == orjson.dumps(anew.messages)
        assert (grown.uuids, grown.nulls, grown.least) == (anew.uuids, anew.nulls, anew.least)
        assert orjson.loads(orjson.dumps(grown.messages)) == spelled_out(messages, held, by_uuid)
        assert grown.nulls == sum(held is not None and uuid in held for uuid in grown.uuids)


def test_a_window_keeps_what_it_wrote_and_no_room_beside_it() -> None:
    """Contract: what stays of a turn is of the size of its text: a service holds tens of thousands."""
    turns = [
        each
        for number in range(200)
        for each in (user(f"f{number}"), {"role": "assistant", "content": f"said {number}"})
    ]
    window, held = Window("w"), ImageLedger(1000)
    held.sent(f"f{number}" for number in range(200))
    tracemalloc.start()
    try:
        render(turns, Frames(), held, window=window)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(window.written) == 400
    assert kept < 400 * 1024
