"""Stage metrics of one response: what the engine counted for each of its units, added up.

Counts and times add; the first positive first-output time stays; lists join, and the means of them are
computed anew; the time per token is weighted by tokens. Any other value is the newest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Stage = Mapping[str, Any]
Stages = Mapping[str, Stage]
"""Values by the stage's name, ``"0"`` for a single one."""

_ADDED = frozenset(
    {
        *("num_tokens_in", "num_tokens_out", "stage_gen_time_ms", "postprocess_time_ms"),
        *("audio_generated_frames", "audio_duration_s", "image_pixels", "output_unit_count"),
    }
)
_FIRST = frozenset({"serving_time_to_first_output_ms", "vllm_ttft_ms"})
_JOINED = {"inter_output_latencies_ms": "inter_output_latency_ms", "vllm_itls_ms": "vllm_itl_ms"}
"""Lists, and the mean of each."""
_WEIGHTED = {"vllm_tpot_ms": "num_tokens_out", "time_per_output_unit_ms": "output_unit_count"}


def added(before: Stages, more: Stages) -> dict[str, dict[str, Any]]:
    """Both together; neither is changed."""
    names = [*before, *(name for name in more if name not in before)]
    return {name: _stage(before.get(name, {}), more.get(name, {})) for name in names}


def _stage(before: Stage, more: Stage) -> dict[str, Any]:
    out: dict[str, Any] = {**before, **more}
    for key in out:
        if key not in before or key not in more:
            continue
        old, new = before[key], more[key]
        if key in _ADDED:
            out[key] = old + new
        elif key in _FIRST:
            out[key] = old if old > 0 else new
        elif key in _JOINED:
            out[key] = [*old, *new]
        elif key in _WEIGHTED:
            weights = before.get(_WEIGHTED[key], 0), more.get(_WEIGHTED[key], 0)
            total = sum(weights)
            out[key] = (old * weights[0] + new * weights[1]) / total if total else new
    for several, mean in _JOINED.items():
        if out.get(several) and several in before and several in more:
            out[mean] = sum(out[several]) / len(out[several])
    return out
