"""The door over real sockets: keys, origins, quotas, for requests and for handshakes alike."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from websockets.exceptions import InvalidStatus

from orchestrator.api.access import KEY_PROTOCOL, LOCAL_TENANT
from orchestrator.api.quota import Meter, Quota, Quotas
from orchestrator.runtime.registry import RegistryLimits
from tests.api.scripted import Server, error, image
from tests.api.serving import Served
from tests.api.test_serving_records import keys
from tests.fakes.engine import FakeEngine
from tests.realtime.serving import Scripted
from tests.realtime.talker import Talker

KEYS = {"ann-key": "ann", "bob-key": "bob"}
OPENING: dict[str, Any] = {}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def refused_handshake(
    url: str, headers: Mapping[str, str] | None = None, subprotocols: list[str] | None = None, **more: Any
) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Status, error object and headers of the answer."""
    with pytest.raises(InvalidStatus) as refused:
        async with Talker(url, headers=headers, subprotocols=subprotocols, **more):
            pass
    response = refused.value.response
    body = dict(orjson.loads(response.body)["error"])
    assert set(body) >= {"type", "code", "message", "param"}
    return response.status_code, body, response.headers


# --- keys -------------------------------------------------------------------------------------------------


async def test_a_socket_needs_a_key_like_any_request() -> None:
    async with Scripted(tenants=KEYS) as server:
        for headers in ({}, bearer("guess"), {"authorization": "Basic ann-key"}, bearer("")):
            status, body, answer = await refused_handshake(server.url, headers)
            assert (status, body["code"], body["type"]) == (401, "invalid_api_key", "authentication_error")
            assert answer["www-authenticate"] == "Bearer"
        async with Talker(server.url, headers=bearer("ann-key"), opening=OPENING):
            pass


async def test_a_browsers_key_rides_the_subprotocols() -> None:
    async with Scripted(tenants=KEYS) as server:
        offered = ["realtime", f"{KEY_PROTOCOL}ann-key"]
        async with Talker(server.url, subprotocols=offered, opening=OPENING) as talker:
            assert talker.socket.subprotocol == "realtime"
        offered = ["realtime", f"{KEY_PROTOCOL}guess"]
        assert (await refused_handshake(server.url, subprotocols=offered))[0] == 401


async def test_a_key_in_the_subprotocols_is_no_way_around_http() -> None:
    async with Server(tenants=KEYS) as server:
        headers = {"sec-websocket-protocol": f"{KEY_PROTOCOL}ann-key"}
        assert (await server.client.get("/v1/models", headers=headers)).status_code == 401


# --- where it comes from ----------------------------------------------------------------------------------


async def test_foreign_pages_are_refused_before_anything_is_read() -> None:
    async with Scripted() as server:
        headers = {"origin": "https://evil.example"}
        status, body, _ = await refused_handshake(server.url, headers)
        assert (status, body["code"]) == (403, "origin_not_allowed")
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("POST", "/reset")):
                response = await client.request(method, path, headers=headers, content=b"not even JSON")
                assert (response.status_code, error(response)["code"]) == (403, "origin_not_allowed")
                assert "access-control-allow-origin" not in response.headers
        async with Talker(server.url, headers={"origin": server.url}, opening=OPENING):
            pass  # its own page


async def test_a_name_that_was_made_to_resolve_here_is_refused_where_keys_are_off() -> None:
    async with Scripted() as server:
        headers = {"host": "evil.example", "origin": "http://evil.example"}
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            response = await client.get("/v1/models", headers=headers)
        assert (response.status_code, error(response)["code"]) == (403, "host_not_allowed")
    async with Scripted(tenants=KEYS) as server, httpx.AsyncClient(base_url=server.url) as client:
        assert (await client.get("/v1/models", headers={**headers, **bearer("ann-key")})).status_code == 200


async def test_listed_pages_may_ask_and_read_the_answers() -> None:
    page = "https://app.example"
    async with Scripted(origins=(page,), tenants=KEYS) as server:
        async with httpx.AsyncClient(base_url=server.url, trust_env=False) as client:
            asked = {
                "origin": page,
                "access-control-request-method": "POST",
                "access-control-request-headers": "authorization,x-session-id",
            }
            preflight = await client.options("/v1/chat/completions", headers=asked)
            assert preflight.status_code == 200
            assert preflight.headers["access-control-allow-origin"] == page
            assert "authorization" in preflight.headers["access-control-allow-headers"]
            for headers, status in (({**bearer("ann-key")}, 200), ({}, 401)):
                response = await client.get("/v1/models", headers={"origin": page, **headers})
                assert response.status_code == status
                assert response.headers["access-control-allow-origin"] == page
        headers = {"origin": page, **bearer("ann-key")}
        async with Talker(server.url, headers=headers, opening=OPENING):
            pass


# --- how much ---------------------------------------------------------------------------------------------


async def test_requests_beyond_the_quota_are_told_when_to_come_back() -> None:
    async with Server(tenants=KEYS, quota=Quota(requests_per_minute=2)) as server:
        for _ in range(2):
            assert (await server.client.get("/v1/models", headers=bearer("ann-key"))).status_code == 200
        response = await server.client.get("/v1/models", headers=bearer("ann-key"))
        assert (response.status_code, error(response)["code"]) == (429, "rate_limit_exceeded")
        assert error(response)["type"] == "rate_limit_error"
        assert 1 <= int(response.headers["retry-after"]) <= 30
        assert (await server.client.get("/v1/models", headers=bearer("bob-key"))).status_code == 200
        assert (await server.client.get("/health")).status_code == 200


async def test_handshakes_beyond_the_quota_are_told_when_to_come_back() -> None:
    quotas = Quotas(Quota(handshakes_per_minute=1))
    async with Scripted(tenants=KEYS, quotas=quotas) as server:
        async with Talker(server.url, headers=bearer("ann-key"), opening=OPENING):
            pass
        status, body, headers = await refused_handshake(server.url, bearer("ann-key"))
        assert (status, body["code"], body["retryable"]) == (429, "rate_limit_exceeded", True)
        assert 1 <= int(headers["retry-after"]) <= 60
        async with Talker(server.url, headers=bearer("bob-key"), opening=OPENING):
            pass


async def test_bytes_beyond_the_quota_are_refused_on_both_ways_in() -> None:
    quota = Quota(input_bytes_per_minute=5000)
    async with Server(tenants=KEYS, quota=quota) as server:
        codes = []
        for _ in range(4):
            response = await server.chat(image(b"\xff\xd8" + b"x" * 1500), headers=bearer("ann-key"))
            codes.append(response.status_code)
        assert codes == [200, 200, 429, 429]
        assert error(response)["code"] == "input_quota_exceeded"
        assert int(response.headers["retry-after"]) >= 1
        assert server.context.bodies.statistics()["held"] == 0
    async with (
        Scripted(tenants=KEYS, quotas=Quotas(quota)) as server,
        Talker(server.url, headers=bearer("ann-key"), opening=OPENING) as talker,
    ):
        await talker.send("session.heartbeat", event_id="big", filler="x" * 4900)
        await talker.until("session.heartbeat_ack")
        await talker.send("session.heartbeat", event_id="more", filler="x" * 400)
        refused = await talker.error("input_quota_exceeded")
        assert (refused["event_id"], refused["type"]) == ("more", "rate_limit_error")


async def test_events_beyond_the_rate_are_dropped_and_the_session_goes_on() -> None:
    quotas = Quotas(Quota(events_per_second=5))
    async with Scripted(quotas=quotas) as server, Talker(server.url, opening=OPENING) as talker:
        for n in range(40):
            await talker.send("session.heartbeat", event_id=f"e{n}")
        seen = [await talker.next() for _ in range(40)]
        errors = [event["error"] for event in seen if event["type"] == "error"]
        assert {each["code"] for each in errors} == {"rate_limit_exceeded"}
        assert 25 <= len(errors) <= 30
        assert all(each["retryable"] and each["event_id"].startswith("e") for each in errors)
        assert len(server.registry.sessions()) == 1 and server.registry.sessions()[0].is_open


async def test_malformed_events_count_too() -> None:
    quotas = Quotas(Quota(events_per_second=2))
    async with Scripted(quotas=quotas) as server, Talker(server.url, opening=OPENING) as talker:
        for _ in range(10):
            await talker.raw("{no json")
        codes = [(await talker.until("error"))["error"]["code"] for _ in range(10)]
        assert codes[:2] == ["invalid_json"] * 2
        assert codes[-1] == "rate_limit_exceeded"


async def test_decisions_beyond_the_quota_stop_the_input_that_leads_to_them(tmp_path: Path) -> None:
    """A decision is charged when the engine was asked; silence without asking is free."""
    auth = {"required": False, "quota": {"ticks_per_minute": 2}}
    async with FakeEngine() as engine, Served(engine, tmp_path, auth=auth) as served:
        for n in range(4):
            assert (await served.see(n)).status_code == 200, "nothing is asked yet, so nobody decides"
        assert (await served.see(4, "what?")).status_code == 200
        assert (await served.see(5)).status_code == 200
        for refused in (
            await served.see(6),
            await served.client.put("/v1/sessions/cam/query", json={"text": "more?"}),
            await served.client.post(
                "/v1/chat/completions", json={"messages": [{"role": "user", "content": "plain"}]}
            ),
        ):
            assert (refused.status_code, error(refused)["code"]) == (429, "tick_quota_exceeded")
            assert 1 <= int(refused.headers["retry-after"]) <= 31
        assert (await served.client.get("/v1/sessions/cam")).status_code == 200
        assert (
            await served.client.post("/v1/streaming/reset", json={"session_id": "cam"})
        ).status_code == 200


async def test_decisions_beyond_the_quota_are_refused_on_a_socket() -> None:
    quotas = Quotas(Quota(ticks_per_minute=1))
    async with Scripted(quotas=quotas) as server, Talker(server.url, opening=OPENING) as talker:
        quotas.spend(LOCAL_TENANT, Meter.TICKS, server.context.clock.now())
        await talker.show(b"\xff\xd8jpeg", event_id="f")
        assert (await talker.error("tick_quota_exceeded"))["event_id"] == "f"
        await talker.ask("what?")
        await talker.error("tick_quota_exceeded")
        await talker.send("session.heartbeat")
        await talker.until("session.heartbeat_ack")
        await talker.send("response.cancel")
        await talker.error("response_not_active")


async def test_sessions_beyond_the_quota_are_refused_until_one_ends() -> None:
    quotas = Quotas(Quota(sessions=1))
    limits = RegistryLimits(sessions_of=quotas.sessions_of)
    async with Scripted(tenants=KEYS, quotas=quotas, limits=limits) as server:
        async with Talker(server.url, headers=bearer("ann-key"), opening=OPENING) as first:
            async with Talker(server.url, headers=bearer("ann-key")) as second:
                await second.send("session.update", session={}, event_id="open")
                refused = await second.error("session_quota_exceeded")
                assert (refused["type"], refused["event_id"]) == ("rate_limit_error", "open")
                assert await second.closed() == (1013, "session_quota_exceeded")
            async with Talker(server.url, headers=bearer("bob-key"), opening=OPENING):
                pass
            await first.send("session.close")
            await first.until("session.closed")
        async with Talker(server.url, headers=bearer("ann-key"), opening=OPENING):
            pass


async def test_sessions_beyond_the_quota_over_http() -> None:
    async with Server(tenants=KEYS, quota=Quota(sessions=1)) as server:
        for key, name, status in (
            ("ann-key", "one", 200),
            ("ann-key", "one", 200),
            ("ann-key", "two", 429),
            ("bob-key", "two", 200),
        ):
            response = await server.chat(image(), session_id=name, headers=bearer(key))
            assert response.status_code == status
            if status == 429:
                assert error(response)["code"] == "session_quota_exceeded"
                assert int(response.headers["retry-after"]) >= 1
        await server.client.post("/reset", json={"session_id": "one"}, headers=bearer("ann-key"))
        response = await server.chat(image(), session_id="one", headers=bearer("ann-key"))
        assert response.status_code == 200, "the place of a session that was reset is its successor's"


# --- tenants ----------------------------------------------------------------------------------------------


async def test_another_tenants_session_cannot_be_resumed_even_with_its_token() -> None:
    async with (
        Scripted(tenants=KEYS) as server,
        Talker(server.url, headers=bearer("ann-key"), opening=OPENING) as mine,
    ):
        async with Talker(server.url, headers=bearer("bob-key")) as thief:
            await thief.send(
                "session.resume",
                session_id=mine.session_id,
                resume_token=mine.token,
                last_received_server_event_seq=0,
            )
            await thief.error("session_resume_expired")
            assert await thief.closed() == (1008, "session_resume_expired")
        await mine.send("session.heartbeat")
        await mine.until("session.heartbeat_ack")


async def test_the_engine_cannot_mix_tenants_up(tmp_path: Path) -> None:
    """Same alias, same picture, same question: other cache salts, other image ids, other session ids."""
    tenants = keys(ann="a" * 20, bob="b" * 20)
    gate: dict[str, Any] = {"decision": {"gate": False}}
    async with FakeEngine() as engine, Served(engine, tmp_path, **gate, **tenants) as served:
        for key in ("a" * 20, "b" * 20):
            for n in range(2):
                await served.see(n, "what?", headers=bearer(key))
        decided = [seen for seen in engine.chats if seen.kind == "decide"]
        mine, theirs = decided[:2], decided[2:]
        salts = [{seen.params["cache_salt"] for seen in side} for side in (mine, theirs)]
        assert len(salts[0]) == len(salts[1]) == 1
        assert salts[0] != salts[1]
        images = [{name for seen in side for name in seen.images} for side in (mine, theirs)]
        assert len(images[0]) == len(images[1]) == 2
        assert not images[0] & images[1]
        assert {seen.session for seen in mine}.isdisjoint(seen.session for seen in theirs)
        assert theirs[0].cached_tokens == 0
