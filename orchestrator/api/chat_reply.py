"""A decision as a chat completion: the union of what the known interaction servers answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.api.context import MemoryView
from orchestrator.runtime.vocabulary import Outcome


@dataclass(frozen=True, slots=True)
class ReplyHead:
    """What every chunk of one answer repeats. ``created``: Unix seconds."""

    completion_id: str
    model: str
    created: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Of this request, in ms. ``waited_ms``: from the input handed to the session to its answer."""

    total_ms: float
    before_ms: float
    waited_ms: float


def merged(outcomes: list[Outcome]) -> Outcome:
    """One answer for all input of a request; input that rode several ticks loses no words."""
    ticks = {outcome.record.get("tick"): outcome for outcome in outcomes}
    ordered = [ticks[tick] for tick in sorted(ticks, key=lambda t: (t is not None, t or 0))]
    spoken = [outcome for outcome in ordered if outcome.text or outcome.question]
    last = spoken[-1] if spoken else ordered[-1]
    if len(spoken) < 2:
        return last
    return Outcome(
        last.operation_id,
        last.record,
        "\n".join(outcome.text for outcome in spoken if outcome.text),
        last.action,
        last.question,
        last.response_id,
        last.error_code,
    )


def completion(
    head: ReplyHead, alias: str, session_id: str, outcome: Outcome, memory: MemoryView, timing: Timing
) -> dict[str, Any]:
    return {
        "id": head.completion_id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": outcome.text},
                "logprobs": None,
                "finish_reason": _finish_reason(outcome.record),
            }
        ],
        "usage": usage(outcome.record),
        "interaction": interaction(alias, session_id, outcome, memory),
        "streamingharness": harness(head.model, outcome, memory, timing),
    }


def chunk(
    head: ReplyHead, delta: Mapping[str, Any], finish_reason: str | None = None, **more: Any
) -> dict[str, Any]:
    return {
        "id": head.completion_id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}],
        **more,
    }


def last_chunk(head: ReplyHead, reply: Mapping[str, Any]) -> dict[str, Any]:
    """Usage and both interaction blocks; no choices, as OpenAI's usage chunk has none."""
    return {
        "id": head.completion_id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "choices": [],
        "usage": reply["usage"],
        "interaction": reply["interaction"],
        "streamingharness": reply["streamingharness"],
    }


def usage(record: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAI's usage; all zero for a tick that asked no engine."""
    prompt, done = _count(record, "prompt_tokens"), _count(record, "completion_tokens")
    return {
        "prompt_tokens": prompt,
        "completion_tokens": done,
        "total_tokens": prompt + done,
        "prompt_tokens_details": {"cached_tokens": _count(record, "cached_tokens")},
    }


def interaction(alias: str, session_id: str, outcome: Outcome, memory: MemoryView) -> dict[str, Any]:
    """The first known server's block, and every column of the tick's record."""
    record = outcome.record
    return {
        **{name: value for name, value in record.items() if name != "operations"},
        "action": outcome.action or "silence",
        "spoke": bool(outcome.text),
        "text": outcome.text,
        "delegated_question": outcome.question,
        "delegation": _delegation(outcome),
        "chunk_index": record.get("chunk"),
        "frame_index": memory.frames,
        "inference_skipped": record.get("prompt_tokens") is None,
        "latency_ms": record.get("latency_ms"),
        "memory": _memory(memory),
        "session_id": alias,
        "server_session_id": session_id,
        "tick": record.get("tick"),
        "reason": record.get("reason"),
        "score": record.get("score"),
        "response_id": outcome.response_id,
    }


def harness(model: str, outcome: Outcome, memory: MemoryView, timing: Timing) -> dict[str, Any]:
    """The second known server's block; times that are no separate step here are null."""
    return {
        "main_model": model,
        "raw_content": outcome.text,
        "timing": {
            "adapter_total_ms": round(timing.total_ms, 3),
            "pre_inference_ms": round(timing.before_ms, 3),
            "prompt_build_ms": None,
            "vllm_inference_ms": round(timing.waited_ms, 3),
            "post_process_ms": round(max(0.0, timing.total_ms - timing.before_ms - timing.waited_ms), 3),
        },
        "summarizer_timing": None,
        "memory": _memory(memory),
    }


def _delegation(outcome: Outcome) -> dict[str, Any] | None:
    """What had become of the question when its tick ended: started, merged with one in work, or failed."""
    told = outcome.record.get("delegation")
    return {"question": outcome.question, **told} if told else None


def _memory(memory: MemoryView) -> dict[str, Any]:
    return {
        "long_term_memory": "\n\n".join(memory.long_term),
        "mid_term_summaries": list(memory.summaries),
    }


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    return value if isinstance(value, int) else 0


def _finish_reason(record: Mapping[str, Any]) -> str:
    return "length" if record.get("status") == "incomplete" else "stop"
