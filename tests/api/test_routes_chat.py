"""The chat-completions route against scripted sessions."""

from __future__ import annotations

import asyncio

import pytest

from orchestrator.wire.errors import EngineUnavailable
from tests.api.scripted import LIMITS, Server, error, events, image
from tests.fakes.clock import settle


async def test_a_frame_is_answered_with_every_block_of_both_known_servers() -> None:
    async with Server(lambda query, times: "A dog.") as server:
        response = await server.chat(
            "<12.0 seconds>", image(), headers={"x-session-id": "cam"}, model="scripted"
        )
        body = response.json()
        assert response.status_code == 200
        assert response.headers["x-session-id"] == "cam"
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "A dog."}
        assert body["usage"] == {
            "prompt_tokens": 100,
            "completion_tokens": 3,
            "total_tokens": 103,
            "prompt_tokens_details": {"cached_tokens": 64},
        }
        interaction = body["interaction"]
        assert interaction["action"] == "response"
        assert interaction["spoke"] is True
        assert interaction["text"] == "A dog."
        assert interaction["chunk_index"] == 0
        assert interaction["frame_index"] == 1
        assert interaction["inference_skipped"] is False
        assert interaction["latency_ms"] == 12.5
        assert interaction["memory"] == {"long_term_memory": "long", "mid_term_summaries": ["mid"]}
        assert interaction["session_id"] == "cam"
        assert interaction["score"] == 0.9
        assert {"delegated_question", "delegation", "tick", "reason"} <= set(interaction)
        assert "operations" not in interaction
        harness = body["streamingharness"]
        assert harness["main_model"] == "scripted"
        assert set(harness["timing"]) == {
            "adapter_total_ms",
            "pre_inference_ms",
            "prompt_build_ms",
            "vllm_inference_ms",
            "post_process_ms",
        }
        assert server.backend.times == [12_000]
        assert server.backend.query is None


async def test_a_request_without_a_name_gets_one_and_its_follower_joins_it() -> None:
    async with Server() as server:
        first = await server.chat(image())
        name = first.headers["x-session-id"]
        assert first.json()["interaction"]["session_id"] == name
        await server.chat(image(), headers={"x-session-id": name})
        assert len(server.backend.times) == 2
        await server.chat(image())
        assert len(server.backends) == 2


@pytest.mark.parametrize(
    "more",
    [
        {"headers": {"x-streaming-session": "a", "x-session-id": "b"}, "session_id": "c", "user": "d"},
        {"headers": {"x-session-id": "a"}, "session_id": "c", "user": "d"},
        {"session_id": "a", "user": "d"},
        {"user": "a"},
    ],
)
async def test_the_name_is_looked_for_in_order(more: dict[str, object]) -> None:
    async with Server() as server:
        response = await server.chat(image(), **more)
        assert response.headers["x-session-id"] == "a"


async def test_a_query_and_its_frame_give_one_answer_with_all_words() -> None:
    async with Server(lambda query, times: f"{query}!" if times else "") as server:
        response = await server.chat("what is there?", image(), session_id="s")
        assert response.json()["interaction"]["text"] == "what is there?!"
        assert server.backend.asked == ["what is there?"]


async def test_equal_text_repeats_until_a_request_without_text_or_a_header() -> None:
    async with Server() as server:
        for _ in range(3):
            await server.chat("who?", image(), session_id="s")
        assert server.backend.asked == ["who?"]
        await server.chat("who?", image(), session_id="s", headers={"x-query-new": "1"})
        assert server.backend.asked == ["who?"] * 2
        await server.chat(image(), session_id="s")
        await server.chat("who?", image(), session_id="s")
        assert server.backend.asked == ["who?"] * 3
        await server.chat("where?", image(), session_id="s")
        assert server.backend.asked[-1] == "where?"


async def test_text_that_only_repeats_is_answered_without_a_tick() -> None:
    async with Server() as server:
        await server.chat("who?", session_id="s")
        response = await server.chat("who?", session_id="s")
        interaction = response.json()["interaction"]
        assert interaction["action"] == "silence"
        assert interaction["reason"] == "repeated_query"
        assert interaction["inference_skipped"] is True
        assert server.backend.asked == ["who?"]


async def test_only_the_newest_user_message_is_new_input() -> None:
    history = [
        {"role": "system", "content": "ignored"},
        {"role": "user", "content": [{"type": "text", "text": "old"}, image()]},
        {"role": "assistant", "content": "old answer"},
        {"role": "user", "content": [{"type": "text", "text": "<7.0 seconds>"}, image(b"new")]},
    ]
    async with Server() as server:
        body = {"messages": history, "session_id": "s"}
        response = await server.client.post("/v1/chat/completions", json=body)
        assert response.status_code == 200
        assert server.backend.frames == [b"new"]
        assert server.backend.asked == []


async def test_several_frames_are_split_into_appends_and_answered_once() -> None:
    async with Server(lambda query, times: "two" if len(times) == 2 else "one") as server:
        response = await server.chat(
            image(b"a"), image(b"b"), image(b"c"), session_id="s", frame_time_range="4-7"
        )
        assert server.backend.times == [4000, 5000, 6000]
        assert response.json()["interaction"]["text"] == "two\none"


async def test_frames_without_time_are_dated_by_arrival_from_zero() -> None:
    async with Server() as server:
        await server.chat(image(), session_id="s")
        await server.chat(image(), session_id="s")
        first, second = server.backend.times
        assert first == 0
        assert 0 <= second < 5000


async def test_words_stream_and_the_last_chunk_has_usage_and_interaction() -> None:
    async with Server(lambda query, times: "A brown dog.") as server:
        response = await server.chat(image(), stream=True, session_id="s")
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["x-session-id"] == "s"
        got = events(response)
        assert got[-1] == "[DONE]"
        assert all(e["object"] == "chat.completion.chunk" for e in got[:-1])
        assert len({e["id"] for e in got[:-1]}) == 1
        words = "".join(c["delta"].get("content", "") for e in got[:-1] for c in e["choices"])
        assert words == "A brown dog."
        assert got[-3]["choices"][0]["finish_reason"] == "stop"
        assert got[-2]["choices"] == []
        assert got[-2]["usage"]["prompt_tokens"] == 100
        assert got[-2]["interaction"]["text"] == "A brown dog."


async def test_a_stream_carries_the_words_of_its_own_tick_only() -> None:
    async with Server(lambda query, times: "mine" if times and times[0] == 9000 else "other") as server:
        await server.chat(image(), session_id="s")
        server.backend.hold("append")
        first = asyncio.create_task(server.chat(image(), session_id="s", frame_time_range=8))
        await settle()
        second = asyncio.create_task(server.chat(image(), session_id="s", frame_time_range=9, stream=True))
        await settle()
        server.backend.free("append")
        assert (await first).json()["interaction"]["text"] == "other"
        words = "".join(
            c["delta"].get("content", "") for e in events(await second)[:-1] for c in e["choices"]
        )
        assert words == "mine"


async def test_a_failed_tick_is_a_typed_error_also_for_a_stream() -> None:
    async with Server(lambda query, times: ("error", "engine_unreachable")) as server:
        for stream in (False, True):
            response = await server.chat(image(), session_id="s", stream=stream)
            assert response.status_code == 503
            assert int(response.headers["retry-after"]) >= 1
            assert error(response)["code"] == "engine_unreachable"


async def test_a_failed_tick_of_another_kind_is_502() -> None:
    async with Server(lambda query, times: ("error", "engine_server_error")) as server:
        response = await server.chat(image(), session_id="s")
        assert response.status_code == 502
        assert error(response)["code"] == "engine_server_error"


async def test_no_answer_in_time_is_a_typed_error() -> None:
    from dataclasses import replace

    async with Server(limits=replace(LIMITS, request_s=0.05)) as server:
        await server.chat(image(), session_id="s")
        server.backend.hold("append")
        response = await server.chat(image(), session_id="s")
        assert response.status_code == 503
        assert error(response)["code"] == "timeout"


async def test_too_many_requests_of_one_session_are_refused() -> None:
    async with Server() as server:
        await server.chat(image(), session_id="s")
        server.backend.hold("append")
        waiting = [asyncio.create_task(server.chat(image(), session_id="s")) for _ in range(4)]
        await settle()
        response = await server.chat(image(), session_id="s")
        assert response.status_code == 429
        assert error(response)["code"] == "input_backpressure"
        server.backend.free("append")
        assert {(await w).status_code for w in waiting} == {200}


async def test_sessions_are_limited() -> None:
    async with Server(max_sessions=2) as server:
        for name in ("a", "b"):
            assert (await server.chat(image(), session_id=name)).status_code == 200
        response = await server.chat(image(), session_id="c")
        assert response.status_code == 429
        assert error(response)["code"] == "resource_exhausted"
        assert "retry-after" in response.headers


async def test_personas_by_key_and_by_name() -> None:
    async with Server() as server:
        await server.chat(
            image(), session_id="s", headers={"x-system-prompt-key": "DEFAULT_SYSTEM_PROMPT_EN"}
        )
        await server.chat(image(), session_id="s", system_prompt_key="DEFAULT_SYSTEM_PROMPT_NO_DELEGATION")
        await server.chat(image(), session_id="s", system_prompt_key="silent")
        assert [config.persona for config in server.backend.configs] == ["default", "silent"]
        response = await server.chat(image(), session_id="s", system_prompt_key="pirate")
        assert response.status_code == 400
        assert error(response)["code"] == "unknown_persona"


async def test_text_without_a_name_goes_to_the_engine() -> None:
    async with Server() as server:
        response = await server.chat("hello", temperature=0.5, cache_salt="x", priority=-5)
        assert response.json()["choices"][0]["message"]["content"] == "plain"
        (body,) = server.texts.bodies
        assert body["temperature"] == 0.5
        assert body["model"] == "scripted"
        assert "cache_salt" not in body
        assert "priority" not in body
        streamed = await server.chat("hello", stream=True)
        assert events(streamed) == [{"n": 1}, "[DONE]"]
        assert server.backends == {}


async def test_the_engines_refusal_of_text_is_typed_also_for_a_stream() -> None:
    async with Server() as server:
        server.texts.error = EngineUnavailable("down", retry_after_s=3)
        for stream in (False, True):
            response = await server.chat("hello", stream=stream)
            assert response.status_code == 503
            assert response.headers["retry-after"] == "3"
            assert error(response)["code"] == "engine_unavailable"


async def test_history_for_the_engine_carries_no_ids_and_no_urls() -> None:
    old = image()
    old["uuid"] = "someone-elses"
    async with Server() as server:

        async def ask(part: dict[str, object]) -> int:
            messages = [{"role": "user", "content": [part]}, {"role": "user", "content": "and now?"}]
            response = await server.client.post("/v1/chat/completions", json={"messages": messages})
            return response.status_code

        assert await ask(old) == 200
        assert "uuid" not in server.texts.bodies[0]["messages"][0]["content"][0]
        assert await ask({"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}) == 400
        assert await ask({"type": "video_url", "video_url": {"url": "http://10.0.0.1/"}}) == 400
        assert len(server.texts.bodies) == 1


class TestIdempotency:
    async def test_the_same_key_gives_the_same_answer_and_no_second_frame(self) -> None:
        async with Server(lambda query, times: "Fire!") as server:
            headers = {"idempotency-key": "k1"}
            first = await server.chat(image(), session_id="s", headers=headers)
            again = await server.chat(image(), session_id="s", headers=headers)
            assert first.json() == again.json()
            assert len(server.backend.frames) == 1

    async def test_twins_in_flight_wait_for_the_first(self) -> None:
        async with Server(lambda query, times: "Fire!") as server:
            await server.chat(image(), session_id="s")
            server.backend.hold("append")
            twins = [
                asyncio.create_task(
                    server.chat(image(b"x"), session_id="s", headers={"idempotency-key": "k"})
                )
                for _ in range(3)
            ]
            await settle()
            server.backend.free("append")
            bodies = [(await twin).json() for twin in twins]
            assert bodies[0] == bodies[1] == bodies[2]
            assert server.backend.frames.count(b"x") == 1

    async def test_a_stream_is_repeated_whole(self) -> None:
        async with Server(lambda query, times: "A brown dog.") as server:
            headers = {"idempotency-key": "k1"}
            first = events(await server.chat(image(), session_id="s", stream=True, headers=headers))
            again = events(await server.chat(image(), session_id="s", stream=True, headers=headers))
            words = [
                "".join(c["delta"].get("content", "") for e in g[:-1] for c in e["choices"])
                for g in (first, again)
            ]
            assert words == ["A brown dog."] * 2
            assert first[-2]["id"] == again[-2]["id"] == again[0]["id"]
            assert len(server.backend.frames) == 1

    async def test_without_a_name_the_retry_finds_the_same_session(self) -> None:
        async with Server() as server:
            headers = {"idempotency-key": "k1"}
            first = await server.chat(image(), headers=headers)
            again = await server.chat(image(), headers=headers)
            assert first.headers["x-session-id"] == again.headers["x-session-id"]
            assert len(server.backends) == 1

    async def test_another_request_under_the_same_key_is_refused(self) -> None:
        async with Server() as server:
            headers = {"idempotency-key": "k1"}
            await server.chat(image(), session_id="s", headers=headers)
            response = await server.chat(image(b"other"), session_id="s", headers=headers)
            assert response.status_code == 409
            assert error(response)["code"] == "idempotency_key_reused"

    async def test_a_failure_is_not_kept_and_its_retry_is_the_same_frame(self) -> None:
        answers = iter([("error", "engine_unreachable"), "back"])
        async with Server(lambda query, times: next(answers)) as server:
            headers = {"idempotency-key": "k1"}
            first = await server.chat(image(), session_id="s", headers=headers)
            again = await server.chat(image(), session_id="s", headers=headers)
            assert first.status_code == 503
            assert again.json()["interaction"]["text"] == "back"
            appended = [
                c.arguments[0].frames[0].frame_id for c in server.backend.calls if c.method == "append"
            ]
            assert len(set(appended)) == 1

    async def test_a_client_that_goes_away_finds_the_answer_later(self) -> None:
        async with Server(lambda query, times: "Fire!") as server:
            await server.chat(image(), session_id="s")
            server.backend.hold("append")
            headers = {"idempotency-key": "k1"}
            gone = asyncio.create_task(server.chat(image(b"x"), session_id="s", headers=headers))
            await settle()
            gone.cancel()
            await settle()
            server.backend.free("append")
            again = await server.chat(image(b"x"), session_id="s", headers=headers)
            assert again.json()["interaction"]["text"] == "Fire!"
            assert server.backend.frames.count(b"x") == 1
