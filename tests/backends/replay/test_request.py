from __future__ import annotations

import re

from orchestrator.backends.replay.decide import DecisionPoint
from orchestrator.backends.replay.request import (
    Asked,
    EngineLimits,
    decision_params,
    prewarm_params,
    summary_params,
)
from orchestrator.session.told import ResponseOptions
from tests.backends.replay.packs import JOYVL

KNOWN = EngineLimits(
    block_tokens=32,
    silence_stop_id=8,
    decision=DecisionPoint(0, 7, 8),
    cache_salt="salt",
)


def decide(limits: EngineLimits, **changes: object) -> dict[str, object]:
    seed = changes.pop("seed", None)
    asked = changes.pop("asked", Asked(seed))  # type: ignore[arg-type]
    arguments: dict[str, object] = {"tick": 3, "bias": None, "continued": False} | changes
    return decision_params(JOYVL, limits, asked, **arguments)  # type: ignore[arg-type]


def test_decisions_keep_special_tokens_and_the_packs_sampling() -> None:
    params = decide(EngineLimits())
    assert params == {
        "temperature": 0.8, "top_p": 0.9, "top_k": 40, "repetition_penalty": 1.1, "presence_penalty": 1.5,
        "max_tokens": 256, "skip_special_tokens": False, "include_stop_str_in_output": False,
    }  # fmt: skip


def test_a_known_engine_gets_stop_logprobs_and_salt() -> None:
    params = decide(KNOWN)
    assert params["stop_token_ids"] == [8]
    assert params["top_logprobs"] == 20 and params["logprobs"] is True
    assert params["cache_salt"] == "salt"


def test_seed_differs_by_tick_and_repeats_by_run() -> None:
    assert decide(KNOWN, seed=5)["seed"] == 8
    assert decide(KNOWN, seed=2**31 - 1)["seed"] == 2


def test_what_a_client_asks_of_replies_stays_within_the_packs_bounds() -> None:
    params = decide(EngineLimits(), asked=Asked(temperature=0.1, max_tokens=10_000))
    assert params["temperature"] == 0.1 and params["max_tokens"] == 256
    over = Asked(7, 0.1, 50).over(ResponseOptions(temperature=0.3))
    assert over == Asked(7, 0.3, 50)
    assert decide(KNOWN, asked=over, bias=1.5)["temperature"] == 0  # a threshold decides greedily


def test_threshold_is_a_greedy_unpenalised_decision() -> None:
    params = decide(KNOWN, bias=1.5)
    assert params["temperature"] == 0 and params["logit_bias"] == {"7": 1.5}
    assert params["repetition_penalty"] == 1.0
    assert "top_p" not in params and "top_k" not in params


def test_a_continued_reply_has_no_generation_prompt_and_no_score() -> None:
    params = decide(KNOWN, continued=True, bias=1.5)
    assert params["continue_final_message"] is True and params["add_generation_prompt"] is False
    assert "logprobs" not in params and "logit_bias" not in params


def test_constrained_answers_begin_with_one_of_two_tags() -> None:
    """Words that are asked for go on from a tag already; summaries and prewarms are free."""
    held = EngineLimits(constrained=True)
    asked = decide(held)["structured_outputs"]
    assert isinstance(asked, dict)
    pattern = asked["regex"]
    for sound in ("</silence>", "</response> Fire!\nTwo of them.", "</response> note </delegation> who?"):
        assert re.fullmatch(pattern, sound)
    for odd in ("", "Fire!", "</response>", "</silence> Fire!", "</delegation> who?"):
        assert not re.fullmatch(pattern, odd)
    assert "structured_outputs" not in decide(held, continued=True)
    assert "structured_outputs" not in decide(EngineLimits())
    assert "structured_outputs" not in prewarm_params(JOYVL, held) | summary_params(JOYVL.summary, held)


def test_a_prewarm_decides_nothing() -> None:
    assert prewarm_params(JOYVL, KNOWN)["max_tokens"] == 1
