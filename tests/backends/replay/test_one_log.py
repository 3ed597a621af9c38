"""One log, many views: 200 sessions' logs, folded again, give the plans and conversations of the live runs.

Each session is a real actor around the real backend, driven at random through frames, questions, cancels,
persona changes, engine failures, summaries that land or fail, and delegations.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from bridges.engine import EngineUnreachable
from memory.facts import parse_fact
from memory.fold import Memory
from memory.plan import Limits
from memory.render import plan_bytes
from memory.store.transient import TransientFrames, TransientLog
from orchestrator.backends.replay.backend import ReplayBackend
from orchestrator.backends.replay.options import ReplayOptions
from orchestrator.runtime.actor import Session
from orchestrator.runtime.parts import RuntimeLimits, SessionParts
from orchestrator.runtime.permits import Permits
from orchestrator.session.backend import SessionConfig
from orchestrator.session.commands import AppendInput, AskQuery, Cancel, ClearQuery, Configure
from orchestrator.session.events import ResponseDone
from orchestrator.session.limits import SessionLimits
from orchestrator.session.record import Line, SessionRecord
from orchestrator.session.units import FrameInput, InputUnit
from orchestrator.wire.errors import VigilError
from tests.backends.replay.harness import UNGATED, Answer, Asked, Script, ScriptedChat, check
from tests.backends.replay.packs import JOYVL
from tests.fakes.clock import CountingIds, VirtualClock

SESSIONS = 200
STEPS = 60


def answers(chance: random.Random) -> Script:
    def answer(_: Asked) -> Answer | str:
        pick = chance.random()
        if pick < 0.5:
            return "</silence>"
        if pick < 0.8:
            return f"</response> Remark {chance.randrange(5)}."
        if pick < 0.86:
            return "</response> One moment. </delegation> What is it?"
        if pick < 0.93:
            return Answer(error=EngineUnreachable("gone"))
        return Answer("no tag at all")

    return answer


@pytest.mark.parametrize("block", range(10))
async def test_the_log_gives_back_what_was(block: int) -> None:
    for seed in range(block * SESSIONS // 10, (block + 1) * SESSIONS // 10):
        await one_session(seed)


async def one_session(seed: int) -> None:
    chance, clock = random.Random(seed), VirtualClock()
    log = TransientLog(clock.wall_ms)
    engine = ScriptedChat(
        clock, answers(chance), lambda _: "" if chance.random() < 0.3 else "Seen: a street."
    )
    limits = Limits(
        chunk_frames=chance.choice([4, 9, 100]), max_images=chance.choice([12, 64]), rollup_chunks=2
    )
    backend = ReplayBackend(
        "s1", JOYVL, engine, TransientFrames(), log, Permits(live=1), clock, CountingIds(), check,
        ReplayOptions(tenant_key=b"key", window=limits, decide=UNGATED, jitter=chance.uniform(-0.2, 0.2)),
    )  # fmt: skip
    session = await Session.open(
        "s1", "alias", SessionConfig("m"), SessionParts(backend, log), clock,
        session_limits=SessionLimits(), limits=RuntimeLimits(),
    )  # fmt: skip
    heard: list[Line] = []

    async def listen() -> None:
        async for event in session.events(1024):
            if isinstance(event, ResponseDone):
                text = "".join(part.text for part in event.item.content)
                if text:
                    heard.append(Line("assistant", event.item.item_id, text))

    listener = asyncio.create_task(listen())
    for step in range(STEPS):
        await act(session, chance, step)
        await clock.advance(chance.choice([0.0, 0.3, 1.0, 6.0]))
    live = backend.memory
    assert isinstance(live, Memory)
    fingerprint, shown, memory = live.fingerprint(), plan_bytes(live.plan()).data, Memory(JOYVL)
    for entry in await log.read():
        fact = parse_fact(entry.kind, dict(entry.data))
        if fact is not None:
            memory.apply(fact)
    assert memory.fingerprint() == fingerprint, seed
    assert plan_bytes(memory.plan()).data == shown, seed
    closing = asyncio.create_task(session.close("over"))
    await clock.advance(1.0)
    await asyncio.wait_for(asyncio.gather(closing, listener), 60)
    record = SessionRecord()
    for entry in await log.read():
        record.apply(entry.kind, entry.data)
    assert [line for line in record.lines if line.role == "assistant"] == heard, seed
    asked = {line.item_id for line in record.lines if line.role == "user"}
    assert asked == {e.data["query_id"] for e in await log.read() if e.kind == "query_set"}, seed
    assert record.unfinished is None, seed


async def act(session: Session, chance: random.Random, step: int) -> None:
    pick = chance.random()
    try:
        if pick < 0.7:
            frame = FrameInput(b"jpeg %d" % step, step * 1000, f"f{step}")
            await session.submit(AppendInput(f"op{step}", InputUnit((frame,))))
        elif pick < 0.8:
            await session.submit(AskQuery(chance.choice(["A bus?", "How many?"]), f"q{step}"))
        elif pick < 0.84:
            await session.submit(ClearQuery())
        elif pick < 0.9:
            await session.submit(Cancel())
        else:
            persona = chance.choice(["default", "talkative"])
            await session.submit(Configure(SessionConfig("m", persona=persona)))
    except VigilError:
        return
