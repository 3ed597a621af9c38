"""Whoever answers slowly, or without end, is given up in time and before it fills the memory."""

from __future__ import annotations

import httpx
import pytest

from bridges.answers import TooLong, answered, answered_now
from bridges.engine import EngineError, EngineTimeout
from bridges.engine_metrics import EngineMetrics, parse_load
from engine_launch.client import EngineHttp, NoAnswer, Unreachable
from tests.fakes.endless import Endless

SLOW, FAST = 0.02, 0.0


@pytest.mark.parametrize(("every_s", "fault"), [(SLOW, httpx.ReadTimeout), (FAST, TooLong)])
async def test_an_answer_without_end(every_s: float, fault: type[Exception]) -> None:
    with Endless(every_s) as url:
        async with httpx.AsyncClient(trust_env=False) as http:
            with pytest.raises(fault):
                await answered(http, "GET", url, within_s=2.0 if every_s == FAST else 0.2, most=100_000)
        with httpx.Client(trust_env=False) as blocking, pytest.raises(fault):
            answered_now(blocking, "GET", url, within_s=2.0 if every_s == FAST else 0.2, most=100_000)


@pytest.mark.parametrize(("every_s", "fault"), [(SLOW, NoAnswer), (FAST, Unreachable)])
def test_an_engine_that_is_checked_has_a_deadline_for_whole_answers(
    every_s: float, fault: type[Exception]
) -> None:
    with (
        Endless(every_s) as url,
        EngineHttp(url, deadline_s=20.0 if every_s == FAST else 0.2) as engine,
        pytest.raises(fault),
    ):
        engine.send("GET", "/v1/models")


async def test_figures_without_end_are_none() -> None:
    with Endless(FAST) as url:
        metrics = EngineMetrics(url, timeout_s=20.0)
        with pytest.raises(EngineError) as fault:
            await metrics.load()
        assert not isinstance(fault.value, EngineTimeout)
        await metrics.aclose()


@pytest.mark.parametrize("value", ["inf", "-Inf", "nan", "1e400"])
def test_figures_that_are_no_numbers_are_no_figures(value: str) -> None:
    with pytest.raises(ValueError, match="no count"):
        parse_load(f"vllm:num_requests_running {value}\n")
