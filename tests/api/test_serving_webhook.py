"""The webhook behind the whole service: a client of HTTP alone gets alerts and delegated answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from openai import OpenAI

from tests.api.serving import Served
from tests.fakes.engine import FakeEngine, Seen
from tests.fakes.receiver import FakeReceiver
from tests.fakes.solver import FakeSolver

SECRET = "a secret of some length"


def every_third(seen: Seen) -> str:
    return f"<response> A dog, {seen.tick}." if seen.tick % 3 == 0 else "<silence>"


def settings(receiver: FakeReceiver, **more: Any) -> dict[str, Any]:
    return {"decision": {"gate": False}, "webhook": {"url": receiver.url, "secret": SECRET, **more}}


async def test_alerts_are_sent_signed_and_in_order(tmp_path: Path) -> None:
    async with (
        FakeEngine(every_third) as engine,
        FakeReceiver() as receiver,
        Served(engine, tmp_path, **settings(receiver)) as served,
    ):
        for n in range(7):
            await served.see(n)
        await receiver.until(lambda: len(receiver.taken) == 3)
        about = (await served.client.get("/v1/sessions/cam")).json()
        events = [got.json for got in receiver.taken]
        assert [event["data"]["text"] for event in events] == ["A dog, 0.", "A dog, 3.", "A dog, 6."]
        assert {(e["kind"], e["session_id"], e["alias"], e["tenant"]) for e in events} == {
            ("tick_answered", about["id"], "cam", "local")
        }
        client = OpenAI(api_key="none", webhook_secret=SECRET)
        for got in receiver.taken:
            client.webhooks.verify_signature(got.body, got.headers)
            assert got.headers["webhook-id"] == got.json["id"]
        text = (await served.client.get("/metrics")).text
        assert re.search(r'vigil_webhook_events_total\{outcome="delivered"\} 3\.0', text)


async def test_a_delegated_answer_is_sent(tmp_path: Path) -> None:
    def script(seen: Seen) -> str:
        return "<response> Wait. <delegation> Who painted this?" if seen.tick == 0 else "<silence>"

    async with (
        FakeEngine(script) as engine,
        FakeSolver(["Vermeer."]) as solver,
        FakeReceiver() as receiver,
        Served(
            engine,
            tmp_path,
            solvers=[{"name": "s", "url": solver.url, "model": "m"}],
            **settings(receiver, kinds=["delegation_done"]),
        ) as served,
    ):
        await served.see(0, "what is it?")
        await receiver.until(lambda: len(receiver.taken) == 1)
        event = receiver.taken[0].json
        assert event["kind"] == "delegation_done"
        assert (event["data"]["question"], event["data"]["text"]) == ("Who painted this?", "Vermeer.")
        assert event["data"]["ok"] is True


async def test_a_receiver_that_was_down_misses_nothing(tmp_path: Path) -> None:
    """Contract: ticks never wait for it; what it missed comes later, over a restart of the service too."""
    async with FakeEngine(every_third) as engine, FakeReceiver() as receiver:
        receiver.down()
        async with Served(engine, tmp_path, **settings(receiver)) as served:
            for n in range(4):
                await served.see(n)
            assert (await served.client.get("/ready")).status_code == 200
        await receiver.up()
        async with Served(engine, tmp_path, **settings(receiver)) as served:
            await receiver.until(lambda: len(receiver.taken) == 2)
            for n in range(4, 7):
                await served.see(n)
            await receiver.until(lambda: len(receiver.taken) == 3)
        texts = [got.json["data"]["text"] for got in receiver.taken]
        assert texts == ["A dog, 0.", "A dog, 3.", "A dog, 6."]


async def test_nothing_of_a_deleted_session_is_sent(tmp_path: Path) -> None:
    async with FakeEngine(every_third) as engine, FakeReceiver([503, 503, 200]) as receiver:
        async with Served(engine, tmp_path, **settings(receiver)) as served:
            await served.see(0)
            await receiver.until(lambda: len(receiver.got) == 1)
            await served.client.delete("/v1/sessions/cam")
            await served.see(0, headers={"x-session-id": "door"})
            await receiver.until(lambda: bool(receiver.taken))
        assert {got.json["alias"] for got in receiver.taken} == {"door"}
