"""What callers choose makes no series: neither names of sessions and models, nor paths, nor texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine
from tests.realtime.talker import Talker

CHOSEN = ['a"b', "a\\b", "line\nfeed", "{x=", "# HELP", "見張り", "\x00\x1b[31m", "w" * 10_000, "other", ""]


def series(text: str) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def _ask_for_it(served: Served, of: str) -> None:
    """Everything that a caller names, named badly."""
    http = served.client
    for number, chosen in enumerate(CHOSEN):
        named = f"{of}{number}{chosen}"
        ascii_only = named.encode("ascii", "ignore").decode().replace("\n", "").replace("\x00", "")[:100]
        await http.get("/v1/sessions/" + named.encode().hex())
        await http.request("GET", "/" + named.encode().hex() + "/nothing")
        await http.request(f"X{of}{number}", "/v1/sessions")
        await http.delete(f"/v1/engines/{of}{number}:80")
        await served.see(number, headers={"x-session-id": ascii_only.replace("\x1b", "")})
        for body in (
            {"model": named, "messages": [{"role": "user", "content": named}]},
            {"model": "stand-in", "messages": [{"role": named, "content": [{"type": named}]}]},
            {named: named},
        ):
            await http.post("/v1/chat/completions", json=body)
        async with Talker(served.url) as talker:
            await talker.send("session.update", session=_session(named))
            await talker.send(named)
            await talker.send("response.cancel", response_id=named, event_id=named)
            await talker.raw(named)
            await talker.until("error")


def _session(named: str) -> dict[str, Any]:
    return {"type": named, "model": named, "instructions": named, "voice": named, named: named}


async def test_what_callers_choose_makes_no_series(tmp_path: Path) -> None:
    async with (
        FakeEngine(["</silence>"], image_tokens=16) as engine,
        Served(engine, tmp_path, limits={"sessions": 8}, decision={"gate": False}) as served,
    ):
        await served.client.get("/metrics")
        await _ask_for_it(served, "zqa")
        before = (await served.client.get("/metrics")).text
        await _ask_for_it(served, "zqb")
        after = (await served.client.get("/metrics")).text
    assert series(after) - series(before) == set()
    for chosen in ("zqa", "zqb", "見張り", "wwww", "\x1b", "# HELP\\"):
        assert chosen not in after
    assert len(after) < 64 * 1024
