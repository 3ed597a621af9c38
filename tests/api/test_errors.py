"""Whatever is sent, the answer is typed, in OpenAI's shape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.scripted import LIMITS, Server, error, image

CHAT = "/v1/chat/completions"


def said(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "session_id": "s", **more}


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"x"', "invalid_json"),
        (b"null", "invalid_json"),
        (b"NaN", "invalid_json"),
        (b"\xff\xfe", "invalid_json"),
        (b"[" * 5000, "invalid_json"),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}]}', "invalid_json"),
        (b"{}", "invalid_request"),
    ],
)
async def test_bad_bodies(raw: bytes, code: str) -> None:
    async with Server() as server:
        response = await server.client.post(CHAT, content=raw)
        assert response.status_code == 400
        assert error(response)["code"] == code


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": "x"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [1]}, "messages.0"),
        ({"messages": [{"role": 1}]}, "messages.0"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        (said(5), "messages.0.content"),
        (said([]), "messages.0"),
        (said("  "), "messages.0"),
        (said([1]), "messages.0.content.0"),
        (said([{"type": "text", "text": 1}]), "messages.0.content.0.text"),
        (
            said([{"type": "image_url", "image_url": "data:image/png;base64,AA=="}]),
            "messages.0.content.0.image_url",
        ),
        (said([{"type": "image_url"}]), "messages.0.content.0.image_url"),
        (said([{"type": "video_url", "video_url": {"url": "x"}}]), "messages.0.content.0.type"),
        (said("x", stream="yes"), "stream"),
        (said("x", model=7), "model"),
        (said("x", session_id=[1]), "session_id"),
        (said("x", session_id="a\nb"), "session_id"),
        (said("x", session_id="é"), "session_id"),
        (said("x", session_id="y" * 129), "session_id"),
        (said([image()], frame_time_ranges="1"), "frame_time_ranges"),
        (said([image()], frame_time_ranges=["soon"]), "frame_time_ranges.0"),
        (said([image()], frame_time_range=-1), "frame_time_range"),
        (said([image()], frame_time_range=[1, 2, 3]), "frame_time_range"),
        (said([image()], frame_time_range={"start": "x"}), "frame_time_range"),
        (said([image()], frame_time_range=True), "frame_time_range"),
        (said("x", persona={}), "persona"),
    ],
)
async def test_wrong_types_name_their_field(body: dict[str, Any], param: str) -> None:
    async with Server() as server:
        response = await server.client.post(CHAT, json=body)
        assert response.status_code == 400
        assert error(response)["param"] == param
        assert error(response)["type"] == "invalid_request_error"
        assert server.backends == {}


@pytest.mark.parametrize(
    ("url", "status", "code"),
    [
        ("http://169.254.169.254/latest", 400, "image_url_refused"),
        ("https://example.com/a.jpg", 400, "image_url_refused"),
        ("file:///etc/passwd", 400, "image_url_refused"),
        ("/etc/passwd", 400, "image_url_refused"),
        ("data:image/jpeg,plain", 400, "invalid_image"),
        ("data:text/html;base64,AAAA", 400, "invalid_image"),
        ("data:image/jpeg;base64,!!!", 400, "invalid_image"),
        ("data:image/jpeg;base64,", 400, "invalid_image"),
        ("data:image/jpeg;base64," + "A" * 80_000, 413, "frame_too_large"),
    ],
)
async def test_image_urls(url: str, status: int, code: str) -> None:
    async with Server() as server:
        response = await server.chat({"type": "image_url", "image_url": {"url": url}}, session_id="s")
        assert response.status_code == status
        assert error(response)["code"] == code
        assert server.backends == {}


async def test_too_many_frames_and_too_long_a_query() -> None:
    async with Server() as server:
        response = await server.chat(*[image()] * 5, session_id="s")
        assert (response.status_code, error(response)["code"]) == (413, "too_many_frames")
        response = await server.chat("x" * 201, session_id="s")
        assert (response.status_code, error(response)["code"]) == (413, "query_too_long")


async def test_another_model_is_not_found() -> None:
    async with Server() as server:
        response = await server.chat("x", session_id="s", model="other")
        assert (response.status_code, error(response)["code"]) == (404, "model_not_found")


async def test_a_body_is_cut_off_while_it_is_read() -> None:
    """The server stops reading at the limit, whatever length was declared or not."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 10_000
            yield b" " * 10_000

    async with Server() as server:
        response = await server.client.post(CHAT, content=endless())
        assert (response.status_code, error(response)["code"]) == (413, "body_too_large")
        assert sent <= LIMITS.body_bytes + 20_000
        response = await server.client.post(CHAT, content=b"{}", headers={"content-length": "999999999"})
        assert response.status_code == 413
        assert server.context.bodies.statistics()["held"] == 0


async def test_a_body_that_never_ends_is_given_up() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    async with Server(limits=replace(LIMITS, body_s=0.05)) as server:
        response = await server.client.post(CHAT, content=slow())
        assert (response.status_code, error(response)["code"]) == (408, "request_timeout")
        assert server.context.bodies.statistics()["held"] == 0


async def test_all_bodies_together_are_bounded_and_given_back() -> None:
    async with Server() as server:
        await server.chat(image(), session_id="s")
        assert server.context.bodies.statistics()["held"] == 0
        await server.chat(image(), session_id="s", stream=True)
        assert server.context.bodies.statistics()["held"] == 0
        server.context.bodies.take(4 * LIMITS.body_bytes)
        response = await server.chat(image(), session_id="s")
        assert (response.status_code, error(response)["code"]) == (429, "resource_exhausted")


async def test_unknown_paths_and_methods() -> None:
    async with Server() as server:
        response = await server.client.get("/nowhere")
        assert (response.status_code, error(response)["code"]) == (404, "not_found")
        response = await server.client.get(CHAT)
        assert (response.status_code, error(response)["code"]) == (405, "method_not_allowed")
        assert "POST" in response.headers["allow"]


async def test_a_bug_is_a_typed_error_that_tells_nothing() -> None:
    async with Server() as server:
        server.texts.error = ZeroDivisionError("secret")
        for stream in (False, True):
            response = await server.chat("x", stream=stream)
            assert response.status_code == 500
            assert error(response)["code"] == "internal_error"
            assert "secret" not in response.text


class TestKeys:
    TENANTS: ClassVar = {"good": "home", "better": "work"}

    async def test_no_key_or_a_wrong_one_is_refused(self) -> None:
        async with Server(tenants=self.TENANTS) as server:
            for headers in ({}, {"authorization": "Bearer bad"}, {"authorization": "Basic good"}):
                for method, path in (("POST", CHAT), ("GET", "/v1/models"), ("POST", "/v1/streaming/reset")):
                    response = await server.client.request(method, path, headers=headers)
                    assert response.status_code == 401
                    assert error(response)["code"] == "invalid_api_key"
                    assert response.headers["www-authenticate"] == "Bearer"
            for path in ("/health", "/ready", "/metrics"):
                assert (await server.client.get(path)).status_code == 200

    async def test_tenants_do_not_share_names(self) -> None:
        async with Server(tenants=self.TENANTS) as server:
            for key in self.TENANTS:
                headers = {"authorization": f"Bearer {key}", "idempotency-key": "k"}
                response = await server.chat(image(), session_id="s", headers=headers)
                assert response.status_code == 200
            assert len(server.backends) == 2


json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
part = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "x"])}, optional={"text": json, "image_url": json}
)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]) | json},
    optional={"content": st.lists(part, max_size=3) | json},
)
FIELDS = (
    "session_id",
    "user",
    "model",
    "stream",
    "frame_time_ranges",
    "frame_time_range",
    "persona",
    "n",
    "tools",
)
body = st.fixed_dictionaries(
    {"messages": st.lists(message | json, max_size=3) | json}, optional=dict.fromkeys(FIELDS, json)
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(body)
async def test_any_json_gets_a_typed_answer(anything: Any) -> None:
    async with Server(max_sessions=200) as server:
        for path in (CHAT, "/v1/streaming/persona", "/v1/streaming/reset"):
            response: httpx.Response = await server.client.post(path, json=anything)
            assert response.status_code in (200, 400, 404, 413), response.text
            if response.status_code != 200:
                assert error(response)["message"]
