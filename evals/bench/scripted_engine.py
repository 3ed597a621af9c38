"""A scripted engine in a process of its own: ``python -m evals.bench.scripted_engine``.

It prints its URL and serves until it is told to end. It answers decisions without accounting and, unless it
is told what a step costs, at once, so that what is measured is what stands in front of it. What the newest
``[[...]]`` of a request holds is said back with two times, in seconds of the machine's monotonic clock::

    [[mark]] 17 in=1234.567890 out=1234.569012

the number of the decision, when the request had arrived, and when the last words left.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import re
import signal
import sys
import time
from typing import Any

import orjson

from bridges.circuit import RealClock
from evals.bench.batching import FREE, Batch, Cost
from tests.fakes.engine import FakeEngine
from tests.fakes.engine_front import parse_body
from tests.fakes.engine_output import Receive, Send, StreamWriter, event
from tests.fakes.engine_script import Seen

RESPONSE, SILENCE = "<response>", "<silence>"
SAID = re.compile(r"\[\[([^\]]*)\]\] (\d+) in=([\d.]+) out=([\d.]+)")
"""Mark, number and times of an answer."""

_MARK = re.compile(rb"\[\[([^\]]{1,80})\]\]")
_IMAGE_TOKENS = 64


class EchoEngine(FakeEngine):
    """:param speak: share of decisions that say something, if nothing is asked for
    :param cost: of an answer; by default there is none
    """

    def __init__(self, speak: float, seed: int = 0, cost: Cost = FREE) -> None:
        super().__init__(
            model="scripted",
            prefix_cache=False,
            reports_cached=False,
            kv_tokens=None,  # it holds as many sessions as are offered
            image_tokens=_IMAGE_TOKENS,
            keep_bytes=0,
        )
        self._speak = speak
        self._batch = Batch(cost, RealClock())
        self._chance = random.Random(seed)
        self._numbers = itertools.count(1)
        self.decisions = 0

    async def _answer(self, seen: Seen, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = parse_body(seen.body)
        if not body.get("stream"):
            await super()._answer(seen, scope, receive, send)
            return
        self._classify(seen, body)
        seen.status = 200
        writer = StreamWriter(send, None)
        await writer.start()
        await writer.write(_chunk({"role": "assistant", "content": ""}))
        words = self._words(seen, body)
        for number, word in enumerate(words):
            await self._batch.token(new=number == 0)
            await writer.write(_chunk({"content": word}))
        await self._batch.token(new=False)
        last = f" out={time.monotonic():.6f}" if len(words) > 1 else ""
        await writer.write(_chunk({"content": last}, finish_reason="stop"))
        usage = {
            "prompt_tokens": len(seen.body) // 4 + _IMAGE_TOKENS * len(seen.images),
            "completion_tokens": len(words) + 1,
        }
        await writer.write(event({"object": "chat.completion.chunk", "choices": [], "usage": usage}))
        await writer.write(b"data: [DONE]\n\n")
        await writer.end()

    def _words(self, seen: Seen, body: dict[str, Any]) -> list[str]:
        if seen.kind == "summary":
            return ["A street; a red car stood left, two people passed."]
        if seen.kind == "probe":
            return ["."]
        self.decisions += 1
        asked = bool(body.get("continue_final_message"))
        marks = _MARK.findall(seen.body)
        if not marks or not (asked or self._chance.random() < self._speak):
            return [SILENCE]
        said = f" [[{marks[-1].decode()}]] {next(self._numbers)} in={seen.started_at:.6f}"
        head = [] if asked else [RESPONSE]
        return [*head, *re.findall(r"\s\S+", said)]


def _chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return event({"id": "chatcmpl-echo", "object": "chat.completion.chunk", "choices": [choice]})


async def lags(samples: list[float], period_s: float = 0.02) -> None:
    """How late this process's event loop runs what is due, in seconds, one sample a period."""
    while True:
        due = time.monotonic() + period_s
        await asyncio.sleep(period_s)
        samples.append(max(0.0, time.monotonic() - due))


async def _serve(speak: float, cost: Cost) -> None:
    samples: list[float] = []
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    engine = EchoEngine(speak, cost=cost)
    async with engine:
        sys.stdout.write(engine.url + "\n")
        sys.stdout.flush()
        watch = asyncio.create_task(lags(samples))
        await ended.wait()
        watch.cancel()
    ordered = sorted(samples) or [0.0]
    late = {"p50": ordered[len(ordered) // 2], "p99": ordered[int(len(ordered) * 0.99)]}
    told = {"decisions": engine.decisions, "lag_ms": {k: round(v * 1000, 3) for k, v in late.items()}}
    sys.stdout.write(orjson.dumps(told).decode() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--speak", type=float, default=0.2)
    for name, text in (
        ("step", "whoever is in it"),
        ("new", "each request that is new"),
        ("token", "each token"),
    ):
        parser.add_argument(
            f"--{name}-ms", type=float, default=0.0, help=f"what a step of the model costs for {text}"
        )
    given = parser.parse_args()
    cost = Cost(given.step_ms / 1000, given.new_ms / 1000, given.token_ms / 1000)
    asyncio.run(_serve(given.speak, cost))


if __name__ == "__main__":
    main()
