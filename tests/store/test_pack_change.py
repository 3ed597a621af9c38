"""A served session whose prompt pack is edited while the service is down."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Fault, Seen
from tests.packs import reworded

UNGATED: dict[str, Any] = {"decision": {"gate": False}}


async def test_the_window_finishes_on_its_pack_and_the_next_has_the_new_one(url: str, tmp_path: Path) -> None:
    """Contract: the first request after the restart is what it would have been without the edit; within a
    few ticks the model is told what the edited pack says. The kept session's views need no pack files."""
    options: dict[str, Any] = {**UNGATED, "store": {"url": url}}
    shown = asyncio.Event()

    async def until_shown(_: float) -> None:
        await shown.wait()

    async with FakeEngine(sleep=until_shown) as engine:
        async with Served(engine, tmp_path, **options) as served:
            for n in range(5):
                await served.see(n, "what is there?" if n == 1 else None)
            plan = (await served.client.get("/v1/sessions/cam/plan")).json()
        async with Served(engine, tmp_path, edit=reworded, **options) as served:
            # The first warming of the new window takes until the first tick is over.
            engine.faults.append(Fault(when=warms_edited, delay_s=1.0))
            kept = (await served.client.get("/v1/sessions/cam/plan")).json()
            assert (kept["live"], kept["sha256"]) == (False, plan["sha256"])
            await served.see(5)
            shown.set()
            before, after = (seen.messages for seen in decisions(engine)[-2:])
            assert [m["role"] for m in after[: len(before)]] == [m["role"] for m in before]
            assert after[0] == before[0]
            assert "<5.0 seconds>" in str(after[-1]) and "s>" not in str(after).replace("seconds>", "")
            for n in range(6, 10):
                await served.see(n)
            last = decisions(engine)[-1].messages
            assert last[0]["content"].endswith("Keep an eye on the edges.")
            assert "<9.0 s>" in str(last[-1])
            about = (await served.client.get("/v1/sessions/cam")).json()
            assert about["ticks"]["silence"] == 10
            exported = await served.client.get("/v1/sessions/cam/export")
            assert exported.content.count(b"packs/") == 2
            await served.client.delete("/v1/sessions/cam")
            assert served.core.keeper.store is not None
            assert await served.core.keeper.store.packs(about["id"]) == {}


def warms_edited(seen: Seen) -> bool:
    return seen.kind == "probe" and "the edges" in str(seen.messages[0])


def decisions(engine: FakeEngine) -> list[Seen]:
    return [seen for seen in engine.chats if seen.kind == "decide"]
