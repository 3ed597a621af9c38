"""Health, readiness, metrics, models, and the OpenAPI document."""

from __future__ import annotations

import re

import pytest

from orchestrator.api.context import EngineState
from tests.api.scripted import Server, error, image


async def test_health_is_about_the_process_alone() -> None:
    async with Server() as server:
        server.engine = EngineState(False, "dead", "no connection")
        response = await server.client.get("/health")
        assert response.status_code == 200
        assert response.json()["status"] == "ok"


@pytest.mark.parametrize("state", ["starting", "slow", "wedged", "dead"])
async def test_ready_says_why_not(state: str) -> None:
    async with Server() as server:
        assert (await server.client.get("/ready")).json()["status"] == "ready"
        server.engine = EngineState(False, state, "no answer for 30 s")
        response = await server.client.get("/ready")
        assert response.status_code == 503
        assert error(response)["code"] == f"engine_{state}"
        assert error(response)["message"] == "no answer for 30 s"


async def test_a_server_that_shuts_down_is_not_ready_and_takes_no_session() -> None:
    async with Server() as server:
        await server.registry.drain(1.0)
        response = await server.client.get("/ready")
        assert (response.status_code, error(response)["code"]) == (503, "shutting_down")
        response = await server.chat(image(), session_id="s")
        assert (response.status_code, error(response)["code"]) == (503, "shutting_down")


async def test_models() -> None:
    async with Server() as server:
        (model,) = (await server.client.get("/v1/models")).json()["data"]
        assert model["id"] == "scripted"
        assert model["chunk_period_ms"] == 1000
        assert (await server.client.get("/v1/models/scripted")).json() == model
        assert (await server.client.get("/v1/models/other")).status_code == 404


async def test_ticks_and_requests_are_counted() -> None:
    def say(query: str | None, times: list[int]) -> str | tuple[str, str]:
        return {0: "A dog.", 1000: "", 2000: ("error", "engine_unreachable")}[times[0]]

    async with Server(say) as server:
        for second in range(3):
            await server.chat(image(), session_id="s", frame_time_range=second)
        text = (await server.client.get("/metrics")).text

    def value(sample: str) -> float:
        (found,) = re.findall(rf"^{re.escape(sample)} (\S+)$", text, re.M)
        return float(found)

    assert value('vigil_ticks_total{action="response",reason=""}') == 1
    assert value('vigil_ticks_total{action="silence",reason="model"}') == 1
    assert value('vigil_tick_failures_total{code="engine_unreachable",engine=""}') == 1
    assert value("vigil_prompt_tokens_total") == 200
    assert value("vigil_cached_tokens_total") == 128
    assert value('vigil_tick_latency_seconds_count{engine=""}') == 2
    assert value('vigil_http_requests_total{route="/v1/chat/completions",status="200"}') == 2
    assert value('vigil_http_requests_total{route="/v1/chat/completions",status="503"}') == 1


async def test_the_openapi_document_describes_every_route() -> None:
    async with Server() as server:
        document = (await server.client.get("/openapi.json")).json()
        assert set(document["paths"]) == {
            "/health",
            "/ready",
            "/metrics",
            "/v1/models",
            "/v1/engines",
            "/v1/engines/{name}",
            "/v1/engines/{name}/admit",
            "/v1/engines/{name}/drain",
            "/v1/sessions/{session_id}/attach-token",
            "/v1/sessions/{session_id}/sources",
            "/v1/sessions/{session_id}/sources/{source_id}",
            "/v1/models/{model_id}",
            "/v1/chat/completions",
            "/v1/streaming/reset",
            "/v1/streaming/persona",
            "/v1/sessions",
            "/v1/sessions/{session_id}",
            "/v1/sessions/{session_id}/query",
            "/v1/sessions/{session_id}/memory",
            "/v1/sessions/{session_id}/plan",
            "/v1/sessions/{session_id}/events",
            "/v1/sessions/{session_id}/export",
        }
        chat = document["paths"]["/v1/chat/completions"]["post"]
        assert chat["requestBody"]["content"]["application/json"]["schema"]["required"] == ["messages"]
        assert {"400", "401", "429", "503"} <= set(chat["responses"])
