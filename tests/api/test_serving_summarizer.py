"""Two engines behind one service: one that watches, one that writes summaries and long-term blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Fault, Seen, of_kind

SMALL: dict[str, Any] = {"context_tokens": 8192, "max_images": 12}


def writes(engine: FakeEngine) -> list[Seen]:
    return [seen for seen in engine.chats if seen.kind == "summary"]


async def watch(served: Served, holds: Callable[[], bool]) -> None:
    """Show frames until it holds; every one of them must be decided."""
    async with asyncio.timeout(60):
        number = 0
        while not holds():
            assert (await served.see(number)).status_code == 200
            number += 1


def told(served: Served) -> str:
    """All memory text."""
    memories = [served.core.memory_of(session.id) for session in served.core.registry.sessions()]
    return "\n".join(text for memory in memories for text in (*memory.long_term, *memory.summaries))


def settings(writer: FakeEngine, **more: Any) -> dict[str, Any]:
    return {
        "decision": {"gate": False},
        "summarizer": {"url": writer.url, "model": writer.model, "api_key": "k", **more},
    }


async def test_the_other_engine_writes_every_text(tmp_path: Path) -> None:
    async with (
        FakeEngine(**SMALL) as engine,
        FakeEngine(model="writer", summaries=["Told by the writer."]) as writer,
        Served(engine, tmp_path, **settings(writer)) as served,
    ):
        await watch(served, lambda: any(not seen.images for seen in writes(writer)))
        await watch(served, lambda: "Told by the writer." in told(served))
        assert writes(engine) == []
        assert {seen.json["model"] for seen in writer.chats} == {"writer"}
        assert all(seen.headers["authorization"] == "Bearer k" for seen in writer.chats)
        assert [seen.kind for seen in writer.chats if seen.kind != "summary"] == []
        assert any(seen.images for seen in writes(writer))


async def test_one_without_eyes_writes_long_term_blocks_alone(tmp_path: Path) -> None:
    async with (
        FakeEngine(**SMALL, summaries=["Seen by the engine."]) as engine,
        FakeEngine(model="writer", summaries=["Merged by the writer."]) as writer,
        Served(engine, tmp_path, **settings(writer, images=False)) as served,
    ):
        await watch(served, lambda: "Seen by the engine." in told(served))
        await watch(served, lambda: "Merged by the writer." in told(served))
        assert not any(seen.images for seen in writer.chats)
        assert all(seen.images for seen in writes(engine))


async def test_ticks_and_memory_go_on_without_the_writer(tmp_path: Path) -> None:
    """Contract: a writer that is away never costs a tick, and what it owes is written by the engine."""
    async with (
        FakeEngine(**SMALL, summaries=["By the engine."]) as engine,
        FakeEngine(model="writer", summaries=["By the writer."]) as writer,
        Served(engine, tmp_path, **settings(writer)) as served,
    ):
        await watch(served, lambda: "By the writer." in told(served))
        writer.kill()
        await watch(served, lambda: "By the engine." in told(served))
        assert (await served.client.get("/ready")).status_code == 200


async def test_a_slow_writer_has_its_own_deadline(tmp_path: Path) -> None:
    async with (
        FakeEngine(**SMALL, summaries=["By the engine."]) as engine,
        FakeEngine(model="writer") as writer,
        Served(engine, tmp_path, **settings(writer, deadline_s=1.0)) as served,
    ):
        writer.faults.append(Fault(hang=True, times=1000, when=of_kind("summary")))
        await watch(served, lambda: "By the engine." in told(served))
        ended = [seen for seen in writer.chats if seen.ended_at is not None]  # a newer try may be under way
        assert ended
        assert all(seen.disconnected for seen in ended)
