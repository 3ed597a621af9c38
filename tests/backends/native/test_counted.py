"""What an engine's figures say of its context: never more than it holds, and exact after every listen."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.duplex_client.link import StageMetrics
from orchestrator.backends.native.counted import EngineCount
from prompts.native import Counted

STREAMED = Counted("0", "num_tokens_in", "num_tokens_out", streamed=True)
ASKED = Counted("0", "num_tokens_in", "num_tokens_out", streamed=False)


def figures(prompt: object, said: object, response: str | None = None, stage: str = "0") -> StageMetrics:
    return StageMetrics(response, {stage: {"num_tokens_in": prompt, "num_tokens_out": said}})


@dataclass
class Engine:
    """A session that is one request. ``apart``: what was said is told unit by unit."""

    apart: bool
    prompt: int = 77
    said: int = 0
    sums: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def unit(self, tokens: int, words: int) -> tuple[int, int]:
        self.prompt += tokens
        self.said += words
        return self.prompt, words if self.apart else self.said

    def listen(self) -> StageMetrics:
        return figures(*self.unit(13, 1))

    def speak(self, response: str, words: int) -> StageMetrics:
        units = self.sums.setdefault(response, [])
        units.append(self.unit(13, words))
        return figures(sum(unit[0] for unit in units), sum(unit[1] for unit in units), response)

    @property
    def context(self) -> int:
        return self.prompt + self.said


def test_a_genuine_engines_figures_are_read_as_they_are() -> None:
    """Three listens, a response of three units, a listen: as vllm-omni 0.30.0 told them."""
    count = EngineCount(STREAMED)
    told = [
        figures(77, 1), figures(90, 2), figures(103, 3),
        figures(116, 6, "r"), figures(116, 6, "r"), figures(245, 15, "r"), figures(387, 27, "r"),
        figures(155, 13),
    ]  # fmt: skip
    assert [count.take(each) for each in told] == [78, 92, 106, 122, None, 138, 154, 168]


@given(st.booleans(), st.lists(st.tuples(st.sampled_from("LSE"), st.integers(2, 9)), max_size=40))
def test_every_listen_is_exact_and_nothing_is_overstated(apart: bool, acts: list[tuple[str, int]]) -> None:
    engine, count, response = Engine(apart), EngineCount(STREAMED), 0
    for each in (1, 2):  # where what was said is told unit by unit, the second listen shows it
        assert count.take(engine.listen()) <= engine.context + each  # type: ignore[operator]
    for kind, words in acts:
        if kind == "L":
            assert count.take(engine.listen()) == engine.context
            continue
        told = count.take(engine.speak(f"r{response}", words))
        assert told is not None and told <= engine.context
        response += kind == "E"
    assert count.take(engine.listen()) == engine.context


def test_several_units_told_at_once_count_as_the_last_of_them_at_least() -> None:
    engine, count = Engine(apart=False), EngineCount(STREAMED)
    count.take(engine.listen())
    engine.speak("r", 3)
    engine.speak("r", 3)
    told = count.take(engine.speak("r", 3))
    assert told is not None and engine.context - 3 * 16 <= told <= engine.context
    assert count.take(engine.listen()) == engine.context


def test_a_request_begun_anew_counts_from_its_own_beginning() -> None:
    count = EngineCount(STREAMED)
    assert count.take(figures(900, 80)) == 980
    assert count.take(figures(90, 1)) == 91
    count.begin()
    assert count.take(figures(77, 1)) == 78


def test_where_each_response_is_a_request_its_prompt_holds_all_before_it() -> None:
    count = EngineCount(ASKED)
    assert count.take(figures(300, 20, "a")) == 320
    assert count.take(figures(1200, 40, "b")) == 1240


@pytest.mark.parametrize("prompt", [None, "12", True, -3, 0, float("nan"), float("inf")])
def test_figures_that_are_no_count_say_nothing(prompt: object) -> None:
    assert EngineCount(STREAMED).take(figures(prompt, 3)) is None


def test_another_stage_or_an_engine_that_tells_nothing_says_nothing() -> None:
    assert EngineCount(STREAMED).take(figures(77, 1, stage="1")) is None
    assert EngineCount(None).take(figures(77, 1)) is None
