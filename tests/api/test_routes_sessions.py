"""Reset, persona and standing query over HTTP."""

from __future__ import annotations

import asyncio

from tests.api.scripted import Server, error, image
from tests.fakes.clock import settle


async def test_a_reset_answers_in_both_known_shapes() -> None:
    async with Server() as server:
        await server.chat(image(), session_id="s")
        for path, removed in (("/v1/streaming/reset", True), ("/reset", False)):
            response = await server.client.post(path, json={"session_id": "s"})
            assert response.json() == {"status": "reset", "ok": True, "session_id": "s", "removed": removed}
        response = await server.client.post("/reset")
        assert response.json() == {"status": "reset", "ok": True, "session_id": None, "removed": False}


async def test_work_behind_a_reset_never_touches_the_new_session() -> None:
    async with Server() as server:
        await server.chat(image(b"old"), session_id="s")
        (old,) = server.backends.values()
        old.hold("append")
        queued = asyncio.create_task(server.chat(image(b"queued"), session_id="s"))
        await settle()
        reset = asyncio.create_task(server.client.post("/reset", headers={"x-session-id": "s"}))
        await settle()
        fresh = await server.chat(image(b"new"), session_id="s")
        assert fresh.status_code == 200
        assert (await reset).json()["removed"] is True
        refused = await queued
        assert refused.status_code == 409
        assert error(refused)["code"] in ("session_closed", "stale_fence")
        new = list(server.backends.values())[-1]
        assert new is not old
        assert new.frames == [b"new"]


async def test_a_persona_is_set_before_or_after_the_first_frame() -> None:
    async with Server() as server:
        response = await server.client.post("/v1/streaming/persona", json={"persona": "silent", "user": "s"})
        expected = {"status": "ok", "ok": True, "persona": "silent", "session_id": "s", "planned_tick": None}
        assert response.json() == expected
        assert server.backend.configs[-1].persona == "silent"
        await server.chat(image(), session_id="s")
        await server.client.post("/v1/streaming/persona", json={"persona": "default", "session_id": "s"})
        assert [config.persona for config in server.backend.configs] == ["silent", "default"]


async def test_an_unknown_persona_opens_no_session() -> None:
    async with Server() as server:
        response = await server.client.post(
            "/v1/streaming/persona", json={"persona": "pirate", "session_id": "s"}
        )
        assert response.status_code == 400
        assert response.json()["status"] == "unknown_persona"
        assert error(response)["code"] == "unknown_persona"
        assert server.backends == {}


async def test_a_persona_needs_a_session_and_a_name() -> None:
    async with Server() as server:
        response = await server.client.post("/v1/streaming/persona", json={"persona": "silent"})
        assert error(response)["code"] == "session_id_required"
        response = await server.client.post("/v1/streaming/persona", json={"session_id": "s"})
        assert error(response)["param"] == "persona"


async def test_a_query_is_set_repeated_asked_anew_and_cleared() -> None:
    async with Server() as server:
        url = "/v1/sessions/s/query"
        response = await server.client.put(url, json={"text": " who? "})
        assert response.json() == {"status": "ok", "session_id": "s", "query": "who?"}
        assert server.backend.query == "who?"
        await server.chat("who?", image(), session_id="s")
        assert server.backend.asked == ["who?"]
        response = await server.client.delete(url)
        assert response.json() == {"status": "ok", "session_id": "s", "query": None}
        assert server.backend.query is None
        await server.chat("who?", image(), session_id="s")
        assert server.backend.asked == ["who?", "who?"]


async def test_a_query_of_no_session_cannot_be_cleared() -> None:
    async with Server() as server:
        response = await server.client.delete("/v1/sessions/nobody/query")
        assert response.status_code == 404
        assert error(response)["code"] == "unknown_session"


async def test_a_query_is_checked() -> None:
    async with Server() as server:
        for body, status in (({"text": ""}, 400), ({"text": 1}, 400), ({}, 400), ({"text": "x" * 201}, 413)):
            response = await server.client.put("/v1/sessions/s/query", json=body)
            assert response.status_code == status
            assert error(response)["param"] == "text"
        assert server.backends == {}


async def test_a_session_is_found_by_its_id_too() -> None:
    """Contract: an id that the server made names the session as the client's own name does."""
    async with Server() as server:
        await server.chat(image(), session_id="s")
        (found,) = server.backends
        response = await server.client.put(f"/v1/sessions/{found}/query", json={"text": "who?"})
        assert response.json()["query"] == "who?"
        assert len(server.backends) == 1
        assert server.backend.query == "who?"
        assert (await server.client.delete(f"/v1/sessions/{found}/query")).status_code == 200
        assert server.backend.query is None
