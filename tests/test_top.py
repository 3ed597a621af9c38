"""``vigil top``: what it makes of two scrapes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.top_cli import TopError, page, read
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine


async def test_a_served_session_is_seen(tmp_path: Path) -> None:
    async with FakeEngine(["</silence>"], image_tokens=16) as fake, Served(fake, tmp_path) as served:
        before = read((await served.client.get("/metrics")).text)
        for number in range(3):
            assert (await served.see(number, "Say." if number == 0 else None)).status_code == 200
        now = read((await served.client.get("/metrics")).text)
    console = Console(width=140, record=True)
    await asyncio.to_thread(console.print, page(now, before, 1.0))
    told = console.export_text()
    assert "sessions 1 of" in told and "ticks 3.0/s" in told
    assert fake.url.removeprefix("http://") in told
    assert "local" in told, "on this machine, without keys, tenants are shown"


def test_what_is_no_service() -> None:
    with pytest.raises(TopError):
        read("<html>")
