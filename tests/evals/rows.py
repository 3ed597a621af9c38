"""Made-up runs: rows as ``decisions.jsonl`` holds them, deterministic in their arguments."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image, ImageDraw

from evals.report.summary import RunFacts, summarise

SAYINGS = ["A red car passes.", "Two people cross the road.", "The light turns green.", "A cyclist falls!"]


def run_rows(count: int, window_ticks: int = 100) -> list[dict[str, Any]]:
    """``count`` ticks, one a second; the first 10 gated, then a mix of everything that can happen."""
    rows = []
    for tick in range(count):
        window, inside = divmod(tick, window_ticks)
        prompt = 1200 + 210 * (inside + 1)
        row: dict[str, Any] = {
            "tick": tick,
            "media_time_s": float(tick),
            "action": "silence",
            "reason": "model",
            "text": "",
            "question": None,
            "frames": 1,
            "window_frames": inside + 1,
            "chunk": window,
            "window": window,
            "prompt_tokens": prompt,
            "cached_tokens": (prompt - 230) // 32 * 32 if inside else 0,
            "expected_cached_tokens": (prompt - 230) // 32 * 32 if inside else 0,
            "shortfall": None,
            "completion_tokens": 4,
            "latency_ms": 60 + (tick * 37) % 25 + (900 if tick == 12 else 0),
            "ttft_ms": 40 + (tick * 31) % 15,
            "body_bytes": 62_000 + (tick * 13) % 4000,
            "retries": 0,
            "score": None,
            "status": "completed",
            "response_id": None,
            "operations": [f"op-{tick}"],
        }
        if tick < 10:
            row |= {"reason": "gated", "prompt_tokens": 0, "cached_tokens": None, "ttft_ms": None}
            row |= {"expected_cached_tokens": None, "latency_ms": None, "body_bytes": 0}
        elif tick % 9 == 3:
            row |= {
                "action": "response",
                "reason": None,
                "text": SAYINGS[tick % 4],
                "response_id": f"resp-{tick}",
            }
        elif tick % 41 == 20:
            row |= {
                "action": "delegate",
                "reason": None,
                "text": "Let me check.",
                "question": "Which model is it?",
            }
        elif tick % 9 == 4:
            row |= {"reason": "deduplicated"}
        elif tick % 83 == 80:
            row |= {
                "status": "failed",
                "reason": "engine_unreachable",
                "prompt_tokens": None,
                "body_bytes": None,
            }
        elif tick % 97 == 50:
            row |= {"cached_tokens": 1024, "shortfall": "evicted"}
        rows.append(row)
    return rows


def facts(**changes: Any) -> RunFacts:
    values: dict[str, Any] = {
        "outcome": "complete",
        "transport": "in_process",
        "started_at": "2026-01-02T03:04:05+00:00",
        "wall_s": 12.5,
        "options": {"pace": "fast", "queries": [{"at_s": 10.0, "text": "Tell me what happens on the road."}]},
        "source": {"name": "street.mp4", "width": 640, "height": 272},
        "engine": {"model": "standin", "url": "http://127.0.0.1:1", "context_tokens": 32768},
        "frames": {"sent": 3, "dropped": 0},
    }
    return RunFacts(**(values | changes))


def summary(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return summarise(rows, facts(**changes))


def picture(n: int, width: int = 448, height: int = 252) -> bytes:
    """A JPEG that differs for every ``n``."""
    image = Image.new("RGB", (width, height), ((n * 53) % 256, (n * 97) % 256, (n * 29) % 256))
    draw = ImageDraw.Draw(image)
    draw.ellipse(((n * 17) % width, 40, (n * 17) % width + 60, 100), fill="white")
    draw.text((8, 8), str(n), fill="white")
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return out.getvalue()
