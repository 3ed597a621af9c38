"""What an engine says of its own load: ``/metrics`` of vLLM, read into one small value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from bridges.answers import answered
from bridges.engine import EngineTimeout, EngineUnreachable
from bridges.engine_errors import message_of, refusal
from bridges.tls import trusted

_PREFIX = "vllm:"
_MOST = 4 * 2**20
"""Bytes of a scrape: an engine has a hundred thousand."""


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """One reading. Counters run since the engine's start; ``None``: the engine does not say.

    Values of several data-parallel ranks are added up; ``kv_usage`` is their mean.

    :param kv_tokens: capacity of the KV cache in tokens
    :param kv_usage: share of it in use by running requests, 0 to 1
    :param running: requests in a batch now; ``waiting``: requests that wait for one
    :param prefix_queries: prompt tokens looked up in the prefix cache; ``prefix_hits``: found there
    :param image_queries: images looked up in the processor cache; ``image_hits``: found there
    :param preemptions: requests thrown out of the batch for lack of KV
    """

    kv_tokens: int | None = None
    block_tokens: int | None = None
    kv_usage: float | None = None
    running: int | None = None
    waiting: int | None = None
    prefix_queries: int | None = None
    prefix_hits: int | None = None
    image_queries: int | None = None
    image_hits: int | None = None
    preemptions: int | None = None

    def reuse_since(self, earlier: EngineLoad) -> float | None:
        """Share of the prompt tokens after ``earlier`` that came from the prefix cache."""
        if None in (self.prefix_queries, self.prefix_hits, earlier.prefix_queries, earlier.prefix_hits):
            return None
        asked = (self.prefix_queries or 0) - (earlier.prefix_queries or 0)
        found = (self.prefix_hits or 0) - (earlier.prefix_hits or 0)
        # A negative count means that the engine restarted in between.
        return found / asked if asked > 0 and found >= 0 else None


def parse_load(text: str) -> EngineLoad:
    """Read the Prometheus text format; unknown families are ignored.

    :raises ValueError: not that format
    """
    samples: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(_PREFIX):
                samples.setdefault(sample.name.removeprefix(_PREFIX), []).append(sample)

    def total(name: str) -> int | None:
        found = samples.get(name)
        return None if found is None else _whole(sum(sample.value for sample in found))

    usage = samples.get("kv_cache_usage_perc")
    facts = [sample.labels for sample in samples.get("cache_config_info", ())]
    blocks = [_number(labels.get("block_size")) for labels in facts]
    return EngineLoad(
        kv_tokens=_add(_kv_tokens(labels) for labels in facts),
        block_tokens=blocks[0] if blocks else None,
        kv_usage=sum(sample.value for sample in usage) / len(usage) if usage else None,
        running=total("num_requests_running"),
        waiting=total("num_requests_waiting"),
        prefix_queries=total("prefix_cache_queries_total"),
        prefix_hits=total("prefix_cache_hits_total"),
        image_queries=total("mm_cache_queries_total"),
        image_hits=total("mm_cache_hits_total"),
        preemptions=total("num_preemptions_total"),
    )


class EngineMetrics:
    """Scrapes one engine.

    :param base_url: root of the engine (a trailing ``/v1`` is taken off)
    :param timeout_s: limit for one scrape
    """

    def __init__(self, base_url: str, *, api_key: str | None = None, timeout_s: float = 5.0) -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else None
        self._url = base_url.rstrip("/").removesuffix("/v1").rstrip("/") + "/metrics"
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(headers=headers, timeout=timeout_s, trust_env=False, verify=trusted())

    async def load(self) -> EngineLoad:
        """One reading.

        :raises EngineUnreachable: no connection, or what answered is no Prometheus endpoint
        :raises EngineTimeout: no answer in time
        :raises EngineError: the engine refused
        """
        try:
            status, told = await answered(self._http, "GET", self._url, within_s=self._timeout_s, most=_MOST)
        except httpx.TimeoutException as late:
            raise EngineTimeout(f"no metrics within {self._timeout_s:g} s", "total") from late
        except httpx.HTTPError as broken:
            raise EngineUnreachable(str(broken) or type(broken).__name__) from broken
        if status != 200:
            raise refusal(status, message_of(told))
        try:
            return parse_load(told.decode("utf-8", "replace"))
        except ValueError as bad:
            raise EngineUnreachable(f"{self._url} is not a metrics endpoint: {bad}") from bad

    async def aclose(self) -> None:
        await self._http.aclose()


def _kv_tokens(labels: dict[str, str]) -> int | None:
    told = _number(labels.get("kv_cache_size_tokens"))
    if told is not None:
        return told
    blocks, size = _number(labels.get("num_gpu_blocks")), _number(labels.get("block_size"))
    return None if blocks is None or size is None else blocks * size


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _whole(value: float) -> int:
    if not math.isfinite(value):
        raise ValueError(f"{value} is no count")
    return int(value)


def _add(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
