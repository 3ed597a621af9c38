"""The whole chain below the transports: session actor, replay backend, chat bridge, an engine on a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

from bridges.chat_engine import VllmChat
from bridges.frames import FrameBounds, FrameGate
from bridges.token_route import TokenRoute
from memory.facts import parse_fact
from memory.plan import Limits
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.backends.replay.backend import ReplayBackend
from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.backends.replay.request import EngineLimits
from orchestrator.runtime.actor import Session
from orchestrator.runtime.clock import SystemClock, system_ids
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.permits import Permits
from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AppendInput, AskQuery, Cancel, ClearQuery
from orchestrator.session.events import NoticeEvent, OutputTextDelta
from orchestrator.session.limits import SessionLimits
from orchestrator.session.operations import Outcome
from orchestrator.session.units import FrameInput, InputUnit
from tests.backends.replay.packs import JOYVL
from tests.fakes.engine import GENERATE, FakeEngine, Fault, Seen
from tests.fakes.engine_ids import route_of
from tests.fakes.pictures import jpeg

BLOCK = 32


@dataclass
class Stack:
    engine: FakeEngine
    session: Session
    backend: ReplayBackend
    log: TransientLog
    outcomes: list[Outcome] = field(default_factory=list)

    async def frame(self, number: int, *, lossless: bool = True) -> Outcome:
        unit = InputUnit((FrameInput(jpeg(number, 224, 224), number * 1000),), lossless=lossless)
        outcome = await self.session.operation(AppendInput(f"op{number}", unit), 30)
        self.outcomes.append(outcome)
        return outcome

    async def query(self, text: str) -> Outcome:
        return await self.session.operation(AskQuery(text, f"q-{text}"), 30)

    async def facts(self, kind: str) -> list[object]:
        return [parse_fact(e.kind, dict(e.data)) for e in await self.log.read() if e.kind == kind]


@asynccontextmanager
async def stack(
    engine: FakeEngine, window: Limits | None = None, *, gate: bool = False, route: TokenRoute | None = None
) -> AsyncIterator[Stack]:
    clock = SystemClock()
    chat = VllmChat(engine.url, engine.model, token_route=route, priority=True)
    frames = FrameGate(FrameBounds(JOYVL.pixels.min, JOYVL.pixels.max, JOYVL.pixels.multiple))
    log = TransientLog(clock.wall_ms)
    options = ReplayOptions(
        tenant_key=b"tenant",
        engine=EngineLimits(block_tokens=BLOCK),
        window=window or Limits(),
        decide=DecideOptions(gate=gate),
    )
    backend = ReplayBackend(
        "s1", JOYVL, chat, TransientFrames(), log, Permits(live=4), clock, system_ids, frames.check, options
    )
    session = await Session.open(
        "s1", "alias", SessionConfig(engine.model), SessionParts(backend, log), clock,
        session_limits=SessionLimits(), limits=RuntimeLimits(),
    )  # fmt: skip
    try:
        yield Stack(engine, session, backend, log)
    finally:
        await session.close("test_over")
        await chat.aclose()
        frames.close()


async def test_a_hundred_ticks_reuse_all_that_the_audit_promises() -> None:
    """Each frame travels once, and cached tokens are what the prefix property says."""
    script = [
        "</silence>",
        "</response> A dog runs.",
        "</silence>",
        "</delegation> Who?",
        "</response> A cat.",
    ]
    async with FakeEngine(script, block=BLOCK) as engine, stack(engine, Limits(chunk_frames=40)) as s:
        await s.query("tell me about animals")
        for number in range(100):
            assert (await s.frame(number)).error_code is None
        rows = [o.record for o in s.outcomes]
        assert {row["action"] for row in rows} == {"silence", "response", "delegate"}
        inside = [r for a, r in pairwise(rows) if a["window"] == r["window"]]
        kept = [r for r in inside if r["cached_tokens"] == r["expected_cached_tokens"]]
        assert len(kept) >= 0.98 * len(inside)
        assert all(r["shortfall"] is None for r in kept)
        payloads = [uuid for seen in engine.chats for uuid in seen.payloads]
        assert len(set(payloads)) == 100
        # Only a prewarm that overtakes a tick on its way to the engine brings that tick's picture again.
        switches = len(await s.facts("window_switched"))
        assert len(payloads) <= 100 + 2 * switches
        assert len(await s.facts("summary_landed")) >= 2
        assert max(r["body_bytes"] for r in rows[50:]) < 60_000


def _warms(seen: Seen) -> bool:
    """It warms a window. With one picture alone it makes that known to the engine."""
    return seen.kind == "probe" and len(seen.images) > 1


@pytest.mark.parametrize("kind", ["content_parts", "features"])
async def test_windows_go_by_ids_through_handovers_queries_and_evictions(kind: Any) -> None:
    """Reuse is what the audit promises, across windows and however the query changes; what the engine dropped
    costs a request, not a tick."""
    script = ["</silence>", "</response> A dog runs.", "</silence>", "</delegation> Who?"]
    tags = ("</silence>", "</response>", "</delegation>")
    async with (
        FakeEngine(script, block=BLOCK, tags=tags) as engine,
        stack(engine, Limits(chunk_frames=20), route=route_of(engine.tokenizer, kind)) as s,
    ):
        # A window is first warmed by messages. Ticks outrun that once, and what is still missing goes by ids.
        engine.faults.append(Fault(when=_warms, delay_s=0.5))
        await s.query("tell me about animals")
        for number in range(120):
            if number == 33:
                await s.query("tell me about people")
            if number == 47:
                await s.session.submit(ClearQuery())
            if number in (61, 62, 63):  # one of these may begin a window, whose prompt goes as messages
                decided = [seen for seen in engine.asked if seen.kind == "decide"]
                engine.image_cache.drop(decided[-1].images[-1])
            assert (await s.frame(number)).error_code is None
        rows = [o.record for o in s.outcomes]
        switches = len(await s.facts("window_switched"))
        assert switches >= 4
        fallbacks = [row["path_fallback"] for row in rows if row["path_fallback"]]
        assert set(fallbacks) == {"evicted"} and len(fallbacks) <= 3
        assert sum(row["path"] == kind for row in rows) >= 120 - 2 * switches - 8
        inside = [r for a, r in pairwise(rows) if a["window"] == r["window"]]
        kept = [r for r in inside if r["cached_tokens"] == r["expected_cached_tokens"]]
        assert len(kept) >= 0.98 * len(inside)
        assert any(_warms(seen) and seen.path == GENERATE for seen in engine.asked), "prewarms too"
        assert await s.facts("tick_failed") == []


async def test_bug_2_a_500_for_a_cached_image_is_mended_within_the_tick() -> None:
    """The same tick is sent once more with its payloads; the session sees an answer and a retry."""
    async with FakeEngine(["</silence>"]) as engine, stack(engine) as s:
        await s.frame(0)
        engine.faults.append(Fault(status=500, times=1))
        outcome = await s.frame(1)
        assert outcome.error_code is None and outcome.record["retries"] == 1
        assert await s.facts("tick_failed") == []


async def test_bug_4_an_evicted_image_is_sent_again_within_the_tick() -> None:
    """A uuid alone is refused after eviction; the answer still arrives."""
    async with FakeEngine(["</silence>"], image_cache=4) as engine, stack(engine) as s:
        for number in range(8):
            assert (await s.frame(number)).error_code is None
        assert sum(o.record["retries"] for o in s.outcomes) >= 1
        assert await s.facts("tick_failed") == []


async def test_bug_10_and_11_small_engines_are_learned_and_lived_with() -> None:
    """The window was planned for more than the engine takes: it shrinks, and every frame is answered."""
    async with (
        FakeEngine(["</silence>"], max_images=8, context_tokens=6000) as engine,
        stack(engine, Limits(chunk_frames=50, max_images=64, context_tokens=16384)) as s,
    ):
        for number in range(60):
            assert (await s.frame(number)).error_code is None
        refused = [seen for seen in engine.chats if seen.status == 400 and seen.kind == "decide"]
        assert 1 <= len(refused) <= 5


async def test_bug_13_an_engine_killed_and_restarted_costs_no_frame() -> None:
    """A source that waits: every frame is shown once, nothing is said twice."""
    async with FakeEngine(["</silence>", "</response> One.", "</silence>"]) as engine, stack(engine) as s:
        for number in range(4):
            await s.frame(number)
        events = s.session.events()
        engine.kill()
        waits = asyncio.create_task(s.frame(4))
        async for event in events:
            if isinstance(event, NoticeEvent) and event.code == "engine_lost":
                break
        events.close()
        await engine.restart()
        assert (await waits).error_code is None
        for number in range(5, 8):
            assert (await s.frame(number)).error_code is None
        shown = engine.chats[-1].images
        assert len(shown) == len(set(shown)) == 8
        ticks = [o.record["tick"] for o in s.outcomes]
        assert len(set(ticks)) == 8


async def test_bug_37_streams_cut_inside_characters_come_out_whole() -> None:
    """Any cut of the byte stream gives the same text, emoji included, and no tag in it."""
    text = "Vorsicht! 🔥 Feuer – 火事 in Raum 3."
    async with FakeEngine([f"</response> {text}"], cut=3) as engine, stack(engine) as s:
        outcome = await s.frame(0)
        assert outcome.text == text


async def test_a_cancelled_answer_is_aborted_at_the_engine_and_the_next_tick_is_clean() -> None:
    """Cancel reaches the socket; what was shown is in the window, once."""
    long = "</response> " + "word " * 200
    async with FakeEngine([long, "</silence>"]) as engine, stack(engine) as s:
        engine.faults.append(Fault(stall_after=20, stall_s=None, times=1))
        events = s.session.events()
        unit = InputUnit((FrameInput(jpeg(0, 224, 224), 0),))
        await s.session.submit(AppendInput("op0", unit))
        async for event in events:
            if isinstance(event, OutputTextDelta):
                break
        await s.session.perform(Cancel(), 5)
        outcome = await s.frame(1)
        assert outcome.error_code is None
        said = [m["content"] for m in engine.chats[-1].messages if m["role"] == "assistant"]
        assert len(said) == 1 and said[0].startswith("</response> word")
        assert engine.chats[0].disconnected
        events.close()
