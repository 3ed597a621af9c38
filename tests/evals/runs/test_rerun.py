"""A run done again from its tapes: bit for bit the same, whatever happened; and what a change changes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from evals.replay.folder import read_rows
from evals.runs.differences import Difference
from evals.runs.manifest import RunError
from evals.runs.rerun import rerun
from evals.runs.tape_reader import read_tape, requests
from memory.lines import Lines
from orchestrator.backends.replay.repeats import SpokenLines
from tests.evals.runs.stand import clip, script, watch
from tests.fakes.engine import FakeEngine, Fault, Pace, of_kind
from tests.fakes.solver import FakeSolver


async def again(run: Path, out: Path) -> list[str]:
    told: list[Difference] = await rerun(run, out, lambda name, differ: None)
    return [str(each) for each in told]


def plans(folder: Path, name: str) -> list[tuple[str, str]]:
    tape = read_tape(folder / "clips" / name / "tape.jsonl")
    return [(each.purpose, each.digest) for each in requests(tape, name)]


async def test_the_same_plans_and_decisions_bit_for_bit(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "again"
    queries = [
        {"id": "a", "at_s": 0, "text": "First?", "until_s": 9},
        {"id": "b", "at_s": 12, "text": "Second?"},
        {"id": "c", "at_s": 20, "text": "Third?"},
    ]
    async with FakeEngine(script) as engine:
        await watch(run, engine, [clip("one", 40, queries=queries, slots=[]), clip("two", 40)])
    assert await again(run, out) == []
    for name in ("one", "two"):
        assert plans(run, name) == plans(out, name)
        assert any(purpose.startswith("rollup") for purpose, _ in plans(run, name))
    facts = [
        [m.data["kind"] for m in read_tape(folder / "clips" / "one" / "tape.jsonl") if m.what == "fact"]
        for folder in (run, out)
    ]
    assert facts[0] == facts[1]


async def test_an_engine_that_fails_and_a_solver_that_answers_late_come_back_the_same(tmp_path: Path) -> None:
    def delegating(seen) -> str:
        return "</response> Wait </delegation> What is it?" if seen.tick == 2 else script(seen)

    run, out = tmp_path / "run", tmp_path / "again"
    async with FakeEngine(delegating) as engine, FakeSolver(["A heron."]) as solver:
        engine.faults.append(Fault(status=500, when=of_kind("decide"), times=2))
        engine.faults.append(Fault(status=500, when=of_kind("summary"), times=1))
        named = [{"name": "s", "url": solver.url, "model": solver.model}]
        outcome = await watch(run, engine, [clip("one", 20)], solvers=named)
    assert outcome.word == "complete"
    rows = read_rows(run / "clips" / "one" / "decisions.jsonl")
    assert any(row["status"] == "failed" for row in rows)
    assert any(purpose == "solve" for purpose, _ in plans(run, "one"))
    assert await again(run, out) == []


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_the_order_in_which_answers_came(tmp_path: Path, seed: int) -> None:
    """Summaries, prewarms and decisions that take their time end in any order, and again in that order."""
    rng = random.Random(seed)

    async def now_and_then(seconds: float) -> None:
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)

    run, out = tmp_path / "run", tmp_path / "again"
    pace = Pace(first_token_s=0.01, per_token_s=0.01)
    async with FakeEngine(script, pace=pace, sleep=now_and_then) as engine:
        clips = [clip(name, 26) for name in ("one", "two", "three")]
        await watch(run, engine, clips, streams=3)
    assert await again(run, out) == []
    assert all(sorted(plans(run, each.id)) == sorted(plans(out, each.id)) for each in clips)


async def test_a_rerun_of_a_rerun_is_the_same(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "again"
    async with FakeEngine(script) as engine:
        await watch(run, engine, [clip("one", 10)])
    await again(run, out)
    (out / "frames").symlink_to(run / "frames")
    assert await again(out, tmp_path / "third") == []


async def test_a_rerun_takes_the_place_of_no_other_run(tmp_path: Path) -> None:
    run, out, other = tmp_path / "run", tmp_path / "again", tmp_path / "other"
    async with FakeEngine(script) as engine:
        await watch(run, engine, [clip("one", 3)])
        await watch(other, engine, [clip("one", 3)])
    before = (other / "run.json").read_bytes()
    with pytest.raises(RunError, match="another run"):
        await again(run, other)
    assert (other / "run.json").read_bytes() == before
    assert await again(run, out) == await again(run, out) == []


async def test_what_a_change_of_the_orchestrator_changes_is_told(tmp_path: Path, monkeypatch) -> None:
    """As if someone had changed how a summary stands in a head: the words differ, no decision does."""
    run, out = tmp_path / "run", tmp_path / "again"
    async with FakeEngine(script) as engine:
        await watch(run, engine, [clip("one", 12)])
    passage = Lines.passage
    monkeypatch.setattr(Lines, "passage", lambda self, *args: passage(self, *args).replace("summary", "note"))
    told = await again(run, out)
    assert told
    assert told[0].startswith("one, ") and "plan, section summaries" in told[0]
    assert "'summary" in told[0].split("->")[0] and "'note" in told[0].split("->")[1]
    assert not [each for each in told if "decision" in each or "missing" in each or "new" in each]


async def test_a_decision_that_comes_out_otherwise_is_told_with_its_tick(tmp_path: Path, monkeypatch) -> None:
    run, out = tmp_path / "run", tmp_path / "again"
    async with FakeEngine(
        lambda seen: "</response> Same." if seen.tick in (5, 6) else "</silence>"
    ) as engine:
        await watch(run, engine, [clip("one", 12)])
    rows = read_rows(run / "clips" / "one" / "decisions.jsonl")
    held = next(row for row in rows if row["reason"] == "deduplicated")
    monkeypatch.setattr(SpokenLines, "repeats", lambda self, at_ms: ())
    told = await again(run, out)
    assert f"one, tick {held['tick']}: decision, action: 'silence' -> 'response'" in told
    assert any("plan, section said" in each for each in told)


async def test_reruns_do_not_wait_for_real_time(tmp_path: Path) -> None:
    """A query alone waits 20 ms for its frame, a failed summary some seconds: the tape's time, not ours."""
    run = tmp_path / "run"
    async with FakeEngine(script) as engine:
        engine.faults.append(Fault(status=500, when=of_kind("summary"), times=1))
        await watch(run, engine, [clip("one", 12)])
    async with asyncio.timeout(60):
        assert await again(run, tmp_path / "again") == []
