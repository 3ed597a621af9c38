"""``report.html``: one self-contained page of a run, from its summary, rows and thumbnails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

from evals.report import plots
from evals.stats import COLUMNS, Row, percentile

DETAIL_CAP = 20_000
"""Ticks the page's tick reader can show; of longer runs it holds an even sample and all that spoke."""
TABLE_CAP = 1_000
"""Rows of the table of responses; the rest is named, and is in ``decisions.jsonl``."""

KIND_LABELS = {
    "response": "Response",
    "delegate": "Delegated",
    "silence": "Silence",
    "gated": "Silence, gated: no query yet",
    "deduplicated": "Silence, a repeat was held back",
    "unhealthy": "Silence, unhealthy output",
    "engine_late": "Silence, engine late",
    "not_asked": "Silence, nobody asked",
    "failed": "Failed",
}


def kind_of(row: Row) -> str:
    """What a row is shown as: its action, a silence by its reason, ``failed`` for a tick with no answer."""
    if row.get("status") == "failed":
        return "failed"
    action = str(row.get("action") or "silence")
    if action != "silence":
        return action if action in KIND_LABELS else "silence"
    reason = str(row.get("reason") or "")
    return reason if reason in KIND_LABELS else "silence"


def clock(seconds: float | None) -> str:
    """Media time as people read it: ``0:07.5``, ``12:30.0``, ``1:02:03.0``; a dash for an unknown time."""
    if seconds is None:
        return "–"
    tenths = max(0, round(float(seconds) * 10))
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    tail = f"{rest // 10:02d}.{rest % 10}"
    return f"{hours}:{minutes:02d}:{tail}" if hours else f"{minutes}:{tail}"


def when(stamp: str) -> str:
    """An ISO 8601 time as ``2026-01-02 03:04 UTC``."""
    return f"{datetime.fromisoformat(stamp).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def number(value: float | None, unit: str = "", digits: int = 0) -> str:
    """A figure with a thin unit, or a dash when it is not known."""
    if value is None:
        return "–"
    return f"{value:,.{digits}f}".replace(",", " ") + (f" {unit}" if unit else "")


def percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def size(value: float | None) -> str:
    """Bytes as kB or MB."""
    if value is None:
        return "–"
    return number(value / 1e6, "MB", 1) if value >= 1e6 else number(value / 1e3, "kB", 1)


def render(summary: Mapping[str, Any], rows: Sequence[Row], thumbs: Mapping[int, str]) -> str:
    """The page as text.

    :param summary: what ``evals.report.summary.summarise`` made of the same rows
    :param rows: rows of ``decisions.jsonl``, in order
    :param thumbs: tick -> JPEG data URL (``evals.report.thumbs``)
    """
    rows = [dict.fromkeys(COLUMNS) | dict(row) for row in rows]
    kinds = [kind_of(row) for row in rows]
    boundaries = [
        i for i in range(1, len(rows)) if rows[i].get("window") is not None and _window_changes(rows, i)
    ]
    spoken = [(row, kind) for row, kind in zip(rows, kinds, strict=True) if kind in ("response", "delegate")]
    ticks = [int(row["tick"]) for row in rows]
    return _template().render(
        summary=summary,
        legend=[(kind, label, kinds.count(kind)) for kind, label in KIND_LABELS.items() if kind in kinds],
        ribbon=plots.ribbon(kinds, boundaries, f"Decisions over {len(rows)} ticks") if rows else None,
        charts=_charts(rows, boundaries) if rows else [],
        axis=[clock(rows[i].get("media_time_s")) for i in (0, len(rows) // 2, -1)] if rows else [],
        boundaries=len(boundaries),
        film=[
            {"thumb": thumbs[tick], "row": row, "kind": kind}
            for tick, row, kind in zip(ticks, rows, kinds, strict=True)
            if tick in thumbs
        ],
        spoken=spoken[:TABLE_CAP],
        spoken_total=len(spoken),
        detail=_detail(rows, kinds),
        labels=KIND_LABELS,
    )


def _window_changes(rows: Sequence[Row], i: int) -> bool:
    before = next(
        (rows[j].get("window") for j in range(i - 1, -1, -1) if rows[j].get("window") is not None), None
    )
    return before is not None and before != rows[i].get("window")


def _charts(rows: Sequence[Row], boundaries: Sequence[int]) -> list[dict[str, Any]]:
    """The three plots with the text that goes around them."""
    asked = [bool(row.get("prompt_tokens")) for row in rows]

    def values(name: str) -> list[float | None]:
        return [row.get(name) if there else None for row, there in zip(rows, asked, strict=True)]

    latency, ttft, body = values("latency_ms"), values("ttft_ms"), values("body_bytes")
    latency_plot = plots.lines(
        [("a", latency), ("b", ttft)], boundaries, "Latency of each tick in milliseconds"
    )
    tokens_plot = plots.stacked(
        values("cached_tokens"),
        values("prompt_tokens"),
        boundaries,
        "Prompt tokens of each tick, cached and new",
    )
    body_plot = plots.lines([("a", body)], boundaries, "Bytes sent to the engine at each tick")
    fresh = [
        p - c
        for p, c in zip(values("prompt_tokens"), values("cached_tokens"), strict=True)
        if p is not None and c is not None
    ]
    return [
        {
            "title": "Latency",
            "plot": latency_plot,
            "top": number(latency_plot.top, "ms"),
            "keys": [("a", "newest frame in to decision complete"), ("b", "request written to first token")],
            "note": _clipped_note(
                latency_plot, max((v for v in latency if v is not None), default=None), "ms"
            ),
        },
        {
            "title": "Prompt tokens",
            "plot": tokens_plot,
            "top": number(tokens_plot.top),
            "keys": [("low", "from the engine's cache"), ("rest", "computed anew")],
            "note": f"Computed anew: median {number(percentile(fresh, 0.5))} tokens a tick.",
        },
        {
            "title": "Bytes sent",
            "plot": body_plot,
            "top": size(body_plot.top),
            "keys": [("a", "request bodies, retries included")],
            "note": _clipped_note(body_plot, max((v for v in body if v is not None), default=None), ""),
        },
    ]


def _clipped_note(plot: plots.Plot, largest: float | None, unit: str) -> str:
    if not plot.clipped or largest is None:
        return ""
    shown = number(largest, unit) if unit else size(largest)
    what = "value is" if plot.clipped == 1 else "values are"
    return f"{plot.clipped} {what} above the edge; the largest is {shown}."


def _detail(rows: Sequence[Row], kinds: Sequence[str]) -> Markup:
    """The rows as the page's script reads them: columns as arrays, safe inside a ``script`` element."""
    chosen: Sequence[int] = range(len(rows))
    if len(rows) > DETAIL_CAP:
        stride = -(-len(rows) // DETAIL_CAP)
        chosen = [i for i in chosen if i % stride == 0 or kinds[i] in ("response", "delegate")]
    order = list(KIND_LABELS)
    data = {
        "total": len(rows),
        "index": list(chosen),
        "tick": [rows[i].get("tick") for i in chosen],
        "time": [clock(rows[i].get("media_time_s")) for i in chosen],
        "kind": [order.index(kinds[i]) for i in chosen],
        "labels": list(KIND_LABELS.values()),
        "kinds": order,
        "latency": [_rounded(rows[i].get("latency_ms")) for i in chosen],
        "prompt": [rows[i].get("prompt_tokens") for i in chosen],
        "cached": [rows[i].get("cached_tokens") for i in chosen],
        "window": [rows[i].get("window") for i in chosen],
        "frames": [rows[i].get("window_frames") for i in chosen],
        "text": {n: text for n, i in enumerate(chosen) if (text := _said(rows[i]))},
    }
    raw = orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS).decode()
    # Outside its strings JSON has no such characters; escaped inside them, no text can close the element.
    return Markup(raw.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _said(row: Row) -> str:
    text, question = row.get("text") or "", row.get("question")
    return f"{text} → {question}" if question else str(text)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 1)


@cache
def _template() -> Template:
    env = Environment(
        loader=PackageLoader("evals.report", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(when=when, clock=clock, number=number, percent=percent, size=size)
    return env.get_template("report.html.j2")
