"""What a fake engine is told to do, and what it notes down: plain data."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import orjson


@dataclass
class Seen:
    """One request as the engine saw it, and what became of it. Times are those of ``FakeEngine(now=)``.

    ``peer``: the client's port, the same for all requests of one connection.
    """

    path: str
    body: bytes
    headers: Mapping[str, str]
    started_at: float
    peer: int = 0
    kind: str = ""
    session: str = ""
    tick: int = 0
    seed: int = 0
    continued: str = ""
    images: tuple[str, ...] = ()
    payloads: tuple[str, ...] = ()
    status: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    text: str = ""
    first_token_at: float | None = None
    ended_at: float | None = None
    disconnected: bool = False

    @cached_property
    def rng(self) -> random.Random:
        """The same for the same engine seed, session and tick, however requests interleave."""
        return random.Random(f"{self.seed}/{self.session}/{self.tick}")

    @property
    def json(self) -> dict[str, Any]:
        return orjson.loads(self.body)  # type: ignore[no-any-return]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return self.json["messages"]  # type: ignore[no-any-return]

    @property
    def params(self) -> dict[str, Any]:
        return {key: value for key, value in self.json.items() if key != "messages"}

    @property
    def body_bytes(self) -> int:
        return len(self.body)


@dataclass(frozen=True)
class Answer:
    """What the model generates.

    :param alternatives: other answers it might have given, with their probabilities; the rest is that of
        ``text``. They show in logprobs, and ``logit_bias`` may make one of them win
    """

    text: str
    alternatives: Mapping[str, float] = field(default_factory=dict)


Script = Callable[[Seen], "str | Answer"] | Sequence["str | Answer"]
"""A callable, or answers by tick, started over at the end."""


@dataclass
class Fault:
    """Something that goes wrong with the next ``times`` chat requests that match ``when`` (None: with all).

    :param status: answer with this status and ``message``; ``in_stream``: as an event after a 200
    :param delay_s: wait before the first token; ``hang``: for ever
    :param stall_after: deltas after which the stream stops for ``stall_s`` (None: for ever)
    :param cut_after: deltas after which the connection breaks; 0: after the headers
    :param drop: close the connection without an answer; ``die``: the whole engine goes
    :param prompt_tokens: count reported instead of the true one; ``cached_tokens`` likewise
    :param no_usage: end the stream without its usage chunk
    """

    when: Callable[[Seen], bool] = lambda _seen: True
    times: int | None = 1
    status: int | None = None
    message: str = "Internal server error"
    in_stream: bool = False
    delay_s: float = 0.0
    hang: bool = False
    stall_after: int | None = None
    stall_s: float | None = None
    cut_after: int | None = None
    drop: bool = False
    die: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    no_usage: bool = False

    def take(self, seen: Seen) -> bool:
        if self.times == 0 or not self.when(seen):
            return False
        if self.times is not None:
            self.times -= 1
        return True


def held_to(regex: str, answer: Answer) -> Answer:
    """The answer if it matches, else the first one that might have been given and does, else the first words
    that the pattern names."""
    texts = [answer.text, *answer.alternatives]
    held = next((text for text in texts if re.fullmatch(regex, text)), None)
    return answer if held == answer.text else Answer(held or regex.strip("()").split("|")[0])


def has_image(uuid: str) -> Callable[[Seen], bool]:
    return lambda seen: uuid in seen.images


def of_kind(*kinds: str) -> Callable[[Seen], bool]:
    return lambda seen: seen.kind in kinds


@dataclass(frozen=True)
class Pace:
    """Seconds through the injected sleep: before the first token, per prefilled token, per generated one."""

    first_token_s: float = 0.0
    per_uncached_token_s: float = 0.0
    per_token_s: float = 0.0
