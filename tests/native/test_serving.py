"""A service in front of full-duplex engines: the doors, admission over several engines, metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client import ClientError, VigilClient
from orchestrator.offline.drive import PlayOptions, play
from orchestrator.session_cli import memory_lines
from tests.api.scripted import error
from tests.fakes.duplex_engine import Act, Kind
from tests.native.serving import MODEL, QUESTION, NativeServed, reference
from tests.realtime.serving import eventually

AUTO = {"auto_response": True}


def opening(**more: Any) -> dict[str, Any]:
    return {"modalities": ["audio", "text"], "ref_audio": reference(), **more}


async def test_the_model_is_listed_and_what_is_no_stream_is_refused(tmp_path: Path) -> None:
    async with NativeServed(tmp_path) as served:
        (model,) = (await served.client.get("/v1/models")).json()["data"]
        assert model["id"] == MODEL and model["chunk_period_ms"] == 1000
        assert (await served.client.get("/ready")).json()["status"] == "ready"
        for headers in ({}, {"x-session-id": "cam"}):
            body = {"messages": [{"role": "user", "content": "hello"}]}
            response = await served.client.post("/v1/chat/completions", json=body, headers=headers)
            assert (response.status_code, error(response)["code"]) == (400, "realtime_only")
        query = await served.client.put("/v1/sessions/cam/query", json={"text": "what?"})
        assert error(query)["code"] == "realtime_only"
        assert served.core.registry.statistics()["slots"] == 0


async def test_sessions_find_their_places_and_the_next_one_is_told(tmp_path: Path) -> None:
    """Two engines of two places, one of each kept for rolling over: two sessions, and no third."""
    async with NativeServed(tmp_path, engines=2, max_sessions=2) as served:
        assert served.track.pool.capacity == 2
        async with VigilClient(served.url, session=opening()) as one:
            async with VigilClient(served.url, session=opening()) as two:
                assert one.session_id != two.session_id
                assert [len(engine.live) for engine in served.engines] == [1, 1]
                with pytest.raises(ClientError) as refused:
                    async with VigilClient(served.url, session=opening()):
                        pass
                assert refused.value.code == "resource_exhausted"
                metrics = (await served.client.get("/metrics")).text
                for engine in served.engines:
                    assert f'vigil_engine_sessions{{engine="{engine.url[5:]}"}} 1.0' in metrics
                assert 'vigil_sessions_refused_total{reason="engines"} 1.0' in metrics
                assert 'vigil_pairings_opened_total{reason="opened"} 2.0' in metrics
            await eventually(lambda: sum(len(engine.live) for engine in served.engines) == 1)
            async with VigilClient(served.url, session=opening()):
                pass


async def test_a_call_may_wait_until_all_input_that_may_wait_is_written(tmp_path: Path) -> None:
    """An update goes behind the input before it, and that goes on the stream's clock."""
    async with NativeServed(tmp_path) as served:
        waits_s = served.settings.realtime.input_bytes / (4 * served.profile.audio.input_rate_hz)
        assert served.track.runtime.deadlines.call_s > waits_s + 10


async def test_an_engine_that_dies_is_seen_in_readiness(tmp_path: Path) -> None:
    async with NativeServed(tmp_path) as served:
        await served.engines[0].die()
        with pytest.raises(ClientError):
            async with VigilClient(served.url, session=opening()):
                pass
        response = await served.client.get("/ready")
        assert response.status_code == 503
        assert error(response)["code"] == "engine_dead"


async def test_an_idle_service_notices_that_its_engine_is_gone_and_back(tmp_path: Path) -> None:
    async def state() -> str:
        answer = (await served.client.get("/ready")).json()
        return str(answer.get("status") or answer["error"]["code"])

    async with NativeServed(tmp_path, timeouts={"watch_s": 1.0}) as served:
        assert await state() == "ready"
        async with asyncio.timeout(60):
            await served.engines[0].die()
            while await state() != "engine_dead":
                pass
            await served.engines[0].restart()
            while await state() != "ready":
                pass


async def test_a_lost_engine_socket_is_counted_and_the_client_notices_nothing(tmp_path: Path) -> None:
    async with (
        NativeServed(tmp_path, "listen") as served,
        VigilClient(served.url, session=opening(extra_body=AUTO)) as client,
    ):
        (engine,) = served.engines
        engine.drop()
        name = engine.url[5:]

        async def counted() -> bool:
            metrics = (await served.client.get("/metrics")).text
            return all(
                f'vigil_links_{kind}_total{{engine="{name}"}} 1.0' in metrics for kind in ("lost", "resumed")
            )

        async with asyncio.timeout(60):
            while not await counted():  # noqa: ASYNC110  what is waited for is a scrape
                await asyncio.sleep(0.01)
        assert client.protocol.closed is None and len(engine.sessions) == 1
        assert (await served.client.get("/ready")).status_code == 200


async def test_a_session_is_recorded_with_its_units(tmp_path: Path) -> None:
    async with (
        NativeServed(tmp_path, "listen") as served,
        VigilClient(served.url, session=opening(include=["vigil.tick"], extra_body=AUTO)) as client,
    ):
        ticks: list[Any] = []

        async def read() -> None:
            async for event in client.events():
                if event.type == "vigil.tick":
                    ticks.append(event)

        reading = asyncio.create_task(read())
        await client.append(pcm=b"\x10\x10" * 32000)
        await eventually(lambda: len(ticks) >= 2)
        assert [tick.unit for tick in ticks[:2]] == [0, 1]
        assert {tick.action for tick in ticks} == {"silence"}
        name = client.session_id
        about = (await served.client.get(f"/v1/sessions/{name}")).json()
        assert about["live"] is True and about["model"] == MODEL
        plan = await served.client.get(f"/v1/sessions/{name}/plan")
        assert (plan.status_code, error(plan)["code"]) == (404, "no_plan")
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def test_what_was_said_is_remembered_live_and_kept(tmp_path: Path) -> None:
    heard = Act(Kind.SPEAK, end=True, text="It is a quarter past nine. ", heard="What time is it?")
    options = {"session": {"ref_audio": reference()}, "asks": True, "tail_ms": 0}
    async with NativeServed(tmp_path, [heard]) as served:
        result = await play([QUESTION], PlayOptions(served.url, **options), served.clock)
        assert result.ok, result.against
        told = (await served.client.get(f"/v1/sessions/{result.session_id}/memory")).json()
        lines = [(line["who"], line["text"].strip()) for line in told["talk"]]
        assert ("model", "It is a quarter past nine.") in lines
        assert ("user", "What time is it?") in lines
        shown = list(memory_lines(told))
        assert shown[0].startswith("Said lately") and any("quarter past" in line for line in shown)
