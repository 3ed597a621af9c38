"""The bench compares what it says: the same prompts, the right caches, measured at the right windows."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

from PIL import Image
from rich.console import Console

from evals.bench.arms import ARMS, PATHS, Sample
from evals.bench.pictures import clip_pictures
from evals.bench.replay_bench import Design, measure, result_of, show
from evals.load.pictures import commented
from evals.replay.core import engine_of, settings_of
from evals.replay.options import ReplayOptions
from tests.fakes.engine import FakeEngine

DESIGN = Design(points=(3, 8), span=2, sessions=2, warm_ticks=2, size=(64, 64))


async def test_all_arms_ask_the_same_of_one_engine():
    async with FakeEngine(["</silence>"], image_tokens=16) as fake:
        settings = settings_of(ReplayOptions("", Path(), engine=fake.url, family="joyvl"))
        engine = engine_of(settings, lambda line: None)
        running = await asyncio.to_thread(engine.__enter__)
        samples = await measure(settings, running, lambda line: None, DESIGN)
        engine.__exit__(None, None, None)
        sent = [seen for seen in fake.chats if seen.kind == "decide" and seen.images]
    for point in DESIGN.points:
        assert {len(samples[point][arm]) for arm in ARMS} == {DESIGN.span * DESIGN.sessions}
        for each in zip(*(samples[point][arm] for arm in ARMS), strict=True):
            ours, ids, uuids, resend, no_cache = each
            assert len({sample.prompt_tokens for sample in each}) == 1
            assert len({sample.completion_tokens for sample in each}) == 1
            assert len({sample.cached_tokens for sample in each[:-1]}) == 1 and ours.cached_tokens > 0
            assert no_cache.cached_tokens == 0
            assert max(ours.body_bytes, ids.body_bytes, uuids.body_bytes) < resend.body_bytes
    assert {seen.params["temperature"] for seen in sent} == {0.0}
    once = [seen.params["cache_salt"] for seen in sent if seen.params["cache_salt"].startswith("once-")]
    assert len(once) == len(set(once)) > 0


def test_the_spans_lie_just_below_their_points():
    assert [n for n in range(1, 12) if DESIGN.point_of(n) == 3] == [2, 3]
    assert [n for n in range(1, 12) if DESIGN.point_of(n) == 8] == [7, 8]
    assert Design().points == (10, 50, 100)
    assert Design().span * Design().sessions >= 30


def samples_of(ours: float, resend: float, no_cache: float) -> dict[str, list[Sample]]:
    times = dict(zip(ARMS, (ours, ours, resend, resend, no_cache), strict=True))
    return {arm: [Sample(ms, 100, 50, 3, 1000, ms / 2)] * 30 for arm, ms in times.items()}


def test_goals_and_table():
    good = result_of(
        {10: samples_of(10, 11, 30), 100: samples_of(20, 40, 400)}, {"model": "m", "version": "1"}
    )
    assert list(good["goals"].values()) == [True, True, True]
    assert good["points"][1]["no_cache_to_ours"] == 20.0
    assert good["points"][1]["uuids_to_ids"] == {"p50_ms": 2.0, "front_ms": 2.0}
    assert good["machine"]["cores"] >= 1
    bad = result_of({10: samples_of(12, 11, 30), 100: samples_of(60, 80, 400)}, {})
    paths = {100: {arm: each for arm, each in samples_of(20, 30, 400).items() if arm in PATHS}}
    assert list(result_of(paths, {})["goals"].values()) == [True]
    assert list(bad["goals"].values()) == [False, False, False]
    printed = io.StringIO()
    show(good, Console(file=printed, width=140))
    assert "20.00x" in printed.getvalue()
    assert "MISSED" not in printed.getvalue()


def test_pictures_are_all_different():
    assert len({*clip_pictures((32, 32), 400, 1), *clip_pictures((32, 32), 20, 2)}) == 420


def test_rivals_have_the_same_pixels_in_other_bytes():
    (picture,) = clip_pictures((64, 48), 1, 1)
    own = [commented(picture, name) for name in ("resend", "no_cache")]
    assert len({picture, *own}) == 3
    shown = [Image.open(io.BytesIO(data)).convert("RGB").tobytes() for data in (picture, *own)]
    assert len(set(shown)) == 1
