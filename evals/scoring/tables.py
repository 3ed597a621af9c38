"""Tables for people: what ``score`` and ``compare`` print, as text or markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from evals.metrics.measures import BY_NAME, Measure, Unit

GROUP_MEASURES = (
    "onset_f1_1s",
    "onset_precision_1s",
    "onset_recall_1s",
    "delay_p90",
    "false_alerts_per_h",
    "accuracy",
    "memory",
    "delegation",
)
"""Columns of the tables by kind, by skill and by clip, as far as anything is known of them."""

CLIPS_SHOWN = 30


WIDTH = 150
"""Columns of text where no terminal says how wide it is."""


def console_of() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


class Form(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; the first column names the row, the others are figures."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def show(tables: Iterable[Table], form: Form, console: Console) -> None:
    """Print tables; those without rows are left out."""
    for table in tables:
        if not table.rows:
            continue
        if form is Form.MARKDOWN:
            console.print(markdown(table), markup=False, highlight=False, soft_wrap=True)
            continue
        shown = RichTable(title=table.title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
        for number, name in enumerate(table.header):
            shown.add_column(name, justify="right" if number else "left", overflow="fold")
        for row in table.rows:
            shown.add_row(*(cell.replace("[", r"\[") for cell in row))
        console.print(shown)


def markdown(table: Table) -> str:
    lines = [f"### {table.title}", ""] if table.title else []
    lines.append(_line(table.header))
    lines.append(_line(["---", *["---:"] * (len(table.header) - 1)]))
    lines += [_line(row) for row in table.rows]
    return "\n".join([*lines, ""])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def number(value: float | None, unit: Unit) -> str:
    """A value in the measure's unit; a dash where nothing is known."""
    if value is None:
        return "-"
    match unit:
        case Unit.SHARE:
            return f"{value:.3f}"
        case Unit.SECONDS:
            return f"{value:.2f} s"
        case Unit.PER_HOUR:
            return f"{value:.2f} /h"


def with_interval(told: Mapping[str, Any] | None, measure: Measure) -> str:
    if told is None:
        return "-"
    value = number(told["value"], measure.unit)
    return value if told["low"] is None else f"{value}\n{interval(told, measure)}"


def interval(told: Mapping[str, Any], measure: Measure) -> str:
    """Without the unit, which stands at the value."""
    if told["low"] is None:
        return "-"
    low, high = (number(told[end], measure.unit).split()[0] for end in ("low", "high"))
    return f"[{low}, {high}]"


def score_tables(scores: Mapping[str, Any]) -> list[Table]:
    """Everything that ``vigil eval score`` prints."""
    groups = scores["groups"]
    return [
        _overall(groups.get("all", {})),
        _grouped("By kind", "kind", _named(groups, "kind")),
        _grouped("By skill", "skill", _named(groups, "skill")),
        _memory(_named(groups, "memory")),
        *_benchmarks(scores["benchmarks"]),
        _clips(scores["clips"]),
        sound_table(scores["sound"]),
        _cost(scores["cost"]),
        _spent(scores["cost"]["by_purpose"]),
        _curve(scores["curve"]),
    ]


def _overall(figures: Mapping[str, Any]) -> Table:
    rows = [
        [
            BY_NAME[name].title,
            number(told["value"], BY_NAME[name].unit),
            interval(told, BY_NAME[name]),
            f"{told['count']:g}" if BY_NAME[name].unit is not Unit.PER_HOUR else f"{told['count']:.2f} h",
        ]
        for name, told in figures.items()
    ]
    return Table("Overall", ["", "value", "95 % interval", "of"], rows)


def _named(groups: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.partition(":")[2]: told for name, told in groups.items() if name.startswith(f"{prefix}:")}


def _grouped(title: str, column: str, groups: Mapping[str, Mapping[str, Any]]) -> Table:
    names = [name for name in GROUP_MEASURES if any(name in told for told in groups.values())]
    rows = [
        [group, *(with_interval(told.get(name), BY_NAME[name]) for name in names)]
        for group, told in groups.items()
    ]
    return Table(title, [column, *(BY_NAME[name].short for name in names)], rows)


def _clips(clips: Mapping[str, Mapping[str, Any]]) -> Table:
    told = {name: clip for name, clip in clips.items() if "figures" in clip}
    shown = dict(list(told.items())[:CLIPS_SHOWN])
    names = [n for n in GROUP_MEASURES if any(n in clip["figures"] for clip in shown.values())]
    rows = [
        [clip_id, *(_plain(clip["figures"].get(name), name) for name in names)]
        for clip_id, clip in shown.items()
    ]
    rows += [
        [clip_id, clip["outcome"], *("" for _ in names[1:])]
        for clip_id, clip in clips.items()
        if "figures" not in clip
    ][:CLIPS_SHOWN]
    more = f" (the first {CLIPS_SHOWN} of {len(told)})" if len(told) > CLIPS_SHOWN else ""
    return Table(f"By clip{more}", ["clip", *(BY_NAME[name].short for name in names)], rows)


def _plain(told: Mapping[str, Any] | None, name: str) -> str:
    return "-" if told is None else number(told["value"], BY_NAME[name].unit)


def _memory(groups: Mapping[str, Mapping[str, Any]]) -> Table:
    """Of probes that were judged."""
    rows = [
        [crossed, number(told["value"], Unit.SHARE), interval(told, BY_NAME["memory"]), f"{told['count']:g}"]
        for crossed, figures in sorted(groups.items())
        if (told := figures.get("memory")) is not None
    ]
    title = "Memory, by chunk boundaries between evidence and reply"
    return Table(title, ["boundaries", "right", "95 % interval", "of"], rows)


def _benchmarks(tables: Mapping[str, Any]) -> list[Table]:
    found = []
    for name, table in tables.items():
        rows: list[list[str]] = []
        for mode, tasks in table.get("tasks", {}).items():
            rows += [_shares(f"{mode} {task}", told) for task, told in tasks.items()]
            rows.append(_shares(f"{mode}, mean of tasks", table["modes"][mode]))
        if "total" in table:
            rows.append(_shares("mean of modes", table["total"]))
        rows += [_shares(split, told) for split, told in table.get("splits", {}).items()]
        if "time" in table:
            rows.append(["right time", number(table["time"], Unit.SHARE), "-", f"{table['count']}"])
            rows.append(_shares("right output at the right time", table))
        found.append(Table(f"{name}, by its own rules and by ours", ["", "official", "strict", "of"], rows))
    return found


def _shares(title: str, told: Mapping[str, Any]) -> list[str]:
    return [
        title,
        number(told["official"], Unit.SHARE),
        number(told["strict"], Unit.SHARE),
        str(told.get("count", "")),
    ]


def sound_table(sound: Mapping[str, Any]) -> Table:
    """Of a run with sound; without rows where it has none."""
    rows: list[list[str]] = []
    if sound:
        cut, turns, ledger = sound["barge_in"], sound["turns"], sound["ledger"]
        timing = sound["client_timing"]
        # What never happened has no row: "0 of 0" reads like a failure.
        if cut["count"]:
            heard = cut["speech_start_to_last_heard_ms"]["p50"]
            rows += [
                ["barge-ins stopped in time", f"{cut['in_time']} of {cut['count']}"],
                ["speech start to the last that was heard, p50", _ms(heard)],
                ["made for them and never heard", _ms(cut["wasted_ms"])],
            ]
        if (others := sound["go_on"])["count"]:
            rows.append(["stopped by what is no barge-in", f"{others['false_stops']} of {others['count']}"])
        if turns["count"]:
            rows += [
                ["questions answered in time", f"{turns['in_time']} of {turns['count']}"],
                ["end of speech to first audio, p50", _ms(turns["speech_end_to_first_audio_ms"]["p50"])],
            ]
        rows += [
            ["made and never heard, all", _ms(ledger["unheard_ms"])],
            ["ledgers out of order", f"{ledger['disordered']}"],
            ["created to first audio, p50", _ms(timing["response_created_to_first_audio_ms"]["p50"])],
            ["largest gap between chunks", _ms(timing["max_chunk_gap_ms"]["max"])],
        ]
        if (commit := timing["commit_to_first_audio_ms"])["count"]:
            rows.append(["commit to first audio, p50", _ms(commit["p50"])])
    return Table("Sound", ["", "value"], rows)


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


def _cost(cost: Mapping[str, Any]) -> Table:
    sums, hourly = cost["sums"], cost["per_hour"]
    rows = [
        [title, f"{sums[name]:,.0f}", f"{hourly[name]:,.0f}" if name in hourly else "-"]
        for name, title in (
            ("requests", "requests"),
            ("prompt_tokens", "prompt tokens"),
            ("cached_tokens", "of them cached"),
            ("prefilled_tokens", "of them prefilled"),
            ("completion_tokens", "completion tokens"),
            ("engine_s", "engine seconds"),
            ("body_bytes", "bytes sent"),
        )
        if sums.get(name)
    ]
    return Table("Cost of decisions", ["", "in all", "an hour of media"], rows)


def _spent(purposes: Mapping[str, Mapping[str, float]]) -> Table:
    columns = ("requests", "prefilled_tokens", "completion_tokens", "engine_s")
    rows = [
        [purpose, *(f"{sums[name]:,.0f}" for name in columns[:-1]), f"{sums['engine_s']:,.1f}"]
        for purpose, sums in purposes.items()
    ]
    header = ["for", "requests", "prefilled tokens", "completion tokens", "engine seconds"]
    return Table("All requests, by what they were for", header, rows)


def _curve(curve: Mapping[str, Any]) -> Table:
    points = curve["points"]
    if not points:
        return Table("", [], [])
    picked = [points[round(n * (len(points) - 1) / 8)] for n in range(9)] if len(points) > 9 else points
    picked = sorted({p["threshold"]: p for p in [*picked, curve["best"]]}.items())
    rows = [
        [
            f"{threshold:.3f}{' *' if point == curve['best'] else ''}",
            f"{point['misses']:.3f}",
            f"{point['false_alerts_per_h']:.2f}",
            f"{point['f1']:.3f}",
        ]
        for threshold, point in picked
    ]
    title = "Operating curve from recorded scores (* highest F1)"
    return Table(title, ["threshold", "misses", "false alerts /h", "F1"], rows)
