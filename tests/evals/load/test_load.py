"""A real load against a served application, by its own process: each shape, what it counts and tells."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from bridges.engine_metrics import EngineLoad
from evals.bench.known_layout import SHAPES as LAYOUTS
from evals.bench.overload import recovery
from evals.load.capacity import capacities, ladder, table
from evals.load.figures import Readings, Scraper
from evals.load.generator import SHAPES, Shape, generate
from evals.load.job import Job, Told, carried, doubtful
from evals.load.pictures import NoPictures, prepare
from evals.load.step import Generator, Step, step
from tests.api.serving import Served
from tests.fakes.engine import FakeEngine
from tests.fakes.pictures import jpeg
from tests.realtime.serving import eventually


def told(*took: float | None, **others: object) -> Told:
    samples = tuple((float(at), each) for at, each in enumerate(took))
    return replace(Told(2, {}, {}, {}, samples, 0.001), **others)


def test_what_is_carried() -> None:
    assert carried(told(*[0.4] * 18, 0.6), 0.5) is False
    assert carried(told(*[0.4] * 19, 0.6), 0.5), "one of twenty may be late"
    assert not carried(told(*[0.4] * 9, None), 0.5), "a frame that was never decided is late"
    assert not carried(told(0.4, refused={"resource_exhausted": 1}), 0.5)
    assert not carried(told(0.4, lost={"session_expired": 1}), 0.5)
    assert not carried(told(), 0.5), "nothing was measured"
    assert doubtful(told(0.4, lag_s=0.2), 0.5)
    assert not doubtful(told(0.4), 0.5)


def test_plain_data_between_two_processes() -> None:
    job = Job("http://x", "realtime", 3, "p", "q", 1.0, 5.0, extra={"window": 3})
    assert Job.from_json(job.to_json()) == job
    seen = told(0.1, None)
    assert Told.from_json(seen.to_json()) == seen


async def test_given_numbers_are_tried_up_to_the_first_that_is_not_carried() -> None:
    tried: list[int] = []

    async def run(sessions: int) -> Step:
        tried.append(sessions)
        return Step(sessions, told(*[sessions / 10] * 20), Readings())

    found = await ladder(run, (1.0, 0.5), (12, 4, 8, 16))
    assert tried == [4, 8, 12]
    assert found["capacity"] == {"1": 8, "0.5": 4} and found["bounded"] == {"1": True, "0.5": True}
    alone = await ladder(run, (1.0,), (4, 8))
    assert alone["capacity"] == {"1": 8} and alone["bounded"] == {"1": False}, "more was not tried"
    assert (await ladder(run, (1.0,), (16,)))["capacity"] == {"1": 0}


async def test_capacity_by_bound_tries_nothing_twice() -> None:
    tried: list[int] = []

    async def run(sessions: int) -> Step:
        tried.append(sessions)
        return Step(sessions, told(*[sessions / 10] * 20), Readings())

    found = await capacities(run, (1.0, 0.5), 64, within=0.0)
    assert found["capacity"] == {"1": 10, "0.5": 5}
    assert found["bounded"] == {"1": True, "0.5": True}
    assert sorted(set(tried)) == sorted(tried) == [each["sessions"] for each in found["steps"]]
    console = Console(width=160, record=True)
    console.print(table(found["steps"]))
    said = console.export_text()
    assert "1 s, 0.5 s" in said and "~" not in said


def test_a_step_that_was_measured_beside_older_work_is_marked() -> None:
    steps = [Step(4, told(0.1), Readings()), Step(8, told(0.1), Readings(), settled=False)]
    console = Console(width=160, record=True)
    console.print(table([each.plain((1.0,)) for each in steps]))
    said = console.export_text()
    assert "8 ~" in said and "4 ~" not in said and "still busy 60 s after" in said


def test_ticks_until_all_is_well() -> None:
    late = [(t + 0.5, 3.0 if t < 4 else 0.2) for t in range(10)]
    assert recovery(late, 0.0, 1.0) == 4
    assert recovery(late, 5.0, 1.0) == 0
    assert recovery([(t, None) for t in range(10)], 0.0, 1.0) is None
    assert recovery([], 0.0, 1.0) is None


def test_what_was_counted_over_a_restart_and_a_missing_reading() -> None:
    """Nothing counted is negative, and an engine that tells nothing once has told the rest."""
    readings = Readings(
        service=[
            {"ticks_total": 100, "prompt_tokens_total": 1000, "cached_tokens_total": 500, "path:ids": 90},
            {},
            {"ticks_total": 110, "prompt_tokens_total": 2000, "cached_tokens_total": 1300, "path:ids": 100},
            {"ticks_total": 4, "prompt_tokens_total": 1000, "cached_tokens_total": 800, "path:chat": 4},
        ],
        engines=[
            [EngineLoad(prefix_queries=1000, prefix_hits=100), EngineLoad(preemptions=5)],
            [EngineLoad(prefix_queries=2000, prefix_hits=1000), EngineLoad(preemptions=7)],
            [EngineLoad(prefix_queries=1000, prefix_hits=900), EngineLoad()],
            [EngineLoad(), EngineLoad(preemptions=8)],
        ],
    )
    told = readings.summary()
    assert told["service"]["ticks"] == 14 and told["service"]["paths"] == {"ids": 10, "chat": 4}
    assert told["service"]["reuse"] == 0.8
    assert told["engine"]["reuse"] == 0.9 and told["engine"]["preemptions"] == 3


async def test_nothing_is_measured_before_the_engines_have_nothing_to_do() -> None:
    async with FakeEngine([]) as fake:
        scraper = Scraper("http://127.0.0.1:9", [fake.url])
        try:
            fake.running = 1
            assert not await scraper.quiet(0.0)
            waiting = asyncio.create_task(scraper.quiet(60.0))
            done, _ = await asyncio.wait([waiting], timeout=1.0)
            assert not done
            fake.running = 0
            assert await waiting
        finally:
            await scraper.aclose()
        alone = Scraper("http://127.0.0.1:9", [])
        assert await alone.quiet(60.0), "there is no engine to look at"
        await alone.aclose()


def pictures(folder: Path) -> str:
    source = folder / "source"
    source.mkdir()
    for number in range(4):
        (source / f"{number}.jpg").write_bytes(jpeg(number, 320, 256))
    (folder / "made").mkdir()
    assert prepare(source, folder / "made", (320, 256), 1.0, 3) == 3
    return str(folder / "made")


def test_a_folder_without_pictures(tmp_path: Path) -> None:
    with pytest.raises(NoPictures):
        prepare(tmp_path, tmp_path, (64, 64), 1.0, 3)


async def all_steps(job: Job, shape: Shape, say: Callable[[str], None], *lines: str) -> list[Told]:
    """What a generator tells that is written these lines."""
    heard = iter((*lines, ""))
    async with aclosing(generate(job, shape, say, lambda: next(heard))) as steps:
        return [told async for told in steps]


def layout(engines: list[str]) -> dict[str, object]:
    return {
        "system": "Watch.",
        "silence": "</silence>",
        "window": 3,
        "params": {"max_tokens": 8},
        "held_images": 100,
        "engines": engines,
    }


@pytest.mark.parametrize("shape", ["resend", "uuid"])
async def test_clients_of_the_known_layout(shape: str, tmp_path: Path) -> None:
    """Every picture again or each once; nothing is asked before the query; a full window is dropped."""
    async with FakeEngine(["</silence>"], image_tokens=16) as fake:
        job = Job(
            fake.url, shape, 1, pictures(tmp_path), "Say.", 0.2, 1.0, warm_s=0.2, fill=2, model=fake.model,
            patience_s=20.0, extra=layout([fake.url]),
        )  # fmt: skip
        words: list[str] = []
        (seen,) = await all_steps(job, LAYOUTS[shape], words.append, "1", "begin")
        chats = [chat for chat in fake.chats if chat.images]
    assert not seen.lost
    assert words == ["ready", "measuring", "measured"]
    assert (seen.opened, seen.refused, seen.lost) == (1, {}, {})
    assert seen.samples
    assert max(len(chat.images) for chat in chats) == 3
    assert len(chats[0].images) == 2, "the frame before the query is in the window, and was not asked"


async def test_clients_of_the_known_layout_are_spread_over_engines_and_stay(tmp_path: Path) -> None:
    fakes = FakeEngine(["</silence>"], image_tokens=16), FakeEngine(["</silence>"], image_tokens=16)
    async with fakes[0] as one, fakes[1] as other:
        job = Job(
            one.url, "uuid", 4, pictures(tmp_path), "Say.", 0.2, 0.6, warm_s=0.2, model=one.model,
            head=5, patience_s=20.0, extra=layout([one.url, other.url]),
        )  # fmt: skip
        (seen,) = await all_steps(job, LAYOUTS["uuid"], lambda word: None, "4", "begin")
        heads = [{chat.messages[0]["content"] for chat in fake.chats if chat.images} for fake in fakes]
    assert (seen.opened, seen.lost) == (4, {})
    assert [len(each) for each in heads] == [2, 2] and not heads[0] & heads[1]


async def test_sessions_over_the_socket_and_over_http(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    async with (
        FakeEngine(["</silence>"], image_tokens=16) as fake,
        FakeEngine([]) as busy,
        Served(fake, data) as vigil,
    ):
        base = Job(
            str(vigil.client.base_url),
            "realtime",
            2,
            pictures(tmp_path),
            "Say.",
            0.3,
            1.5,
            warm_s=0.3,
            fill=2,
        )
        busy.running = 1
        scraper = Scraper(vigil.url, [busy.url])
        generator = await Generator.start(replace(base, patience_s=30.0))
        try:
            made = await step(generator, 2, scraper, quiet_s=0.0)
        finally:
            await generator.aclose()
            await scraper.aclose()
        (over_http,) = await all_steps(
            replace(base, shape="chat"), SHAPES["chat"], lambda word: None, "2", "begin"
        )
    plain = made.plain((60.0,))
    assert plain["opened"] == 2 and not plain["refused"] and not plain["lost"]
    assert plain["frames"] == 10 and plain["settled"] is False
    assert plain["service"]["ticks"] > 0
    assert over_http.opened == 2 and over_http.samples


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_one_that_is_ended_leaves_nothing_behind(tmp_path: Path, number: int, code: int) -> None:
    data, scratch = tmp_path / "data", tmp_path / "scratch"
    data.mkdir()
    scratch.mkdir()
    async with FakeEngine(["</silence>"], image_tokens=16) as fake, Served(fake, data) as served:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orchestrator.cli", "load", "--server", served.url),
            *("--sessions", "2", "--seconds", "600"),
            env={**os.environ, "TMPDIR": str(scratch)},
        )
        try:
            await eventually(lambda: len(served.core.registry.sessions()) == 2)
            assert list(scratch.iterdir())
            process.send_signal(number)
            assert await asyncio.wait_for(process.wait(), 60) == code
            assert not list(scratch.iterdir())
            await eventually(lambda: not any(each.attached for each in served.core.registry.sessions()))
        finally:
            if process.returncode is None:
                process.kill()
