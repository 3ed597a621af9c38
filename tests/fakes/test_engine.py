"""The fake engine accounts as stock vLLM does (figures and wordings measured on the real one)."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.bridges.chatting import said, user
from tests.fakes.engine import Answer, FakeEngine
from tests.fakes.engine_tokens import Tokenizer
from tests.fakes.pictures import jpeg


def filled(*messages: dict[str, Any], null: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    for message in messages:
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "image_url" and part["uuid"] in null:
                part["image_url"] = None
            elif part["type"] == "image_url":
                data = base64.b64encode(jpeg(int(part["uuid"][1:]), 96, 64)).decode()
                part["image_url"] = {"url": f"data:image/jpeg;base64,{data}"}
    return list(messages)


async def chat(engine: FakeEngine, messages: list[dict[str, Any]], **extra: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=engine.url) as client:
        body = {"model": engine.model, "messages": messages, "max_tokens": 64, **extra}
        return await client.post("/v1/chat/completions", json=body)


def usage(response: httpx.Response) -> tuple[int, int, int]:
    """Prompt, cached and completion tokens."""
    data = response.json()["usage"]
    return data["prompt_tokens"], data["prompt_tokens_details"]["cached_tokens"], data["completion_tokens"]


LONG = "The head of a prompt that fills some blocks. " * 20


async def test_cached_is_all_whole_blocks_of_prompt_and_answer() -> None:
    async with FakeEngine(["</silence>"]) as engine:
        prompt, cached, made = usage(await chat(engine, filled(user(LONG, "f1"))))
        assert cached == 0
        again = filled(user(LONG, "f1"), said("</silence>"), user("f2"))
        assert usage(await chat(engine, again))[1] == (prompt + made - 1) // 32 * 32
        whole = usage(await chat(engine, again))
        assert whole[1] == (whole[0] - 1) // 32 * 32


@pytest.mark.parametrize(
    "messages",
    [
        filled(user(LONG, "f2", LONG), said("</silence>"), user("f3")),
        filled(user(LONG + " ", "f1", LONG), said("</silence>"), user("f3")),
        filled(user("x" + LONG, "f1", LONG), said("</silence>"), user("f3")),
    ],
)
async def test_what_changed_and_all_behind_it_is_lost(messages: list[dict[str, Any]]) -> None:
    async with FakeEngine(["</silence>"]) as engine:
        prompt, _, made = usage(await chat(engine, filled(user(LONG, "f1", LONG))))
        assert usage(await chat(engine, messages))[1] < (prompt + made - 1) // 32 * 32


async def test_salt_and_eviction() -> None:
    async with FakeEngine(["</silence>"], kv_tokens=320) as engine:
        await chat(engine, filled(user(LONG)))
        assert usage(await chat(engine, filled(user(LONG)), cache_salt="t"))[1] == 0
        assert usage(await chat(engine, filled(user(LONG)), cache_salt="t"))[1] > 0
        await chat(engine, filled(user("Another. " * 160)))
        assert usage(await chat(engine, filled(user(LONG)), cache_salt="t"))[1] == 0
        assert (await chat(engine, filled(user("x")), cache_salt="")).status_code == 400


async def test_images_by_uuid() -> None:
    async with FakeEngine(image_cache=2) as engine:
        assert (await chat(engine, filled(user("f1", "f2")))).status_code == 200
        assert (await chat(engine, filled(user("f1", "f2"), null=("f1", "f2")))).status_code == 200
        await chat(engine, filled(user("f3")))
        missed = await chat(engine, filled(user("f2", "f1"), null=("f1", "f2")))
        message = "Cache miss for image at index 1 but data is not provided."
        assert (missed.status_code, missed.json()["error"]["message"]) == (400, message)
        await engine.restart()
        missed = await chat(engine, filled(user("f3"), null=("f3",)))
        assert "Cache miss for image at index 0" in missed.text


async def test_a_frame_costs_tokens_by_its_size() -> None:
    async with FakeEngine() as engine:
        one = usage(await chat(engine, filled(user("f1"))))[0]
        two = usage(await chat(engine, filled(user("f1", "f2"))))[0]
        assert two - one == 3 * 2 + 2


async def test_stream_and_whole_answer_agree_with_tokenize() -> None:
    async with FakeEngine(["</response> ok"]) as engine, httpx.AsyncClient(base_url=engine.url) as client:
        messages = filled(user(LONG, "f1"))
        count = (await client.post("/tokenize", json={"model": engine.model, "messages": messages})).json()[
            "count"
        ]
        answer = await chat(engine, messages)
        assert usage(answer)[0] == count
        assert answer.json()["choices"][0]["message"]["content"] == "</response> ok"
        missed = await client.post("/tokenize", json={"messages": filled(user("f1"), null=("f1",))})
        assert missed.status_code == 400 and "Cache miss" in missed.text


async def test_ticks_count_per_session_and_randomness_is_seeded() -> None:
    def script(seen: Any) -> str:
        return f"{seen.session}{seen.tick}:{seen.rng.random():.6f}"

    async def run() -> list[str]:
        async with FakeEngine(script, seed=7) as engine, httpx.AsyncClient(base_url=engine.url) as client:
            for session in ("a", "b", "a"):
                body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 64}
                await client.post("/v1/chat/completions", json=body, headers={"x-session-id": session})
            return [seen.text for seen in engine.chats]

    first = await run()
    assert [text.partition(":")[0] for text in first] == ["a0", "b0", "a1"]
    assert first == await run()


async def test_kinds_of_requests() -> None:
    async with FakeEngine(["</silence>"], summaries=["Seen."]) as engine:
        text = []
        for most in (64, 1, 800):
            answer = await chat(engine, filled(user("x")), max_tokens=most)
            text.append(answer.json()["choices"][0]["message"]["content"])
        assert text == ["</silence>", ".", "Seen."]
        assert [seen.kind for seen in engine.chats] == ["decide", "probe", "summary"]


async def test_ends_of_an_answer() -> None:
    async with FakeEngine(["</response> a dog. A cat."]) as engine:
        for extra, text, reason, stop in [
            ({"max_tokens": 3}, "</response> ", "length", None),
            ({"stop": ["dog"]}, "</response> a ", "stop", "dog"),
            ({"stop": "dog", "include_stop_str_in_output": True}, "</response> a dog", "stop", "dog"),
            ({}, "</response> a dog. A cat.", "stop", None),
        ]:
            choice = (await chat(engine, filled(user("x")), **extra)).json()["choices"][0]
            assert choice["message"]["content"] == text
            assert (choice["finish_reason"], choice["stop_reason"]) == (reason, stop)
        continued = filled(user("x"), said("</response>"))
        options = {"continue_final_message": True, "add_generation_prompt": False}
        choice = (await chat(engine, continued, **options)).json()["choices"][0]
        assert choice["message"]["content"] == " a dog. A cat."


async def test_alternatives_show_where_answers_part() -> None:
    answer = Answer("</silence>", {"</response> x": 0.2})
    async with FakeEngine([answer], bytes_per_token=2) as engine:
        response = await chat(engine, filled(user("x")), logprobs=True, top_logprobs=5)
        tops = [token["top_logprobs"] for token in response.json()["choices"][0]["logprobs"]["content"]]
        assert [len(top) for top in tops[:3]] == [1, 2, 1]


def test_appending_text_keeps_whole_tokens() -> None:
    tokens = Tokenizer()
    assert tokens.encode("eight by").startswith(tokens.encode("eigh"))
    assert len(tokens.encode("<|im_end|>x<|im_end|>")) == 12
    assert tokens.decode(tokens.encode("né")[:4]) == "né".encode()
