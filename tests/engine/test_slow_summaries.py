"""600 ticks on the real engine while summaries come 20 ticks late and every third is thrown away.

Contract: no second of the session is ever in neither pictures nor text; a window begins at about the cost of
any other tick; the engine keeps what the audit promised; head and window stay within their budgets.
How long ticks take is measured by ``make bench-handover``.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridges.engine import ChatEngine
from evals.bench.slow_summaries import SlowSummaries, handover_figures
from evals.stats import audit_figures, window_figures
from memory.facts import TickAnswered, TickBegun
from memory.fold import Memory
from memory.plan import Plan
from prompts.loader import load_pack
from tests.engine.watching import SMALL_SIDE, Watched, pictures, watch
from tests.engine_launch.real_engine import RealEngine
from tests.memory.driver import blind

pytestmark = pytest.mark.engine

TICKS = 600
CHUNK = 50


@dataclass
class Run:
    watched: Watched
    memory: Memory
    plans: list[Plan] = field(default_factory=list)
    """Of every tick, as the log gives them again."""
    missing: list[tuple[int, list[int]]] = field(default_factory=list)
    """Ticks with media times that their plan shows in neither pictures nor text."""
    thrown_away: int = 0


@pytest.fixture(scope="module")
def run(engine: RealEngine, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("slow")
    family = short_chunks(folder / "pack")
    slow: list[SlowSummaries] = []

    def through(chat: ChatEngine) -> ChatEngine:
        slow.append(SlowSummaries(chat))
        return slow[-1]

    watched = asyncio.run(
        watch(engine, folder / "run", pictures(TICKS, SMALL_SIDE), seed=11, family=family, through=through)
    )
    run = Run(watched, Memory(load_pack(family)), thrown_away=slow[0].thrown_away)
    read_again(run)
    return run


def short_chunks(folder: Path) -> str:
    """A pack whose chunks are short enough that summaries are merged within the run."""
    folder.mkdir()
    (folder / "model.toml").write_text(
        f'base = "joyvl"\nfamily = "joyvl"\n[memory]\nchunk_frames = {CHUNK}\n'
    )
    return str(folder)


def read_again(run: Run) -> None:
    shown: list[int] = []
    riding: list[int] = []
    for fact in run.watched.facts:
        run.memory.apply(fact)
        if isinstance(fact, TickAnswered):
            shown += riding
        if not isinstance(fact, TickBegun):
            continue
        plan = run.memory.plan()
        run.plans.append(plan)
        known = {frame.frame_id: frame.media_time_ms for frame in plan.frames}
        riding = [known[frame_id] for frame_id in fact.frame_ids]
        forgotten = run.memory.parts.history.forgotten_before_ms or 0
        if missing := blind(plan, shown + riding, forgotten):
            run.missing.append((fact.tick, missing))


def test_every_tick_is_answered(run: Run) -> None:
    assert (run.watched.outcome, run.watched.error) == ("complete", None)
    assert run.watched.answered_frames == run.watched.seen_frames
    assert len(run.watched.seen_frames) == TICKS


def test_the_summaries_were_slow_and_failed_and_were_merged(run: Run) -> None:
    kinds = run.watched.kinds()
    assert run.thrown_away >= 3
    assert kinds["summary_failed"] + kinds["rollup_failed"] == run.thrown_away
    assert kinds["summary_landed"] >= 8
    assert kinds["rollup_landed"] >= 1
    assert kinds["window_switched"] >= 8


def test_no_tick_is_blind(run: Run) -> None:
    assert len(run.plans) >= TICKS
    assert run.missing == []


def test_a_window_begins_at_the_cost_of_a_tick(run: Run) -> None:
    figures = handover_figures(run.watched.rows)
    assert figures.switches >= 7
    assert figures.switch_cost <= 2.0, figures


def test_the_cache_keeps_the_audits_promise_in_every_window(run: Run) -> None:
    figures = audit_figures(run.watched.rows)
    assert figures.equal / figures.ticks >= 0.98, figures
    promised = [
        row["cached_tokens"] >= row["expected_cached_tokens"]
        for row in run.watched.rows
        if row["expected_cached_tokens"]
    ]
    assert sum(promised) / len(promised) >= 0.98
    assert all(window.reuse is None or window.reuse > 0.8 for window in window_figures(run.watched.rows)[1:])


def test_head_and_window_stay_within_their_budgets(run: Run) -> None:
    budget = run.memory.budget
    assert max(row["prompt_tokens"] or 0 for row in run.watched.rows) <= budget.prompt_tokens
    for plan in run.plans:
        assert len(plan.frames) <= budget.window_frames
        sizes = {section.name: run.memory.parts.meter.text(section.text) for section in plan.head.sections}
        told = sizes.get("long_term", 0) + sizes.get("summaries", 0) + sizes.get("history", 0)
        assert told <= budget.history_tokens + 100, sizes
        assert sizes.get("qa", 0) <= budget.qa_tokens + 50, sizes
