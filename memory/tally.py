"""Counts of one session: a fold over its log of facts, those of the session itself included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any


class Tally:
    """Feed it every entry of a log in order; ``public`` is plain data."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ticks: Counter[str] = Counter()
        self.silence: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.shortfalls: Counter[str] = Counter()
        self.handovers: Counter[str] = Counter()
        self.config: Mapping[str, Any] = {}
        self.last_tick: Mapping[str, Any] | None = None
        self.ended: str | None = None

    def apply(self, kind: str, data: Mapping[str, Any]) -> None:
        match kind:
            case "session_opened":
                self.config, self.ended = data["config"], None
                self.counts["openings"] += 1
            case "session_configured":
                self.config = data["config"]
            case "session_ended":
                self.ended = data["reason"]
            case "frame_dropped":
                self.dropped[data["reason"]] += 1
            case "tick_answered":
                self._answered(data)
            case "tick_failed":
                self.failures[data["code"]] += 1
            case "window_switched" if data["window"] > 0:
                self.handovers[data["reason"]] += 1
            case "delegation_done":
                self.counts["delegations_answered" if data["ok"] else "delegations_failed"] += 1
            case _ if kind in _COUNTED:
                self.counts[_COUNTED[kind]] += 1

    def _answered(self, data: Mapping[str, Any]) -> None:
        self.ticks[data["action"]] += 1
        if data["action"] == "silence":
            self.silence[data.get("reason") or "unknown"] += 1
        row = tick_row(data)
        if not row:
            return
        self.last_tick = row
        prompt, cached = row.get("prompt_tokens"), row.get("cached_tokens")
        self.tokens["completion"] += row.get("completion_tokens") or 0
        if prompt is None or cached is None:
            return
        promised = row.get("expected_cached_tokens") or 0
        self.tokens += Counter(prompt=prompt, cached=cached, promised=promised, kept=min(cached, promised))
        if row.get("shortfall"):
            self.shortfalls[shortfall_kind(row["shortfall"])] += 1

    @property
    def reuse(self) -> dict[str, Any]:
        """Of the prefix audit: ``kept`` of the ``promised`` tokens; ``cached`` of all prompt tokens."""
        tokens = self.tokens
        return {
            "prompt_tokens": tokens["prompt"],
            "cached_tokens": tokens["cached"],
            "cached_ratio": _ratio(tokens["cached"], tokens["prompt"]),
            "promised_tokens": tokens["promised"],
            "kept_tokens": tokens["kept"],
            "kept_ratio": _ratio(tokens["kept"], tokens["promised"]),
            "shortfalls": dict(self.shortfalls),
        }

    def public(self) -> dict[str, Any]:
        return {
            "counts": {
                **{name: self.counts[name] for name in (*_COUNTED.values(), *_MORE)},
                "completion_tokens": self.tokens["completion"],
            },
            "ticks": dict(self.ticks),
            "silent_because": dict(self.silence),
            "failed_because": dict(self.failures),
            "frames_not_shown": dict(self.dropped),
            "handovers": dict(self.handovers),
            "reuse": self.reuse,
            "last_tick": dict(self.last_tick) if self.last_tick else None,
        }


_COUNTED = {
    "frame_seen": "frames",
    "query_set": "queries",
    "summary_landed": "summaries",
    "summary_failed": "summaries_failed",
    "rollup_landed": "long_term_blocks",
    "rollup_failed": "long_term_blocks_failed",
    "delegation_begun": "delegations",
    "response_ended": "responses",
    "engine_lost": "engine_losses",
}
_MORE = ("delegations_answered", "delegations_failed", "openings")


def tick_row(answered: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The row of ``decisions.jsonl`` that a ``tick_answered`` fact holds; ``None`` where it holds none."""
    row: Mapping[str, Any] | None = (answered.get("metrics") or {}).get("row")
    return row


def shortfall_kind(shortfall: str) -> str:
    """``evicted``, or the section where the bytes differed."""
    return shortfall.partition("/")[0]


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None
