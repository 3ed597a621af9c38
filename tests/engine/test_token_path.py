"""Prompts as token ids on stock vLLM: the chat route's prompts and answers, with either image cache.

Contract: for every request of a window (a tick, a prewarm, a reply that goes on from its tag, a changed open
turn) the ids that are sent are those of the chat route, and so are the greedy answer and what of the prompt
is found in the cache. An image that the engine dropped, and an engine that was killed, cost no answer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import httpx
import orjson
import pytest

from bridges.chat_engine import VllmChat
from bridges.deadline import DeadlineWatch
from bridges.engine import ChatRequest, Deadlines, EngineError, Finished, Window
from bridges.image_ledger import ImageLedger, render
from engine_launch import selfcheck
from orchestrator.engine_fit import token_route
from orchestrator.runtime.clock import SystemClock
from orchestrator.token_watch import TokenWatch
from tests.bridges.chatting import ask, said, text_of, until, user
from tests.engine.watching import pictures, watch
from tests.engine_launch.real_engine import TAGS, RealEngine
from tests.fakes.pictures import jpeg

pytestmark = pytest.mark.engine

Kind = Literal["content_parts", "features"]
HEAD = {"role": "system", "content": "You watch a video and speak when it matters. " * 20}
GREEDY = {"max_tokens": 24, "temperature": 0.0, "skip_special_tokens": False}
_numbers = itertools.count(int.from_bytes(os.urandom(3), "big") << 8)


def fresh() -> str:
    return f"f{next(_numbers)}"


def frames(uuid: str) -> bytes:
    return jpeg(int(uuid[1:]), 448, 320)


@pytest.fixture(
    scope="module",
    params=[
        ("programmed-cpu", "shm"),
        ("programmed-cpu", "lru"),
        ("standin-cpu", "lru"),
    ],
    ids="-".join,
)
def engine(request: pytest.FixtureRequest, small_engine: Callable[..., RealEngine]) -> Iterator[RealEngine]:
    profile, cache = request.param
    yield small_engine(profile=profile, image_cache=cache, images=24)


class _Everything(ImageLedger):
    def __contains__(self, uuid: str) -> bool:
        return True


class Both:
    """One window, asked by ids and by messages. Each keeps to a cache salt of its own."""

    def __init__(self, engine: RealEngine, kind: Kind) -> None:
        facts = engine.facts
        assert facts.tokens is not None, "the self-check finds a way on this engine"
        route = token_route(replace(facts.tokens, kind=kind))
        self.ids = VllmChat(engine.url, engine.model, token_route=route)
        self.plain = VllmChat(engine.url, engine.model)
        self.window, self.engine, self.kind = fresh(), engine, kind

    async def __aenter__(self) -> Both:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ids.aclose()
        await self.plain.aclose()

    def asked(self, messages: list[dict[str, Any]], salt: str, **params: Any) -> ChatRequest:
        params = {**GREEDY, "cache_salt": f"{self.window}-{salt}", **params}
        return ChatRequest(messages, params, Deadlines(120, 240), None, "decision", Window(self.window))

    async def ask(self, messages: list[dict[str, Any]], **params: Any) -> tuple[str, Finished]:
        """Both answers, which must be one."""
        request = self.asked(messages, "ids", **params)
        mine, done = await ask(self.ids, request, frames)  # type: ignore[arg-type]
        theirs, there = await ask(self.plain, self.asked(messages, "plain", **params), frames)  # type: ignore[arg-type]
        assert text_of(mine) == text_of(theirs)
        assert (done.prompt_tokens, done.cached_tokens) == (there.prompt_tokens, there.cached_tokens)
        assert (done.completion_tokens, done.finish_reason) == (there.completion_tokens, there.finish_reason)
        assert done.stop_token_id == there.stop_token_id
        await self.one_prompt(request)
        return text_of(mine), done

    async def one_prompt(self, request: ChatRequest) -> None:
        """What was sent as ids, expanded by the engine, is what the chat route makes of the messages."""
        prompts = self.ids.tokens.prompts(request)
        assert prompts is not None and self.ids._ids is not None
        async with DeadlineWatch(SystemClock(), request.deadlines) as deadlines:
            asked = await self.ids._ids.asked(request, prompts, deadlines)
            call = await self.ids._ids.call(asked, frames, deadlines)
        body = orjson.loads(call.body)
        by_chat = {
            "model": self.engine.model,
            "messages": render(request.messages, frames, _Everything(10)).messages,
            **request.params,
            "max_tokens": 1,
            "return_token_ids": True,
        }
        async with httpx.AsyncClient(base_url=self.engine.url, timeout=120) as client:
            sent = {"content": orjson.dumps(by_chat), "headers": {"content-type": "application/json"}}
            there = (await client.post("/v1/chat/completions", **sent)).json()
            if self.kind == "features":
                assert body["token_ids"] == there["prompt_token_ids"]
                return
            body |= {"stream": False, "stream_options": None, "return_token_ids": True}
            here = (await client.post(call.route, json=body)).json()
            assert here["prompt_token_ids"] == there["prompt_token_ids"]


def kinds(engine: RealEngine) -> list[Kind]:
    """``features`` with the lru cache alone: with shm they end the engine."""
    return ["content_parts", "features"] if engine.facts.image_cache == "lru" else ["content_parts"]


async def test_a_window_by_ids_is_the_window_by_messages(engine: RealEngine) -> None:
    for kind in kinds(engine):
        async with Both(engine, kind) as both:
            messages: list[dict[str, Any]] = [HEAD]
            for tick in range(12):
                query = ["What do you see? "] if tick in (2, 7) else []
                shown = [fresh()] if tick % 4 else [fresh(), fresh()]
                messages.append(user(*query, f"<{tick}.0 seconds>", *shown))
                _, done = await both.ask(messages)
                assert (done.path, done.fallback) == (kind if tick else "payloads", None)
                messages.append(said(("</silence>", "</response> A dog – 犬 🐕.", "</silence>")[tick % 3]))
            warm = messages[:-1]
            _, done = await both.ask(warm, max_tokens=1, add_generation_prompt=False)
            assert done.path == kind
            turn = user("<12.0 seconds>", fresh())
            prefix = [*messages, turn, said("</response>")]
            _, done = await both.ask(prefix, add_generation_prompt=False, continue_final_message=True)
            assert done.path == kind
            grown = {**turn, "content": [*turn["content"], *user("And now? ", fresh())["content"]]}
            _, done = await both.ask([*messages, grown])  # the open turn of a tick that failed
            assert (done.path, done.retries) == (kind, 0)


async def test_sampling_and_logprobs_are_the_chat_routes(engine: RealEngine) -> None:
    for kind in kinds(engine):
        async with Both(engine, kind) as both:
            messages: list[dict[str, Any]] = [HEAD, user("<0.0 seconds>", fresh())]
            await both.ask(messages)
            messages += [said("</silence>"), user("<1.0 seconds>", fresh())]
            point = engine.facts.decision_ids
            options = {
                "temperature": 0.8, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.1,
                "presence_penalty": 1.5, "seed": 7, "logprobs": True, "top_logprobs": 20,
                "stop_token_ids": [point["silence"]],
                "logit_bias": {str(point["response"]): 0.5},
            }  # fmt: skip
            got = []
            for chat, salt in ((both.ids, "ids"), (both.plain, "plain")):
                deltas, done = await ask(chat, both.asked(messages, salt, **options), frames)  # type: ignore[arg-type]
                tops = deltas[0].top_logprobs[0] if deltas else {}
                got.append((text_of(deltas), {n: round(tops[n], 3) for n in point.values() if n in tops}))
                assert done.path == (kind if salt == "ids" else "uuids")
            assert got[0] == got[1]


async def test_images_that_the_engine_dropped_are_shown_again_within_the_request(engine: RealEngine) -> None:
    for kind in kinds(engine):
        async with Both(engine, kind) as both:
            messages: list[dict[str, Any]] = [HEAD, user("<0.0 seconds>", fresh())]
            await both.ask(messages)
            async with httpx.AsyncClient(base_url=engine.url, timeout=120) as client:
                (await client.post("/reset_mm_cache")).raise_for_status()
            messages += [said("</silence>"), user("<1.0 seconds>", fresh())]
            _, done = await ask(both.ids, both.asked(messages, "ids"), frames)  # type: ignore[arg-type]
            assert (done.path, done.retries) == ("payloads", 1)
            assert done.fallback in ("evicted", "engine_server_error")
            messages += [said("</silence>"), user("<2.0 seconds>", fresh())]
            _, done = await ask(both.ids, both.asked(messages, "ids"), frames)  # type: ignore[arg-type]
            assert (done.path, done.fallback) == (kind, None)


@pytest.mark.parametrize("engine", [("programmed-cpu", "shm")], indirect=True, ids=["programmed-cpu-shm"])
def test_a_replay_keeps_to_ids_across_windows(engine: RealEngine, tmp_path: Path) -> None:
    watched = asyncio.run(watch(engine, tmp_path, pictures(36), seed=5, family=_family(engine)))
    assert (watched.outcome, watched.error) == ("complete", None)
    windows = len({row["window"] for row in watched.rows})
    assert windows > 1, "no more than 24 images a prompt"
    paths = [row["path"] for row in watched.rows if row["path"]]
    assert {row["path_fallback"] for row in watched.rows} == {None}
    assert paths.count("content_parts") >= len(paths) - 2 * windows
    short = [row for row in watched.rows if row["shortfall"]]
    assert len(short) <= windows, short


def _family(engine: RealEngine) -> str:
    assert engine.profile is not None and engine.profile.family is not None
    return engine.profile.family


@pytest.mark.parametrize("engine", [("programmed-cpu", "shm")], indirect=True, ids=["programmed-cpu-shm"])
async def test_an_engine_that_was_killed_is_checked_before_ids_go_to_it_again(engine: RealEngine) -> None:
    async with Both(engine, "content_parts") as both:
        messages: list[dict[str, Any]] = [HEAD, user("<0.0 seconds>", fresh())]
        await both.ask(messages)
        engine.kill()
        messages += [said("</silence>"), user("<1.0 seconds>", fresh())]
        with pytest.raises(EngineError):
            await ask(both.ids, both.asked(messages, "ids"), frames)  # type: ignore[arg-type]
        await asyncio.to_thread(engine.restart)
        _, done = await ask(both.ids, both.asked(messages, "ids"), frames)  # type: ignore[arg-type]
        assert (done.path, both.ids.tokens.name) == ("payloads", "lost")

        def learn() -> Any:
            return token_route(
                selfcheck.tokens_again(engine.url, engine.facts, tags=TAGS, launched=engine.launched)
            )

        watching = asyncio.create_task(TokenWatch(both.ids, learn, SystemClock(), period_s=0.2).run())
        await until(lambda: both.ids.tokens.name == "content_parts")
        watching.cancel()
        for tick in (2, 3):
            messages += [said("</silence>"), user(f"<{tick}.0 seconds>", fresh())]
            _, done = await ask(both.ids, both.asked(messages, "ids"), frames)  # type: ignore[arg-type]
        assert (done.path, done.fallback) == ("content_parts", None)
