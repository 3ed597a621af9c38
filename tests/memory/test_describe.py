"""Memory and plan as plain data."""

from __future__ import annotations

import json
from itertools import pairwise

from memory.describe import describe_memory, describe_plan
from memory.render import plan_bytes
from tests.memory.driver import Driver

SMALL = {"chunk_frames": 10, "max_images": 48, "rollup_chunks": 2}


def test_a_fresh_memory_is_empty_and_plain() -> None:
    d = Driver()
    told = describe_memory(d.memory)
    assert json.loads(json.dumps(told)) == told
    assert (told["long_term"], told["summaries"], told["gaps"], told["pending"]) == ([], [], [], [])
    assert told["window"]["turns"] == []
    assert told["qa"] == {"left_out": None, "entries": []}
    plan = describe_plan(d.memory)
    assert json.loads(json.dumps(plan)) == plan


def test_tiers_tile_the_time_that_was_seen() -> None:
    """Contract: blocks, summaries, gaps, pending chunks and the open one leave no hole."""
    d = Driver(**SMALL)
    d.ask("watch the door")
    d.run(75, summary_after=4, fails=lambda n: n in (5, 6, 7))
    told = describe_memory(d.memory)
    tiers = ("long_term", "summaries", "gaps", "pending")
    spans = sorted((p["start_ms"], p["end_ms"]) for tier in tiers for p in told[tier])
    assert told["long_term"] and told["summaries"]
    assert spans[0][0] == 0
    for (_, end), (start, _) in pairwise(spans):
        assert end == start
    assert told["chunk"]["start_ms"] == spans[-1][1]
    assert all(p["tokens"] > 0 for tier in ("long_term", "summaries") for p in told[tier])
    assert told["window"]["tokens"] == d.memory.window_tokens
    assert sum(len(t["frames"]) for t in told["window"]["turns"]) == told["window"]["frames"]


def test_a_gap_that_may_be_mended_is_told_from_one_that_stays() -> None:
    d = Driver(**SMALL)
    for _ in range(12):
        d.tick()
    d.no_summary(final=True)
    (gap,) = describe_memory(d.memory)["gaps"]
    assert gap["final"] is False
    assert d.memory.gaps == 1


def test_questions_answers_and_deliveries() -> None:
    d = Driver()
    d.ask("who?")
    d.tick("A man.", response_id="r1")
    d.frame()
    told = describe_memory(d.memory)
    assert [(q["text"], q["shown"]) for q in told["queries"]] == [("who?", True)]
    assert [(e["kind"], e["text"], e["archived"]) for e in told["qa"]["entries"]] == [
        ("query", "who?", False),
        ("response", "A man.", False),
    ]
    assert [w["media_time_ms"] for w in told["waiting_frames"]] == [1000]
    assert told["window"]["turns"][0]["said"].endswith("A man.")
    assert "who?" in told["window"]["turns"][0]["text"]


def test_a_plan_is_mapped_byte_by_byte() -> None:
    d = Driver(**SMALL)
    d.ask("who?")
    d.run(30)
    d.frame()
    plan = describe_plan(d.memory)
    rendered = plan_bytes(d.memory.plan())
    assert plan["bytes"] == len(rendered.data) == plan["sections"][-1]["end"]
    assert plan["frozen_bytes"] == rendered.frozen
    frozen = [s for s in plan["sections"] if s["frozen"]]
    assert frozen[-1]["end"] == rendered.frozen
    assert [s["section"] for s in plan["sections"][len(frozen) :]] == ["user", "generate"]
    assert plan["open_turn"] == {"tick": d.tick_no, "in_flight": False}
    d.begin()
    assert describe_plan(d.memory)["open_turn"] == {"tick": d.tick_no - 1, "in_flight": True}
    assert describe_plan(d.memory)["sha256"] == plan["sha256"]
