"""An engine object for long simulations: scripted answers, true accounting of prompt and prefix cache."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridges.engine import ChatEvent, ChatRequest, Delta, Finished, ImageBytes
from tests.fakes.engine_tokens import WIDTH, PrefixCache, Tokenizer, image_pads, template

SUMMARY = "Between these times the same street was seen; a red car stood left, two people passed. "


@dataclass
class Accounts:
    """Tokens of all requests so far, by kind of request."""

    prompt: dict[str, int] = field(default_factory=dict)
    prefilled: dict[str, int] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, prompt: int, cached: int) -> None:
        for counts, value in ((self.prompt, prompt), (self.prefilled, prompt - cached), (self.requests, 1)):
            counts[kind] = counts.get(kind, 0) + value


class AccountingEngine:
    """``ChatEngine`` without a network or a model.

    :param tags: silence and response tag of the pack
    :param speak: share of decisions that say something
    :param image_tokens: what every image costs
    """

    def __init__(self, tags: Sequence[str], *, speak: float, image_tokens: int, seed: int = 0) -> None:
        self.tokenizer = Tokenizer(tags=tags)
        self.kv = PrefixCache(32, 400_000)
        self.accounts = Accounts()
        self.last_prompt = 0
        self._tags, self._speak, self._image_tokens = tags, speak, image_tokens
        self._random = random.Random(seed)
        self._said = 0

    def count(self, kind: str, body: Mapping[str, Any], answer: str) -> tuple[int, int, int]:
        """Prompt, cached and generated tokens of one request, which then is in the cache."""
        prompt = template(self.tokenizer, body, lambda part: image_pads(part["uuid"], self._image_tokens))
        generated = self.tokenizer.encode(answer + "<|im_end|>")
        chain = self.kv.chain(prompt.tokens, None)
        cached = self.kv.cached(chain, len(prompt))
        self.kv.keep(self.kv.chain(prompt.tokens + generated[:-WIDTH], None, chain))
        self.accounts.add(kind, len(prompt), cached)
        return len(prompt), cached, len(generated) // WIDTH

    def decide(self) -> str:
        """The next decision's text."""
        if self._random.random() >= self._speak:
            return self._tags[0]
        self._said += 1
        return f"{self._tags[1]} Remark number {self._said}."

    async def chat(self, request: ChatRequest, images: ImageBytes) -> AsyncIterator[ChatEvent]:
        most = request.params["max_tokens"]
        first = request.messages[0]["content"]
        text = first if isinstance(first, str) else "".join(part.get("text", "") for part in first)
        if most == 1:
            kind, answer = "prewarm", "."
        elif "[Summary request]" in text or "[Merge request]" in text:
            kind, answer = "summary", SUMMARY * 6
        else:
            kind, answer = "decide", self.decide()
        body = {"messages": request.messages, **request.params}
        prompt, cached, generated = self.count(kind, body, answer)
        if kind == "decide":
            self.last_prompt = prompt
        yield Delta(answer)
        yield Finished(
            finish_reason="stop",
            prompt_tokens=prompt,
            completion_tokens=generated,
            cached_tokens=cached,
            body_bytes=0,
            retries=0,
            ttft_ms=1.0,
            total_ms=1.0,
        )

    async def tokenize(self, messages: Sequence[Mapping[str, Any]], images: ImageBytes) -> int:
        return len(
            template(
                self.tokenizer,
                {"messages": messages},
                lambda part: image_pads(part["uuid"], self._image_tokens),
            )
        )

    async def ping(self, timeout_s: float) -> bool:
        return True

    async def aclose(self) -> None:
        pass
