"""The parameters of one engine request, from the pack's sampling and what is known of the engine. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from orchestrator.backends.replay.decide import DecisionPoint
from orchestrator.session.told import ResponseOptions
from prompts.pack import Pack, Sampling, Tags

TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What the self-check found of the engine that serves this session.

    :param block_tokens: size of a prefix-cache block; 0: unknown, no audit
    :param silence_stop_id: token id of the silence tag where it is one token: it ends the answer
    :param decision: where speech and silence part, if known
    :param constrained: answers are held to the model's two tags and what may follow them
    :param cache_salt: keeps this tenant's cache apart from others'
    """

    block_tokens: int = 0
    silence_stop_id: int | None = None
    decision: DecisionPoint | None = None
    constrained: bool = False
    cache_salt: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What the client asks of replies; ``None``: as the pack has it. None of it is part of a prompt.

    :param seed: of the session; each tick gets its own from it, so that runs repeat and ticks differ
    :param max_tokens: never raises what the pack allows
    """

    seed: int | None = None
    temperature: float | None = None
    max_tokens: int | None = None

    def over(self, options: ResponseOptions | None) -> Asked:
        """The same with the settings of one reply over those of the session."""
        if options is None:
            return self
        return Asked(
            self.seed,
            self.temperature if options.temperature is None else options.temperature,
            self.max_tokens if options.max_output_tokens is None else options.max_output_tokens,
        )


def decision_params(
    pack: Pack,
    limits: EngineLimits,
    asked: Asked,
    *,
    tick: int,
    bias: float | None,
    continued: bool,
) -> dict[str, Any]:
    """Parameters of a tick's request.

    :param bias: logit bias on the response token; the decision is then greedy and unpenalised
    :param continued: the reply goes on from a prefix in the last message
    """
    params = _base(pack.decide, limits)
    if asked.seed is not None:
        params["seed"] = (asked.seed + tick) % 2**31
    if asked.temperature is not None:
        params["temperature"] = asked.temperature
    if asked.max_tokens is not None:
        params["max_tokens"] = min(asked.max_tokens, pack.decide.max_tokens)
    if limits.silence_stop_id is not None:
        params["stop_token_ids"] = [limits.silence_stop_id]
    if continued:
        return params | {"add_generation_prompt": False, "continue_final_message": True}
    if limits.constrained:
        params["structured_outputs"] = {"regex": answer_pattern(pack.tags)}
    if limits.decision is not None:
        params |= {"logprobs": True, "top_logprobs": TOP_LOGPROBS}
        if bias is not None:
            for name in ("top_p", "top_k", "min_p"):
                params.pop(name, None)
            # A repetition penalty counts the tags of earlier turns and would move the threshold.
            params |= {
                "temperature": 0.0,
                "repetition_penalty": 1.0,
                "logit_bias": {str(limits.decision.response): bias},
            }
    return params


def answer_pattern(tags: Tags) -> str:
    """A regular expression of sound answers: silence alone, or the response tag and any text."""
    return rf"({re.escape(tags.silence)}|{re.escape(tags.response)}[\s\S]+)"


def prewarm_params(pack: Pack, limits: EngineLimits) -> dict[str, Any]:
    """One token after the last answered turn: the engine's cache is filled, nothing is decided."""
    params = _base(Sampling(max_tokens=1, params={"temperature": 0.0}), limits)
    return params | {"add_generation_prompt": False}


def summary_params(sampling: Sampling, limits: EngineLimits) -> dict[str, Any]:
    return _base(sampling, limits)


def _base(sampling: Sampling, limits: EngineLimits) -> dict[str, Any]:
    params: dict[str, Any] = dict(sampling.params)
    params["max_tokens"] = sampling.max_tokens
    # The decision is made of special tokens; without this they are lost.
    params["skip_special_tokens"] = False
    params["include_stop_str_in_output"] = False
    if limits.cache_salt:
        params["cache_salt"] = limits.cache_salt
    return params
