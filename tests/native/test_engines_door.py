"""Operators see the engines behind a service, take them out of placement and let them in again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

from orchestrator.api.credentials import key_hash
from orchestrator.client import ClientError, VigilClient
from orchestrator.engines_cli import line
from orchestrator.session_access import AccessError, ServerAccess
from tests.api.scripted import error
from tests.native.serving import NativeServed, reference

OPENING = {"modalities": ["audio", "text"], "ref_audio": reference()}


async def test_a_drained_engine_gets_no_session_until_it_is_let_in_again(tmp_path: Path) -> None:
    async with NativeServed(tmp_path, engines=2, max_sessions=2) as served:
        first, second = (engine.url[5:] for engine in served.engines)
        access = ServerAccess(served.url, None)
        drained = await asyncio.to_thread(access.operate, first, "drain")
        assert (drained["id"], drained["state"], drained["sessions"]) == (first, "draining", 0)
        async with VigilClient(served.url, session=OPENING):
            assert [len(engine.live) for engine in served.engines] == [0, 1]
            with pytest.raises(ClientError) as refused:
                async with VigilClient(served.url, session=OPENING):
                    pass
            assert refused.value.code == "resource_exhausted"
            told = await asyncio.to_thread(access.engines)
            assert [line(each) for each in told] == [
                f"{first} draining: 0 of 2 sessions", f"{second} up: 1 of 2 sessions",
            ]  # fmt: skip
            await asyncio.to_thread(access.operate, first, "admit")
            async with VigilClient(served.url, session=OPENING):
                assert [len(engine.live) for engine in served.engines] == [1, 1]


async def test_a_service_whose_engines_are_all_drained_is_not_ready_and_says_why(tmp_path: Path) -> None:
    async with NativeServed(tmp_path) as served:
        name = served.engines[0].url[5:]
        assert (await served.client.post(f"/v1/engines/{name}/drain")).status_code == 200
        response = await served.client.get("/ready")
        assert (response.status_code, error(response)["code"]) == (503, "engine_draining")
        assert (await served.client.post(f"/v1/engines/{name}/admit")).json()["state"] == "up"
        assert (await served.client.get("/ready")).status_code == 200


async def test_a_session_on_a_drained_engine_goes_on(tmp_path: Path) -> None:
    async with NativeServed(tmp_path, "listen") as served:
        (engine,) = served.engines
        async with VigilClient(served.url, session={**OPENING, "extra_body": {"auto_response": True}}) as one:
            await served.client.post(f"/v1/engines/{engine.url[5:]}/drain")
            await one.append(pcm=b"\x10\x10" * 16000)
            async with asyncio.timeout(10):
                while not engine.sessions[0].units:
                    await served.clock.sleep(0.1)


async def test_engines_are_for_operators_alone(tmp_path: Path) -> None:
    keys = {name: key_hash(f"key-{name}") for name in ("ann", "bob")}
    auth = {"required": True, "api_keys": keys, "operators": "ann"}
    async with NativeServed(tmp_path, auth=auth) as served:
        name = served.engines[0].url[5:]

        async def asked(key: str | None, path: str = "/v1/engines") -> httpx.Response:
            headers = {"authorization": f"Bearer {key}"} if key else {}
            method = "GET" if path == "/v1/engines" else "POST"
            return await served.client.request(method, path, headers=headers)

        assert (await asked(None)).status_code == 401
        for path in ("/v1/engines", f"/v1/engines/{name}/drain", f"/v1/engines/{name}/admit"):
            refused = await asked("key-bob", path)
            assert (refused.status_code, error(refused)["code"]) == (403, "operators_only")
        (engine,) = (await asked("key-ann")).json()["data"]
        assert (engine["id"], engine["state"]) == (name, "up")
        unknown = await asked("key-ann", "/v1/engines/nowhere:1/drain")
        assert (unknown.status_code, error(unknown)["code"]) == (404, "engine_not_found")


def test_a_service_that_is_not_there_is_told() -> None:
    with pytest.raises(AccessError, match="can't reach"):
        ServerAccess("http://127.0.0.1:9", None).engines()
