"""Prompts as token ids over a real socket: the same answers for less, and messages whenever ids fail."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bridges.chat_engine import VllmChat
from bridges.engine import ChatRequest, Delta, EngineServerError, Finished, Window
from bridges.token_path import FAULTS, PAUSE_S
from tests.bridges.chatting import Frames, ask, request, said, text_of, user
from tests.fakes.clock import VirtualClock
from tests.fakes.engine import GENERATE, FakeEngine, Fault, Seen
from tests.fakes.engine_ids import route_of
from tests.fakes.engine_output import Send, reply_json
from tests.fakes.engine_script import Answer

HEAD = {"role": "system", "content": "You watch a video and speak when it matters."}
TAGS = ("</silence>", "</response>")
SCRIPT = ("</silence>", "</response> A dog.", "</silence>")


def by_ids(seen: Seen) -> bool:
    return seen.path == GENERATE


class Watching:
    """A session that shows a frame a tick. ``messages``: of the last request."""

    def __init__(self, chat: VllmChat, frames: Frames | None = None, window: str = "s1/0") -> None:
        self.chat, self.frames, self.window = chat, frames or Frames(), window
        self.messages: list[dict[str, Any]] = [HEAD]
        self.tick = 0

    def asks(self, **params: Any) -> ChatRequest:
        base = request(*self.messages, **params)
        return replace(base, purpose="decision", window=Window(self.window))

    async def next(self, **params: Any) -> tuple[list[Delta], Finished]:
        self.tick += 1
        self.messages.append(user(f"<{self.tick}.0 seconds>", f"f{self.tick}"))
        deltas, done = await ask(self.chat, self.asks(**params), self.frames)
        self.messages.append(said(text_of(deltas) or "</silence>"))
        return deltas, done


async def test_from_its_second_tick_on_a_window_goes_by_ids_with_the_same_answers() -> None:
    async with (
        FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine,
        FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as other,
    ):
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        plain = VllmChat(other.url, other.model)
        ours, theirs = Watching(chat), Watching(plain)
        for tick in range(1, 9):
            mine, done = await ours.next(seed=tick, cache_salt="t")
            told, there = await theirs.next(seed=tick, cache_salt="t")
            assert text_of(mine) == text_of(told)
            assert (done.prompt_tokens, done.cached_tokens) == (there.prompt_tokens, there.cached_tokens)
            assert (done.finish_reason, done.completion_tokens) == (
                there.finish_reason,
                there.completion_tokens,
            )
            assert (done.path, done.fallback) == ("content_parts" if tick > 1 else "payloads", None)
            assert (there.path, there.fallback) == ("uuids" if tick > 1 else "payloads", None)
            assert engine.asked[-1].payloads == (f"f{tick}",)
            assert done.retries == 0 and not done.suspect
        assert chat.statistics()["tokens"] == {"path": "content_parts", "windows": 1, "fallbacks": {}}
        await chat.aclose()
        await plain.aclose()


async def test_pictures_are_registered_first_where_only_features_are_taken() -> None:
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer, "features"))
        watching = Watching(chat)
        for tick in range(1, 5):
            deltas, done = await watching.next()
            assert text_of(deltas) == SCRIPT[(tick - 1) % 3]
            assert done.path == ("features" if tick > 1 else "payloads")
        registered, asked = engine.asked[-2:]
        assert registered.kind == "probe" and registered.payloads == ("f4",)
        assert asked.payloads == () and asked.images == ("f1", "f2", "f3", "f4")
        assert asked.prompt_tokens == len(asked.json["token_ids"])
        await chat.aclose()


async def test_a_picture_that_the_engine_dropped_costs_one_request_more_and_no_tick() -> None:
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        watching = Watching(chat)
        for _ in range(3):
            await watching.next()
        for _ in range(2 * FAULTS):
            engine.image_cache.drop("f2")
            _, done = await watching.next()
            assert (done.path, done.fallback, done.retries) == ("payloads", "evicted", 1)
            assert len(engine.asked[-1].payloads) == watching.tick
            _, done = await watching.next()
            assert (done.path, done.fallback) == ("content_parts", None)
        assert chat.statistics()["tokens"]["fallbacks"] == {"evicted": 2 * FAULTS}
        await chat.aclose()


@pytest.mark.parametrize("told", [{}, {"tokens": None}, {"tokens": ["a"]}, [], "no", {"tokens": 5}])
async def test_ids_that_are_none_cost_a_way_and_no_tick(told: object) -> None:
    class Odd(FakeEngine):
        async def _tokenize(self, seen: Seen, send: Send) -> None:
            await reply_json(send, 200, told)  # type: ignore[arg-type]

    async with Odd(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        watching = Watching(chat)
        for tick in range(3):
            deltas, done = await watching.next()
            assert text_of(deltas) == SCRIPT[tick] and done.path in ("payloads", "uuids")
        with pytest.raises(EngineServerError):
            await chat.tokenize([user("x")], watching.frames)
        await chat.aclose()


async def test_repeated_faults_close_the_path_until_the_engine_is_checked_again() -> None:
    clock = VirtualClock()
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        route = route_of(engine.tokenizer)
        chat = VllmChat(engine.url, engine.model, token_route=route, clock=clock)
        watching = Watching(chat)
        await watching.next()
        engine.faults.append(Fault(when=by_ids, times=None, status=500))
        for count in range(1, FAULTS + 1):
            _, done = await watching.next()
            assert (done.path, done.fallback) == ("payloads", "engine_server_error")
            assert chat.tokens.name == ("faults" if count == FAULTS else "content_parts")
        engine.faults.clear()
        _, done = await watching.next()
        assert (done.path, done.fallback, chat.tokens.stale) == ("uuids", None, False)
        await clock.advance(PAUSE_S)
        assert chat.tokens.stale
        chat.tokens.renew(route)
        _, done = await watching.next()
        assert done.path == "uuids"
        _, done = await watching.next()
        assert (done.path, chat.tokens.stale) == ("content_parts", False)
        await chat.aclose()


async def test_an_engine_that_reads_another_prompt_is_not_listened_to() -> None:
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        watching = Watching(chat)
        for _ in range(2):
            await watching.next()
        engine.faults.append(Fault(when=by_ids, prompt_tokens=40))
        deltas, done = await watching.next()
        assert text_of(deltas) == SCRIPT[0] and not done.suspect  # the engine counts two answered ticks more
        assert (done.path, done.fallback, done.retries) == ("payloads", "mismatch", 1)
        await chat.aclose()


async def test_after_a_loss_nothing_goes_by_ids_before_a_check() -> None:
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        route = route_of(engine.tokenizer)
        chat = VllmChat(engine.url, engine.model, token_route=route)
        watching = Watching(chat)
        for _ in range(2):
            await watching.next()
        await engine.restart()
        engine.faults.append(Fault(drop=True))
        try:
            await watching.next()
        except Exception as lost:
            assert getattr(lost, "code", "") == "engine_unreachable"
        assert (chat.tokens.name, chat.tokens.stale) == ("lost", True)
        _, done = await watching.next()
        assert (done.path, done.fallback) == ("payloads", None)
        chat.tokens.renew(None)
        assert (chat.tokens.name, chat.tokens.stale) == ("none", False)
        await chat.aclose()


async def test_what_ids_can_not_say_goes_as_messages() -> None:
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        watching = Watching(chat)
        await watching.next()
        _, done = await watching.next(tool_choice="none")
        assert (done.path, done.fallback) == ("uuids", "untranslatable")
        _, done = await watching.next()
        assert (done.path, done.fallback) == ("content_parts", None)
        await chat.aclose()


async def test_both_failing_is_the_chat_routes_error() -> None:
    async with FakeEngine(SCRIPT, tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        watching = Watching(chat)
        await watching.next()
        engine.faults.append(Fault(times=None, status=500))
        try:
            await watching.next()
        except EngineServerError:
            pass
        else:
            raise AssertionError("answered")
        assert [seen.path for seen in engine.asked[-2:]] == [GENERATE, "/v1/chat/completions"]
        await chat.aclose()


async def test_decisions_are_read_from_logprobs_by_text() -> None:
    answer = Answer("</silence>", {"</response> A dog.": 0.25})
    async with FakeEngine([answer], tags=TAGS, image_tokens=9) as engine:
        route = route_of(engine.tokenizer, spell=TAGS)
        chat = VllmChat(engine.url, engine.model, token_route=route)
        watching = Watching(chat)
        options = {"logprobs": True, "top_logprobs": 20}
        (first, *_), _ = await watching.next(**options)
        (second, *_), done = await watching.next(**options)
        assert done.path == "content_parts"
        assert first.top_logprobs == second.top_logprobs
        assert set(second.top_logprobs[0]) == {engine.tokenizer.id_of(tag) for tag in TAGS}
        await chat.aclose()


async def test_a_reply_is_continued_and_a_window_warmed_by_ids() -> None:
    async with FakeEngine(["</response> A dog."], tags=TAGS, image_tokens=9) as engine:
        chat = VllmChat(engine.url, engine.model, token_route=route_of(engine.tokenizer))
        watching = Watching(chat)
        await watching.next()
        watching.messages += [user("<9.0 seconds>", "f9"), said("</response>")]
        params = {"add_generation_prompt": False, "continue_final_message": True}
        deltas, done = await ask(chat, watching.asks(**params))
        assert (text_of(deltas), done.path) == (" A dog.", "content_parts")
        watching.messages.pop()
        warm = watching.asks(max_tokens=1, add_generation_prompt=False)
        _, done = await ask(chat, warm)
        assert done.path == "content_parts" and engine.asked[-1].kind == "probe"
        await chat.aclose()
