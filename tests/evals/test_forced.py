"""A pack for an engine without weights: the family's prompts, and answers that come token by token."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from engine_launch.client import EngineHttp
from evals.bench.forced import HIGHEST, PENALTY, SUMMARY_TOKENS, CannotForce, forced
from evals.replay.core import engine_of, settings_of
from evals.replay.options import ReplayOptions
from orchestrator.engine_setup import Engine
from prompts.loader import load_pack
from prompts.pack import Pack, Sampling
from tests.fakes.engine import FakeEngine

TAGS = {"</silence>": 8, "</response>": 9, "</delegation>": 10}
END = 2


@contextmanager
def checked(fake: FakeEngine) -> Iterator[Engine]:
    with engine_of(
        settings_of(ReplayOptions("", Path(), engine=fake.url, family="joyvl")), lambda _: None
    ) as engine:
        yield engine


async def made(fake: FakeEngine, folder: Path, answers: str, tags: Mapping[str, int]) -> Pack:
    def make() -> Pack:
        with checked(fake) as engine:
            facts = replace(engine.facts, tag_ids=tags, end_ids=(END,))
            return forced(replace(engine, facts=facts), "joyvl", folder, answers, (640, 480))

    return await asyncio.to_thread(make)


def falling(sampling: Sampling) -> list[tuple[str, float]]:
    """Tokens and their biases, the largest first."""
    return sorted(sampling.params["logit_bias"].items(), key=lambda each: -each[1])


@pytest.mark.parametrize("answers", ["silent", "spoken"])
async def test_each_token_comes_once_and_in_order(
    answers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = itertools.count(300)
    monkeypatch.setattr(EngineHttp, "tokenize", lambda *_, **__: [next(words)])
    async with FakeEngine(["</silence>"], image_tokens=16) as fake:
        pack = await made(fake, tmp_path, answers, TAGS)
    family = load_pack("joyvl")
    assert pack.personas == family.personas and pack.phrases == family.phrases and pack.tags == family.tags
    assert pack.decide.params["repetition_penalty"] == family.decide.params["repetition_penalty"]
    assert pack.pixels.max == 640 * 480
    biases = falling(pack.decide)
    first = TAGS["</silence>" if answers == "silent" else "</response>"]
    assert biases[0] == (str(first), HIGHEST)
    assert len(biases) == pack.decide.max_tokens == (2 if answers == "silent" else 4)
    if answers == "silent":
        assert biases[1][0] == str(END)
    for each in (biases, falling(pack.summary)):
        values = [value for _, value in each]
        assert len(set(values)) == len(values)
        assert values[0] - values[-1] < PENALTY, "what was said falls below all that was not"
    assert len(pack.summary.params["logit_bias"]) == SUMMARY_TOKENS + 1


async def test_tags_that_are_no_tokens_can_not_be_forced(tmp_path: Path) -> None:
    async with FakeEngine(["</silence>"], image_tokens=16) as fake:
        with pytest.raises(CannotForce, match="</silence>"):
            await made(fake, tmp_path, "silent", {})
