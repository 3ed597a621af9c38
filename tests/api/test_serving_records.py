"""Sessions looked up, exported and deleted over a real socket, live and after a restart."""

from __future__ import annotations

import asyncio
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.api.scripted import error
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Seen

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


def every_third(seen: Seen) -> str:
    return f"<response> A dog, {seen.tick}." if seen.tick % 3 == 0 else "<silence>"


async def get(served: Served, path: str = "", **more: Any) -> dict[str, Any]:
    response = await served.client.get(f"/v1/sessions{path}", **more)
    assert response.status_code == 200, response.text
    return dict(response.json())


def keys(**names: str) -> dict[str, Any]:
    hashed = {name: "sha256:" + hashlib.sha256(key.encode()).hexdigest() for name, key in names.items()}
    return {"auth": {"api_keys": hashed}}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_a_live_session_tells_how_it_does(tmp_path: Path) -> None:
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path) as served:
        await served.see(0)
        for n in range(1, 7):
            await served.see(n, "what is there?")
        about = await get(served, "/cam")
        assert about == await get(served, f"/{about['id']}")
        assert (about["alias"], about["live"], about["state"]) == ("cam", True, "listening")
        assert about["config"]["persona"] == "default"
        assert about["counts"]["frames"] == 7
        assert about["counts"]["queries"] == 1
        assert about["counts"]["responses"] == 2
        assert about["ticks"] == {"response": 2, "silence": 5}
        assert about["silent_because"] == {"gated": 1, "model": 4}
        reuse = about["reuse"]
        assert reuse["kept_ratio"] == 1.0
        assert reuse["cached_tokens"] >= reuse["kept_tokens"] == reuse["promised_tokens"] > 0
        assert reuse["shortfalls"] == {}
        assert about["last_tick"]["tick"] == 7
        health = about["health"]
        assert health == {"engine_lost": False, "gated": False, "speech_stopped": False, "lag_s": 0.0}


async def test_memory_shows_every_tier(tmp_path: Path) -> None:
    engine = FakeEngine(every_third, max_images=12, context_tokens=8192)
    async with engine, Served(engine, tmp_path, **UNGATED) as served:
        n = 0
        memory: dict[str, Any] = {}
        # A window that has just begun was not counted yet.
        while not (memory.get("long_term") and memory["window"]["tokens_counted"]):
            await served.see(n, "what is there?")
            n += 1
            memory = await get(served, "/cam/memory")
        assert {p["text"] for p in memory["long_term"]} == {"A short summary of what was seen."}
        for passage in (*memory["long_term"], *memory["summaries"]):
            assert passage["start_ms"] < passage["end_ms"]
            assert passage["tokens"] > 0
        assert [q["text"] for q in memory["queries"]] == ["what is there?"]
        assert memory["queries"][0]["shown"] is True
        said = [entry["text"] for entry in memory["qa"]["entries"] if entry["kind"] == "response"]
        assert any(text.startswith("A dog") for text in said)
        window = memory["window"]
        assert window["frames"] == sum(len(turn["frames"]) for turn in window["turns"]) <= 12
        assert "what is there?" in window["head_text"]
        assert memory["media_time_ms"] == 1000 * (n - 1)
        assert memory["gaps"] == []


async def test_the_plan_is_what_the_engine_gets_next(tmp_path: Path) -> None:
    """Contract: its messages, with the next frame added, are the messages of the next request."""
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(4):
            await served.see(n)
        plan = await get(served, "/cam/plan")
        await served.see(4)
        sent = engine.chats[-1].messages
        shown = plan["messages"]

        def pictures(messages: list[dict[str, Any]]) -> list[str]:
            contents = [m["content"] for m in messages if not isinstance(m["content"], str)]
            return [p["uuid"] for content in contents for p in content if p["type"] == "image_url"]

        assert [m["role"] for m in shown] == [m["role"] for m in sent]
        assert shown[0] == sent[0]
        assert pictures(shown) == pictures(sent)[: plan["images"]]
        assert "data:" not in orjson.dumps(plan).decode()
        assert plan["sections"][0]["start"] == 0
        assert plan["sections"][-1]["end"] == plan["bytes"] > plan["frozen_bytes"] > 0
        ends = [section["end"] for section in plan["sections"]]
        assert [section["start"] for section in plan["sections"][1:]] == ends[:-1]
        assert [s["tick"] for s in plan["sections"] if s["section"] == "said"] == [1, 2, 3, 4]


async def test_a_kept_session_is_told_like_a_live_one(tmp_path: Path) -> None:
    """Contract: after a restart, before anyone resumes it, a session's views come from its log."""
    async with FakeEngine(every_third) as engine:
        async with Served(engine, tmp_path, **UNGATED) as served:
            for n in range(5):
                await served.see(n, "what is there?")
            before = [await get(served, path) for path in ("/cam", "/cam/memory", "/cam/plan")]
        async with Served(engine, tmp_path, **UNGATED) as served:
            after = [await get(served, path) for path in ("/cam", "/cam/memory", "/cam/plan")]
            assert after[0]["state"] == "kept"
            changing = ("state", "live", "health", "facts", "updated_ms", "closed_because")
            for old, new in zip(before, after, strict=True):
                assert new["live"] is False
                for name in changing:
                    old.pop(name, None), new.pop(name, None)
                assert new == old
            listed = (await get(served))["data"]
            assert [(s["alias"], s["state"]) for s in listed] == [("cam", "kept")]
            await served.see(5)
            assert (await get(served, "/cam"))["live"] is True


async def test_pages_are_newest_first(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        for name in "abcde":
            await served.see(0, headers={"x-session-id": name})
        await served.client.post("/reset", headers={"x-session-id": "b"})
        first = await get(served, params={"limit": 2})
        second = await get(served, params={"limit": 2, "after": first["data"][-1]["id"]})
        third = await get(served, params={"limit": 2, "after": second["data"][-1]["id"]})
        pages = [[s["alias"] for s in page["data"]] for page in (first, second, third)]
        assert pages == [["e", "d"], ["c", "b"], ["a"]]
        assert [page["has_more"] for page in (first, second, third)] == [True, True, False]
        assert second["data"][1]["state"] == "closed"
        closed = await get(served, f"/{second['data'][1]['id']}")
        assert closed["closed_because"] == "reset"
        for wrong in ({"limit": 0}, {"limit": 201}, {"after": "nobody"}):
            response = await served.client.get("/v1/sessions", params=wrong)
            assert response.status_code == 400
            assert error(response)["param"] in ("limit", "after")


async def test_an_export_is_whole_and_holds_no_secrets(tmp_path: Path) -> None:
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            await served.see(n)
        response = await served.client.get("/v1/sessions/cam/export")
        assert response.headers["content-type"] == "application/x-tar"
        with tarfile.open(fileobj=io.BytesIO(response.content)) as tar:
            members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}  # type: ignore[union-attr]
        assert orjson.loads(members["end.json"])["frames"] == 3
        session = orjson.loads(members["session.json"])["session"]
        assert session["alias"] == "cam"
        assert not [name for name in session if "token" in name or "key" in name]


async def test_a_deleted_session_leaves_nothing(tmp_path: Path) -> None:
    """Contract: a live session ends, its log and frames go, its name is free at once."""
    async with FakeEngine(every_third) as engine, Served(engine, tmp_path, **UNGATED) as served:
        for n in range(3):
            await served.see(n)
        found = (await get(served, "/cam"))["id"]
        assert [p for p in (tmp_path / "frames").rglob("*") if p.is_file()]
        response = await served.client.delete("/v1/sessions/cam")
        assert response.json() == {"id": found, "object": "session.deleted", "deleted": True}
        assert not [p for p in (tmp_path / "frames").rglob("*") if p.is_file()]
        for path in ("", "/memory", "/plan", "/export", "/events"):
            for name in ("cam", found):
                gone = await served.client.get(f"/v1/sessions/{name}{path}")
                assert (gone.status_code, error(gone)["code"]) == (404, "unknown_session")
        assert (await get(served))["data"] == []
        assert (await served.see(7)).json()["interaction"]["window_frames"] == 1
        assert served.core.registry.statistics()["closing"] == 0
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        assert (await served.client.delete("/v1/sessions/cam")).status_code == 200
        assert (await get(served))["data"] == []


async def test_a_session_deleted_while_it_decides(tmp_path: Path) -> None:
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED) as served:
        await served.see(0)
        requests = [asyncio.create_task(served.see(n)) for n in range(1, 5)]
        assert (await served.client.delete("/v1/sessions/cam")).status_code == 200
        codes = {(await request).status_code for request in requests}
        assert codes <= {200, 409}
        assert (await served.client.get("/health")).json()["status"] == "ok"


@pytest.mark.parametrize("by", ["alias", "id"])
async def test_sessions_of_others_do_not_exist(tmp_path: Path, by: str) -> None:
    tenants = keys(ann="a" * 20, bob="b" * 20)
    async with FakeEngine() as engine, Served(engine, tmp_path, **UNGATED, **tenants) as served:
        for key in ("a" * 20, "b" * 20):
            await served.see(0, headers=bearer(key))
        mine, other = bearer("a" * 20), bearer("b" * 20)
        theirs = (await get(served, headers=other))["data"][0]["id"]
        own = (await get(served, headers=mine))["data"]
        assert [s["alias"] for s in own] == ["cam"]
        assert own[0]["id"] != theirs
        name = theirs if by == "id" else "door"
        await served.see(0, headers=other | {"x-session-id": "door"})
        refused: list[httpx.Response] = [
            await served.client.get(f"/v1/sessions/{name}{path}", headers=mine)
            for path in ("", "/memory", "/plan", "/export", "/events")
        ]
        refused.append(await served.client.delete(f"/v1/sessions/{name}", headers=mine))
        assert {r.status_code for r in refused} == {404}
        page = await served.client.get("/v1/sessions", params={"after": theirs}, headers=mine)
        assert page.status_code == 400
        assert (await served.client.get("/v1/sessions")).status_code == 401
