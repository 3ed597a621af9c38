"""Wrong decisions asked again cold: the same where the model was sure, and what it looks like when not."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.replay.core import engine_of
from evals.runs.audit import MARGIN, Finding, audit, choice_of, read_audit, wrong_decisions
from evals.runs.manifest import RunError, read_manifest
from evals.runs.rerun import finished_clips
from evals.scoring.folder import read_run
from evals.scoring.scores import scores_of
from tests.evals.runs.stand import clip, settings, watch
from tests.fakes.engine import Answer, FakeEngine, Seen


def by_pictures(speaks: Callable[[int], str | Answer]) -> Callable[[Seen], str | Answer]:
    """An answer that depends on the prompt alone, so that it comes again cold."""
    return lambda seen: speaks(len(seen.images))


async def asked_again(run: Path, engine: FakeEngine, *, every: bool = False) -> list[Finding]:
    wanted = settings(engine)
    opening = engine_of(wanted, lambda line: None)
    running = await asyncio.to_thread(opening.__enter__)
    wrong = wrong_decisions(scores_of(read_run(run), {}))
    told: list[Finding] = []
    try:
        return await audit(
            run,
            read_manifest(run),
            finished_clips(run),
            wrong,
            wanted,
            running,
            told.append,
            read_run(run).digest,
            every=every,
        )
    finally:
        opening.__exit__(None, None, None)


async def test_every_wrong_decision_comes_out_the_same_from_a_whole_cold_prompt(tmp_path: Path) -> None:
    sure = by_pictures(lambda n: "</response> Now." if n % 4 == 3 else "</silence>")
    async with FakeEngine(sure, bytes_per_token=2) as engine:
        await watch(tmp_path, engine, [clip("one", 12)])
        engine.requests.clear()
        findings = await asked_again(tmp_path, engine)
        cold = [seen for seen in engine.requests if not seen.session and seen.kind == "decide"]
    assert findings and all(each.why is not None for each in findings)
    assert all(each.sure and each.same and not each.faulty for each in findings if each.recorded)
    asked = [seen for seen in cold if len(seen.images) > 1]
    assert asked and all(seen.cached_tokens == 0 for seen in asked)
    assert all(len(seen.payloads) == len(seen.images) for seen in asked)
    assert read_audit(tmp_path)["record"] == read_run(tmp_path).digest


async def test_a_picture_that_is_gone_or_another_one_is_told_as_that(tmp_path: Path) -> None:
    async with FakeEngine(by_pictures(lambda n: "</response> Now."), bytes_per_token=2) as engine:
        await watch(tmp_path, engine, [clip("one", 4)])
        first, *others = sorted(path for path in (tmp_path / "frames").rglob("*") if path.is_file())
        first.unlink()
        for path in others:
            path.write_bytes(b"another")
        findings = await asked_again(tmp_path, engine, every=True)
    assert findings and {each.error for each in findings} == {"image_missing"}


async def test_an_engine_that_says_otherwise_when_asked_cold_is_found_out(tmp_path: Path) -> None:
    """As if its cache had given the wrong keys: with a session it speaks, without one it is silent."""

    def fickle(seen: Seen) -> str:
        return "</response> Now." if seen.session and len(seen.images) == 6 else "</silence>"

    async with FakeEngine(fickle, bytes_per_token=2) as engine:
        await watch(tmp_path, engine, [clip("one", 10)], memory={"chunk_frames": 50})
        findings = await asked_again(tmp_path, engine, every=True)
    faulty = [each for each in findings if each.faulty]
    assert len(faulty) == 1 and faulty[0].recorded is not None and faulty[0].cold is not None
    assert faulty[0].recorded.token != faulty[0].cold.token


async def test_a_close_call_may_turn_over(tmp_path: Path) -> None:
    def fickle(seen: Seen) -> Answer:
        first, second = ("</response> Now.", "</silence>")
        said, other = (first, second) if seen.session and len(seen.images) == 6 else (second, first)
        return Answer(said, {other: 0.48})

    async with FakeEngine(fickle, bytes_per_token=2) as engine:
        await watch(tmp_path, engine, [clip("one", 10)], memory={"chunk_frames": 50})
        findings = await asked_again(tmp_path, engine, every=True)
    assert any(each.recorded and each.recorded.margin < MARGIN for each in findings)
    assert not [each for each in findings if each.faulty]
    assert [each for each in findings if not each.same]


async def test_a_silence_that_was_not_the_models_is_named(tmp_path: Path) -> None:
    """The model said the same line again where an answer was due, and it was held back as a repeat."""
    slots = [{"id": "s1", "query": "q1", "kind": "alert", "start_s": 6.0, "end_s": 6.5}]
    again = by_pictures(lambda n: "</response> Now." if n in (6, 7) else "</silence>")
    async with FakeEngine(again, bytes_per_token=2) as engine:
        await watch(tmp_path, engine, [clip("one", 9, slots=slots)], memory={"chunk_frames": 50})
        findings = await asked_again(tmp_path, engine)
    held = [each for each in findings if each.held]
    assert [(each.why, each.reason) for each in held] == [("missed", "deduplicated")]


async def test_another_engine_is_refused(tmp_path: Path) -> None:
    async with FakeEngine(bytes_per_token=2) as engine:
        await watch(tmp_path, engine, [clip("one", 3)])
    async with FakeEngine(bytes_per_token=2, model="other") as engine:
        with pytest.raises(RunError, match="not the engine of the run: its model was 'stand-in'"):
            await asked_again(tmp_path, engine, every=True)


logprobs = st.dictionaries(st.integers(0, 50), st.floats(-30, 0), min_size=1, max_size=20)


@given(logprobs, st.dictionaries(st.integers(0, 50), st.floats(-5, 5), max_size=2))
def test_a_choice_is_the_likeliest_token_by_a_margin_within_its_probability(top, bias) -> None:
    choice = choice_of(top, bias)
    assert choice is not None
    biased = {token: value + bias.get(token, 0.0) for token, value in top.items()}
    assert biased[choice.token] >= max(biased.values()) - 1e-9
    share = math.exp(biased[choice.token]) / sum(math.exp(value) for value in biased.values())
    assert 0 <= choice.margin <= share + 1e-9


def test_no_logprobs_no_choice() -> None:
    assert choice_of(None, {}) is None and choice_of({}, {}) is None
