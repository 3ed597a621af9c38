"""Stage metrics add up per response, each kind by its own rule."""

import pytest

from orchestrator.session.metrics import Stages, added

ONE: Stages = {
    "0": {
        "num_tokens_in": 10,
        "num_tokens_out": 4,
        "vllm_ttft_ms": 0.0,
        "vllm_tpot_ms": 10.0,
        "vllm_itls_ms": [8.0, 12.0],
        "vllm_itl_ms": 10.0,
        "output_unit_type": "text",
    }
}
TWO: Stages = {
    "0": {
        "num_tokens_in": 5,
        "num_tokens_out": 12,
        "vllm_ttft_ms": 70.0,
        "vllm_tpot_ms": 20.0,
        "vllm_itls_ms": [40.0],
        "vllm_itl_ms": 40.0,
        "output_unit_type": "audio",
    },
    "1": {"audio_duration_s": 1.5},
}


def test_each_kind_by_its_rule() -> None:
    both = added(ONE, TWO)
    stage = both["0"]
    assert (stage["num_tokens_in"], stage["num_tokens_out"]) == (15, 16)
    assert stage["vllm_ttft_ms"] == 70.0
    assert stage["vllm_tpot_ms"] == pytest.approx(17.5)
    assert stage["vllm_itls_ms"] == [8.0, 12.0, 40.0]
    assert stage["vllm_itl_ms"] == pytest.approx(20.0)
    assert stage["output_unit_type"] == "audio"
    assert both["1"] == {"audio_duration_s": 1.5}


def test_the_first_positive_first_output_stays() -> None:
    assert added(TWO, {"0": {"vllm_ttft_ms": 9.0}})["0"]["vllm_ttft_ms"] == 70.0


def test_nothing_is_changed_in_place() -> None:
    before = {name: dict(stage) for name, stage in ONE.items()}
    added(ONE, TWO)
    assert before == ONE


def test_alone_values_pass_through() -> None:
    assert added({}, TWO) == TWO
    assert added(TWO, {}) == TWO
