"""One row per tick: the columns of ``decisions.jsonl``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridges.engine import Finished
from memory.fold import Memory
from memory.plan import AuditResult
from orchestrator.backends.replay.decide import Reason, Verdict
from orchestrator.backends.replay.place import Place

if TYPE_CHECKING:
    from orchestrator.backends.replay.tick import Flight


class Rows:
    """Builds rows at the moment a tick ends, before its answer is folded."""

    def __init__(self, memory: Memory, place: Place) -> None:
        self._memory = memory
        self._place = place

    def answered(
        self,
        flight: Flight,
        verdict: Verdict,
        finished: Finished | None,
        audited: AuditResult | None,
        *,
        score: float | None,
        done_at: float,
    ) -> dict[str, Any]:
        row = self._common(flight, done_at)
        row |= {
            "action": verdict.action.value,
            "reason": verdict.reason,
            "text": verdict.text,
            "question": verdict.question,
            "score": score,
            "status": verdict.status,
        }
        if finished is not None:
            row |= {
                "prompt_tokens": finished.prompt_tokens,
                "cached_tokens": finished.cached_tokens,
                "completion_tokens": finished.completion_tokens,
                "ttft_ms": round(finished.ttft_ms, 3),
                "body_bytes": finished.body_bytes,
                "retries": finished.retries,
                "path": finished.path,
                "path_fallback": finished.fallback,
            }
        if audited is not None:
            row |= {"expected_cached_tokens": audited.expected, "shortfall": audited.shortfall}
        return row

    def broken(self, flight: Flight, code: str, *, done_at: float) -> dict[str, Any]:
        """A tick without a whole answer: ``incomplete`` if something of it was shown, else ``failed``."""
        row = self._common(flight, done_at)
        late = code == "engine_timeout"
        row |= {
            "action": "response" if flight.shown else "silence",
            "reason": Reason.ENGINE_LATE if late and not flight.shown else code,
            "text": flight.shown,
            "status": "incomplete" if flight.shown else "failed",
        }
        return row

    def _common(self, flight: Flight, done_at: float) -> dict[str, Any]:
        memory = self._memory
        columns: dict[str, Any] = dict.fromkeys(
            ("question", "prompt_tokens", "cached_tokens", "expected_cached_tokens", "shortfall",
             "completion_tokens", "ttft_ms", "score", "response_id", "path", "path_fallback")
        )  # fmt: skip
        return columns | {
            "tick": flight.tick,
            "engine": self._place.name,
            "media_time_s": flight.begun.media_time_ms / 1000,
            "frames": len(flight.frames),
            "window_frames": memory.window_frames + len(flight.frames),
            "chunk": memory.chunk_index,
            "window": memory.window_index,
            "latency_ms": round((done_at - flight.admitted_at) * 1000, 3),
            "body_bytes": 0,
            "retries": 0,
            "operations": list(flight.operations),
        }
