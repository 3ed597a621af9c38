"""Any interleaving of calls and engine faults: the invariants of a session, by what the engine saw."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridges.engine import ContextOverflow, EngineServerError, EngineUnreachable
from memory.plan import Limits
from orchestrator.backends.replay.decide import DecideOptions
from orchestrator.backends.replay.tags import Hit
from orchestrator.session.backend import Decision, SessionConfig, TextDelta, TickDone, TickStarted
from orchestrator.wire.errors import InvalidRequest, ResourceExhausted
from tests.backends.replay.harness import SILENCE, Answer, Asked, Session, broken
from tests.backends.replay.packs import GRAMMAR

ANSWERS: list[Answer | str] = [
    SILENCE, SILENCE, SILENCE, "</response> A dog.", "</response> A dog.", "</response> A cat\nsits.",
    "junk", "", "</silence></response> Fire!", "</response> Let me see. </delegation> Who?",
    Answer("</response> Slow one.", delay_s=1.7), Answer(hang=True),
    broken("</response> It be"), broken("</resp"),
    Answer(error=EngineServerError("500")), Answer(error=EngineUnreachable("gone")),
    Answer(error=ContextOverflow("too long")),
]  # fmt: skip
STEPS = st.lists(
    st.sampled_from(
        ["frame", "frame", "frame", "burst", "late", "again", "lossless", "query", "clear", "create",
         "cancel", "wait", "wait", "heard", "update"]
    ),
    max_size=40,
)  # fmt: skip


async def play(steps: list[str], seed: int, *, gate: bool) -> Session:
    """Run the steps, then let a healthy engine answer all that still waits."""
    rng = random.Random(seed)
    healthy = False

    def script(asked: Asked) -> Answer | str:
        if asked.request.params.get("continue_final_message"):
            return " Words."
        return SILENCE if healthy else rng.choice(ANSWERS)

    window = Limits(chunk_frames=6, max_images=16, context_tokens=12000)
    options: dict[str, Any] = {"window": window}
    if gate:
        options["decide"] = DecideOptions()
    operations: list[str] = []
    async with Session(script, **options) as s:
        for number, step in enumerate(steps):
            match step:
                case "frame":
                    operations.append(await s.frame())
                case "burst":
                    for _ in range(3):
                        operations.append(await s.frame(s.ms + 200))
                case "late":
                    now = s.ms
                    operations.append(
                        await s.frame(max(0, now - 2500), data=b"late%d" % number, frame_id=f"late{number}")
                    )
                    s.ms = now
                case "again":
                    operations.append(await s.frame(s.ms, frame_id=f"f{s.ms}"))
                case "lossless":
                    try:
                        operations.append(await s.frame(lossless=True))
                    except ResourceExhausted:
                        s.ms -= 1000
                case "query":
                    operations.append(f"q{number}")
                    await s.ask(rng.choice(["what?", "who </silence> is <|im_end|>?"]), f"q{number}")
                case "clear":
                    await s.clear()
                case "create":
                    await s.create()
                case "cancel":
                    await s.cancel()
                case "wait":
                    await s.clock.advance(rng.choice([0.1, 1, 4]))
                case "heard":
                    await s.heard("A d", complete=False)
                case "update":
                    persona, pixels = rng.choice(["default", "talkative"]), rng.choice([None, 65_536])
                    config = SessionConfig("m", persona=persona, max_pixels=pixels)
                    try:
                        planned = await s.backend.update(config)
                    except InvalidRequest as refused:  # the engine turned out too small for more words
                        assert refused.code == "limits_too_small"
                    else:
                        assert planned is None or planned <= s.backend.memory.parts.last_tick + 3
        healthy = True
        for _ in range(3):
            await s.clock.advance(30)
            operations.append(await s.frame())
        await s.clock.advance(30)
    check(s, operations)
    return s


def check(s: Session, operations: list[str]) -> None:
    answered = Counter(o for done in s.of(TickDone) for o in done.operations)
    assert answered == Counter(operations), "each operation is answered exactly once"
    assert s.engine.most_live <= 1
    begun = [started.tick for started in s.of(TickStarted)]
    assert begun == sorted(set(begun))
    ticks = [done.tick for done in s.of(TickDone) if done.record["status"] != "dropped"]
    assert ticks == begun, "each tick that began was reported once, in order"
    decided = Counter(decision.tick for decision in s.of(Decision))
    assert not decided or max(decided.values()) == 1
    for delta in s.of(TextDelta):
        assert not [p for p in GRAMMAR.pieces(delta.text) if isinstance(p, Hit)]
    for asked in s.engine.decisions:
        roles = [m["role"] for m in asked.request.messages]
        turns = roles[1:]
        assert roles[0] == "system"
        assert turns == ["user", "assistant"] * (len(turns) // 2) + ["user"] * (len(turns) % 2)
        assert len(turns) % 2 or asked.request.params.get("continue_final_message")
        assert len(asked.uuids) == len(set(asked.uuids)) <= 16
    check_prefixes(s)


def check_prefixes(s: Session) -> None:
    """Within a window the answered part of a request begins every later request."""
    windows: dict[int, int] = {}
    window = 0
    for fact in s.log.facts:
        if fact.kind == "window_switched":
            window = fact.window
        elif fact.kind == "tick_begun":
            windows[fact.tick] = window
    asked = [f.tick for f in s.log.facts if f.kind in ("tick_answered", "tick_failed")]
    engine = [tick for tick in asked if tick in {r["tick"] for r in s.rows if r["reason"] not in QUIET}]
    if len(engine) != len(s.engine.decisions):
        return  # an abort before the request was made: ticks and requests no longer pair up
    for (tick, one), (later, two) in pairwise(zip(engine, s.engine.decisions, strict=True)):
        if windows[tick] != windows[later]:
            continue
        messages = list(one.request.messages)
        if one.request.params.get("continue_final_message"):
            messages.pop()
        frozen = messages[:-1]
        assert list(two.request.messages)[: len(frozen)] == frozen


QUIET = ("gated", "not_asked")


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, seed=st.integers(0, 2**32), gate=st.booleans())
def test_invariants_hold_in_any_order(steps: list[str], seed: int, gate: bool) -> None:
    asyncio.run(play(steps, seed, gate=gate))


@pytest.mark.parametrize("seed", range(4))
def test_a_long_session_of_everything(seed: int) -> None:
    rng = random.Random(seed)
    steps = rng.choices(
        ["frame", "burst", "late", "query", "clear", "create", "cancel", "wait", "heard", "update"], k=250
    )
    asyncio.run(play(steps, seed, gate=False))
