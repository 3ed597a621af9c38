"""``VllmChat`` against the fake engine over real sockets: answers, usage, figures, errors, deadlines."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from bridges.chat_engine import VllmChat
from bridges.circuit import EngineState
from bridges.engine import (
    BadImage,
    ContextOverflow,
    EngineBroken,
    EngineDenied,
    EngineError,
    EngineRefused,
    EngineServerError,
    EngineTimeout,
    EngineUnreachable,
    TooManyImages,
)
from tests.bridges.chatting import Frames, ask, request, said, text_of, until, user
from tests.fakes.clock import VirtualClock
from tests.fakes.engine import Answer, FakeEngine, Fault, has_image


@asynccontextmanager
async def pair(
    clock: VirtualClock | None = None, **options: Any
) -> AsyncIterator[tuple[FakeEngine, VllmChat]]:
    chat_options = {
        key: options.pop(key) for key in ("uuid_parts", "held_images", "api_key") if key in options
    }
    if clock is not None:
        options.update(sleep=clock.sleep, now=clock.now)
    async with FakeEngine(**options) as engine:
        chat = VllmChat(engine.url + "/v1", engine.model, clock=clock, **chat_options)
        try:
            yield engine, chat
        finally:
            await chat.aclose()


# --- answers ------------------------------------------------------------------------------------------


async def test_streams_text_and_reports_usage() -> None:
    async with pair(script=["</response> A dog runs."]) as (engine, chat):
        deltas, done = await ask(chat, request(user("<1.0s>", "f1"), return_token_ids=True))
        assert text_of(deltas) == "</response> A dog runs."
        assert len(deltas) > 2
        ids = [number for delta in deltas for number in delta.token_ids]
        assert ids == engine.tokenizer.ids(engine.tokenizer.encode("</response> A dog runs.<|im_end|>"))
        seen = engine.chats[-1]
        assert (done.prompt_tokens, done.completion_tokens) == (seen.prompt_tokens, len(ids))
        assert (done.finish_reason, done.cached_tokens, done.retries) == ("stop", 0, 0)
        assert done.body_bytes == seen.body_bytes == chat.statistics()["body_bytes"]
        assert 0 < done.ttft_ms <= done.total_ms
        assert len(done.token_times_ms) == len(deltas) and done.ttft_ms == done.token_times_ms[0]
        assert not done.suspect
        assert seen.headers["x-session-id"] == "s1"
        assert chat.state is EngineState.UP


async def test_requests_take_turns_by_when_others_wait_for_them() -> None:
    """What may wait for half a second goes after all that is asked within it, and before what is later."""
    times = iter(1_800_000_000.0 + later for later in (0.0, 0.0, 0.4, 0.6))
    async with FakeEngine() as engine:
        chat = VllmChat(engine.url, engine.model, priority=True, wall=lambda: next(times))
        for behind_s in (0.0, 0.5, 0.0, 0.0):
            await ask(chat, replace(request(user("<1.0s>", "f1")), behind_s=behind_s))
        tick, summary, within, after = (seen.json["priority"] for seen in engine.chats)
        assert tick < within < summary < after
        await chat.aclose()


async def test_an_engine_that_has_no_priorities_is_told_none() -> None:
    async with pair(priority_scheduling=False) as (engine, chat):
        await ask(chat, replace(request(user("<1.0s>", "f1")), behind_s=0.5))
        assert "priority" not in engine.chats[-1].json


async def test_one_connection_serves_one_request_after_the_other() -> None:
    """Contract: every answer, refused or not, is read to its end, so nothing looks like a disconnect."""
    async with pair(max_images=1) as (engine, chat):
        for _ in range(3):
            await ask(chat, request(user("f1")))
        with pytest.raises(TooManyImages):
            await ask(chat, request(user("f1", "f2")))
        await ask(chat, request(user("f1")))
        assert len({seen.peer for seen in engine.chats}) == 1
        assert not any(seen.disconnected for seen in engine.chats)


async def test_the_next_turn_is_cached_to_the_block() -> None:
    async with pair(script=["</silence>"]) as (_, chat):
        first = user("A long enough beginning, so that a few blocks are full. " * 8, "f1")
        _, one = await ask(chat, request(first))
        _, two = await ask(chat, request(first, said("</silence>"), user("f2")))
        assert two.cached_tokens == (one.prompt_tokens + one.completion_tokens - 1) // 32 * 32 > 0


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
async def test_whole_characters_from_any_cut(cut: int) -> None:
    said_text = "</response> 小狗 \U0001f415\u200d\U0001f9ba naïve"
    async with pair(script=[said_text], cut=cut) as (_, chat):
        deltas, _ = await ask(chat, request(user("f1")))
        assert text_of(deltas) == said_text
        assert not any("\ufffd" in delta.text for delta in deltas)


async def test_logprobs_by_token_id() -> None:
    answer = Answer("</silence>", {"</response> Hi.": 0.25})
    async with pair(script=[answer]) as (engine, chat):
        asked = request(user("f1"), logprobs=True, top_logprobs=20, return_token_ids=True)
        deltas, _ = await ask(chat, asked)
        top = deltas[0].top_logprobs[0]
        tokens = engine.tokenizer
        assert math.exp(top[tokens.id_of("</silence>")]) == pytest.approx(0.75)
        assert math.exp(top[tokens.id_of("</response>")]) == pytest.approx(0.25)
        assert sum(len(delta.top_logprobs) for delta in deltas) == sum(len(d.token_ids) for d in deltas)


async def test_a_bias_turns_the_decision() -> None:
    answer = Answer("</silence>", {"</response> Hi.": 0.25})
    async with pair(script=[answer]) as (engine, chat):
        bias = {str(engine.tokenizer.id_of("</response>")): math.log(0.9 / 0.1)}
        deltas, _ = await ask(chat, request(user("f1"), logit_bias=bias, temperature=0))
        assert text_of(deltas) == "</response> Hi."


async def test_a_stop_token_is_counted_and_not_shown() -> None:
    async with pair(script=["</silence>"], tags=("</silence>",)) as (engine, chat):
        stop = engine.tokenizer.id_of("</silence>")
        deltas, done = await ask(chat, request(user("f1"), stop_token_ids=[stop], return_token_ids=True))
        assert text_of(deltas) == ""
        assert [delta.token_ids for delta in deltas] == [(stop,)]
        assert (done.stop_token_id, done.completion_tokens) == (stop, 1)


async def test_the_engine_lost_the_prompt() -> None:
    async with pair() as (engine, chat):
        engine.faults.append(Fault(prompt_tokens=1))
        asked = request(user("Some words that surely are more than one token. " * 5, "f1"))
        assert (await ask(chat, asked))[1].suspect
        assert not (await ask(chat, asked))[1].suspect
        assert chat.statistics()["suspect"] == 1


async def test_cached_tokens_unknown() -> None:
    async with pair(reports_cached=False) as (_, chat):
        assert (await ask(chat, request(user("f1"))))[1].cached_tokens is None


async def test_no_usage_at_the_end() -> None:
    async with pair() as (engine, chat):
        engine.faults.append(Fault(no_usage=True))
        _, done = await ask(chat, request(user("f1"), return_token_ids=True))
        assert (done.prompt_tokens, done.suspect) == (0, True)
        assert done.completion_tokens == engine.chats[-1].completion_tokens


async def test_tokenize_agrees_with_usage() -> None:
    async with pair() as (_, chat):
        messages = (user("hello", "f1", "f2"), said("x"), user("f3"))
        _, done = await ask(chat, request(*messages))
        assert await chat.tokenize(messages, Frames()) == done.prompt_tokens


async def test_api_key() -> None:
    async with pair(api_key="k") as (engine, chat):
        await ask(chat, request(user("f1"), session=None))
        assert engine.chats[-1].headers["authorization"] == "Bearer k"
        assert "x-session-id" not in engine.chats[-1].headers


# --- typed errors -------------------------------------------------------------------------------------


async def refused(chat: VllmChat, frames: Frames | None = None, **params: Any) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await ask(chat, request(user("f1", "f2", "f3"), **params), frames)
    return caught.value


async def test_image_limit() -> None:
    async with pair(max_images=2) as (_, chat):
        error = await refused(chat)
        assert isinstance(error, TooManyImages) and error.limit == 2
        assert chat.state is EngineState.UP


async def test_context_overflow_with_and_without_images() -> None:
    async with pair(context_tokens=20) as (_, chat):
        assert isinstance(await refused(chat), ContextOverflow)
        with pytest.raises(ContextOverflow):
            await ask(chat, request(user("text " * 100)))


async def test_bad_image() -> None:
    async with pair() as (_, chat):
        with pytest.raises(BadImage):
            await ask(chat, request(user("f1")), lambda _uuid: b"not a picture")  # type: ignore[arg-type]


async def test_other_refusals_and_server_errors() -> None:
    async with pair() as (engine, chat):
        engine.faults.append(Fault(status=422, message="top_k is too large"))
        error = await refused(chat)
        assert type(error) is EngineRefused and "too large" in error.message
        engine.faults.append(Fault(status=503, message="busy"))
        assert isinstance(await refused(chat), EngineServerError)
        engine.faults.append(Fault(status=429, message="slow down"))
        assert isinstance(await refused(chat), EngineServerError)


async def test_an_engine_that_fails_at_every_request_answers_nobody() -> None:
    """A proxy without its engine, an engine that is asleep: it is there, and that is all."""
    async with pair() as (engine, chat):
        engine.faults.append(Fault(status=503, message="no backend", times=None))
        for state in (EngineState.LATE, EngineState.LATE, EngineState.WEDGED):
            assert isinstance(await refused(chat), EngineServerError)
            assert chat.state is state
        assert not await chat.ping(1.0)
        engine.faults.clear()
        assert await chat.ping(1.0) and chat.state is EngineState.UP


@pytest.mark.parametrize("status", [401, 403, 404, 405])
async def test_whoever_takes_nothing_of_ours_is_no_engine_of_ours(status: int) -> None:
    """Another model may be served there by now, or another key be wanted."""
    async with pair() as (engine, chat):
        await ask(chat, request(user("f1")))
        engine.faults.append(Fault(status=status, message="The model `x` does not exist.", times=None))
        error = await refused(chat)
        assert isinstance(error, EngineDenied) and "does not exist" in error.message
        assert chat.state is EngineState.DOWN and chat.statistics()["denied"]
        assert chat.statistics()["images_held"] == 0, "who comes back holds none"
        assert not await chat.ping(1.0)
        engine.faults.clear()
        await ask(chat, request(user("f1")))
        assert chat.state is EngineState.UP and not chat.statistics()["denied"]


async def test_broken_in_the_middle() -> None:
    async with pair(script=["</response> A dog."]) as (engine, chat):
        engine.faults.append(Fault(cut_after=3))
        error = await refused(chat)
        assert isinstance(error, EngineBroken) and error.text == "</response> "
        assert chat.state is EngineState.DOWN


async def test_an_error_event_in_the_middle_counts_as_broken_only_after_text() -> None:
    async with pair() as (engine, chat):
        engine.faults.append(Fault(status=400, message="maximum context length", in_stream=True))
        assert isinstance(await refused(chat), ContextOverflow)


async def test_broken_before_the_first_token_and_no_connection() -> None:
    async with pair() as (engine, chat):
        for fault in (Fault(drop=True), Fault(cut_after=0)):
            engine.faults.append(fault)
            assert isinstance(await refused(chat), EngineUnreachable)
        engine.kill()
        assert isinstance(await refused(chat), EngineUnreachable)
        assert chat.state is EngineState.DOWN
        assert not await chat.ping(1.0)
        await engine.restart()
        assert await chat.ping(1.0)
        assert chat.state is EngineState.UP


async def test_an_engine_that_dies_on_one_image() -> None:
    """Every request with that image kills it; others are served by the next instance."""
    async with pair() as (engine, chat):
        engine.faults.append(Fault(die=True, when=has_image("f2"), times=None))
        for _ in range(2):
            assert isinstance(await refused(chat), EngineUnreachable)
            await engine.restart()
        await ask(chat, request(user("f1")))


# --- deadlines ----------------------------------------------------------------------------------------


async def test_deadlines_follow_the_injected_clock() -> None:
    clock = VirtualClock()
    async with pair(clock, script=["</response> A dog."]) as (engine, chat):
        cases = [(Fault(hang=True), "first_token"), (Fault(stall_after=2), "total")]
        for fault, stage in cases:
            engine.faults.append(fault)
            caught: list[EngineTimeout] = []

            async def run(caught: list[EngineTimeout] = caught) -> None:
                try:
                    await ask(chat, request(user("f1"), first=3, total=10))
                except EngineTimeout as error:
                    caught.append(error)

            before = len(engine.chats)
            task = asyncio.create_task(run())
            await until(lambda before=before: len(engine.chats) > before)
            if stage == "total":
                await until(lambda: engine.chats[-1].first_token_at is not None)
            await clock.advance(2.9)
            assert not caught
            await clock.advance(7.2)
            await task
            assert caught[0].stage == stage
            await until(lambda: engine.chats[-1].disconnected)
        assert chat.state is EngineState.LATE


async def test_three_misses_are_a_wedged_engine_though_health_is_fine() -> None:
    async with pair() as (engine, chat):
        engine.faults.append(Fault(hang=True, times=3))
        states = []
        for _ in range(3):
            assert isinstance(await refused(chat, first=0.02, total=0.02), EngineTimeout)
            states.append(chat.state)
        assert states == [EngineState.LATE, EngineState.LATE, EngineState.WEDGED]
        assert chat.statistics()["timeouts"] == 3 and chat.statistics()["in_flight"] == 0
        assert await chat.ping(10)
        assert chat.state is EngineState.UP


async def test_requests_side_by_side_miss_once() -> None:
    async with pair() as (engine, chat):
        engine.faults.append(Fault(hang=True, times=4))
        await asyncio.gather(*(refused(chat, first=0.05, total=0.05) for _ in range(4)))
        assert (chat.state, chat.statistics()["timeouts"]) == (EngineState.LATE, 4)


async def test_a_slow_reader_is_not_cancelled_by_the_deadline_but_told() -> None:
    clock = VirtualClock()
    async with (
        pair(clock, script=["</response> A dog."]) as (engine, chat),
        aclosing(chat.chat(request(user("f1"), first=3, total=10), Frames())) as events,
    ):
        engine.faults.append(Fault(stall_after=2))
        await anext(events)
        await clock.advance(11)
        with pytest.raises(EngineTimeout):
            async for _ in events:
                pass


async def test_closing_the_iterator_aborts_the_request() -> None:
    async with pair(script=["</response> A dog."]) as (engine, chat):
        engine.faults.append(Fault(stall_after=2))
        async with aclosing(chat.chat(request(user("f1")), Frames())) as events:
            await anext(events)
        await until(lambda: engine.chats[-1].disconnected)
        assert chat.statistics()["in_flight"] == 0
        assert chat.state is EngineState.UP
