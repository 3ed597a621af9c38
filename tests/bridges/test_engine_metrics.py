"""``/metrics`` becomes one small value, also where parts of it are missing."""

from __future__ import annotations

import pytest

from bridges.chat_engine import VllmChat
from bridges.engine import EngineError, EngineUnreachable
from bridges.engine_metrics import EngineLoad, EngineMetrics, parse_load
from tests.bridges.chatting import ask, request, said, user
from tests.fakes.engine import FakeEngine

TWO_RANKS = """\
# HELP vllm:kv_cache_usage_perc KV-cache usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.5
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.1
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 100.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 20.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="1000"} 1.0
vllm:cache_config_info{block_size="16",engine="1",kv_cache_size_tokens="4000",num_gpu_blocks="1000"} 1.0
# TYPE python_gc_objects_collected counter
python_gc_objects_collected_total{generation="0"} 7.0
"""


def test_ranks_add_up_and_missing_values_are_none() -> None:
    load = parse_load(TWO_RANKS)
    assert load == EngineLoad(
        kv_tokens=20_000, block_tokens=16, kv_usage=pytest.approx(0.3), prefix_queries=120
    )
    assert parse_load("") == EngineLoad()


async def test_reads_a_running_engine() -> None:
    async with FakeEngine(kv_tokens=64_000) as engine:
        chat, metrics = VllmChat(engine.url, engine.model), EngineMetrics(engine.url + "/v1")
        before = await metrics.load()
        start = user("Words to fill a few blocks of the cache. " * 20, "f1")
        await ask(chat, request(start))
        _, done = await ask(chat, request(start, said("</silence>"), user("f2")))
        after = await metrics.load()
        assert (after.kv_tokens, after.block_tokens, after.running) == (64_000, 32, 0)
        assert after.prefix_hits == done.cached_tokens
        assert (after.image_queries, after.image_hits) == (3, 1)
        reuse = after.reuse_since(before)
        assert reuse is not None and 0.3 < reuse < 0.6
        assert before.reuse_since(after) is None
        engine.kill()
        with pytest.raises(EngineUnreachable):
            await metrics.load()
        await metrics.aclose()
        await chat.aclose()


async def test_something_else_answers() -> None:
    async with FakeEngine() as engine:
        metrics = EngineMetrics(engine.url + "/other")
        with pytest.raises(EngineError):
            await metrics.load()
        await metrics.aclose()
    with pytest.raises(ValueError):
        parse_load("<html><body>hello</body></html>")
