"""The page of a whole run: what was right and wrong when, in which clip, and what it cost. Pure.

Everything it shows is in ``scores.json``, in the clips and in their rows; pictures are handed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import orjson
from jinja2 import Environment, PackageLoader, Template

from evals import stats
from evals.metrics.measures import BY_NAME, Better, Measure, Unit
from evals.metrics.sound import heard_of
from evals.readers.clip import Clip
from evals.report import suite_plots as plots
from evals.report.plots import ceiling
from evals.report.render import clock, number, percent, size, when
from evals.report.suite_plots import Mark
from evals.scoring.tables import interval, sound_table
from evals.scoring.tables import number as measured
from evals.stats import Row

GALLERY_CAP = 120
"""Wrong decisions that are shown with their pictures; the rest is counted, and in ``scores.json``."""

TILES = (
    "onset_f1_1s",
    "false_alerts_per_h",
    "accuracy",
    "memory",
    "delegation",
    "delay_p90",
)
SHOWN = (
    "onset_f1_1s",
    "onset_precision_1s",
    "onset_recall_1s",
    "onset_f1_2s",
    "delay_mean",
    "delay_p90",
    "false_alerts_per_h",
    "early_silence",
    "silence",
    "repeat_rate",
    "answered",
    "accuracy",
    "memory",
    "delegation",
    "official",
)
"""Measures of the page's tables, as far as they are known."""

WHY = {
    "missed": "Missed",
    "wrong_answer": "Wrong answer",
    "not_delegated": "Not delegated",
    "delegated": "Delegated without need",
    "false_alert": "False alert",
    "false": "False alert",
    "early": "Too early",
    "late": "Too late",
    "extra": "Said again",
}
RIGHT = "reply"
"""Class of an act that is the reply to a slot."""


@dataclass(frozen=True, slots=True)
class ReportClip:
    """:param page: address of the clip's own page, as seen from this one; ``None``: it has none"""

    clip: Clip
    outcome: str
    rows: Sequence[Row]
    page: str | None = None

    @property
    def heard(self) -> bool:
        """It was played to a model that listens and speaks."""
        return any(row.get("kind") == "unit" for row in self.rows)

    @property
    def shown_s(self) -> float:
        """Where its timeline ends, if the clip does not tell."""
        ends = [float(row["end_ms"]) / 1000 for row in self.rows if row.get("kind") == "unit"]
        times = [float(row["media_time_s"]) + 1.0 for row in self.rows if row.get("media_time_s") is not None]
        return max([*ends, *times], default=0.0)


def render_suite(
    manifest: Mapping[str, Any],
    scores: Mapping[str, Any],
    clips: Sequence[ReportClip],
    thumbs: Mapping[int, str],
    audit: Mapping[str, Any] | None = None,
) -> str:
    """The page as text.

    :param manifest: ``run.json``; ``scores``: ``scores.json``
    :param thumbs: JPEG data URLs of wrong decisions, by their place in ``scores.json``
    :param audit: ``audit.json``, if wrong decisions were asked again
    """
    rows = [row for each in clips for row in each.rows]
    asked = [row for row in rows if stats.asked_engine(row)]
    figures = scores["groups"].get("all", {})
    latency = stats.column(asked, "latency_ms")
    curve = plots.curve(scores["curve"]["points"], scores["curve"]["best"])
    wrong = scores["wrong"]
    return _template().render(
        run=manifest,
        scores=scores,
        tiles=_tiles(figures, rows, asked, scores["sound"]),
        sound=sound_table(scores["sound"]).rows,
        overall=_measures(figures),
        skills=_groups(scores["groups"], "skill:"),
        kinds=_groups(scores["groups"], "kind:"),
        curve=curve,
        curve_best=scores["curve"]["best"],
        clips=[_clip(each, scores["clips"].get(each.clip.id, {})) for each in clips],
        gallery=[_wrong(entry, clips, thumbs.get(n)) for n, entry in enumerate(wrong[:GALLERY_CAP])],
        wrong_total=len(wrong),
        whys=_whys(wrong),
        latency=plots.histogram(latency, "Decisions by latency"),
        latency_spread=stats.spread(latency),
        ttft=stats.spread(stats.column(asked, "ttft_ms")),
        settings=_flat(manifest.get("settings") or {}),
        labels=WHY,
        audit=audit,
    )


# --- figures ------------------------------------------------------------------------------------------------


def _tiles(
    figures: Mapping[str, Any], rows: Sequence[Row], asked: Sequence[Row], sound: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    """(title, value, what is told below it)."""
    tiles = []
    for name in TILES:
        if name in figures:
            measure, told = BY_NAME[name], figures[name]
            bounds = _bounds(told, measure)
            tiles.append((measure.title, measured(told["value"], measure.unit), bounds))
    if sound:
        first, turns = sound["client_timing"]["response_created_to_first_audio_ms"], sound["turns"]
        waited = number(turns["speech_end_to_first_audio_ms"]["p50"], "ms")
        if turns["count"]:
            tiles.append(
                ("Answered in time", f"{turns['in_time']} of {turns['count']}", f"median wait {waited}")
            )
        tiles.append(
            ("First sound, median", number(first["p50"], "ms"), f"95 % within {number(first['p95'], 'ms')}")
        )
        return tiles
    spread = stats.spread(stats.column(asked, "latency_ms"))
    tiles.append(("Latency, median", number(spread.p50, "ms"), f"95 % within {number(spread.p95, 'ms')}"))
    tiles.append(("Prompt reused", percent(stats.reuse_ratio(rows)), "from the engine's cache"))
    return tiles


def _measures(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_measure(name, figures[name]) for name in SHOWN if name in figures]


def _measure(name: str, told: Mapping[str, Any]) -> dict[str, Any]:
    measure = BY_NAME[name]
    high = told["high"] if told.get("high") is not None else told["value"]
    top = 1.0 if measure.unit is Unit.SHARE else ceiling(max(float(told["value"]), float(high), 1e-9))
    # A delay may lie before its time: then there is no bar from 0.
    drawn = told["value"] is not None and float(told["value"]) >= 0
    return {
        "title": measure.title,
        "value": measured(told["value"], measure.unit),
        "interval": _bounds(told, measure),
        "count": f"{told['count']:g}" if measure.unit is not Unit.PER_HOUR else f"{told['count']:.2f} h",
        "better": "higher is better" if measure.better is Better.HIGHER else "lower is better",
        "bar": plots.whisker(_positive(told), top) if drawn else None,
    }


def _bounds(told: Mapping[str, Any], measure: Measure) -> str:
    """Nothing where no interval is known: a dash below a value tells nobody anything."""
    return "" if told["low"] is None else interval(told, measure)


def _positive(told: Mapping[str, Any]) -> dict[str, Any]:
    return {end: None if told.get(end) is None else max(0.0, told[end]) for end in ("value", "low", "high")}


def _groups(groups: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """A table of the measures by group: ``columns`` of titles, ``rows`` of (group, cells)."""
    mine = {name.removeprefix(prefix): told for name, told in groups.items() if name.startswith(prefix)}
    names = [n for n in TILES if any(n in told for told in mine.values())]
    rows = []
    for group, told in mine.items():
        cells = [_cell(name, told.get(name)) for name in names]
        rows.append((group, cells))
    return {"columns": [BY_NAME[name].short for name in names], "rows": rows}


def _cell(name: str, told: Mapping[str, Any] | None) -> tuple[str, str]:
    """A measure and its interval, as text."""
    measure = BY_NAME[name]
    return ("–", "") if told is None else (measured(told["value"], measure.unit), _bounds(told, measure))


def _whys(wrong: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, int]]:
    counts: dict[str, int] = {}
    for entry in wrong:
        counts[entry["why"]] = counts.get(entry["why"], 0) + 1
    return [
        (why, WHY.get(why, why), count) for why, count in sorted(counts.items(), key=lambda e: (-e[1], e[0]))
    ]


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found += _flat(value, f"{prefix}{name}.")
        elif value not in (None, [], ()):
            found.append((f"{prefix}{name}", orjson.dumps(value).decode().strip('"')))
    return found


# --- a clip over time --------------------------------------------------------------------------------------


def _clip(each: ReportClip, told: Mapping[str, Any]) -> dict[str, Any]:
    clip, rows = each.clip, each.rows
    length = max(clip.duration_s or 0.0, each.shown_s, 1.0)
    slots = told.get("slots", [])
    acts = _acts(slots, told.get("acts", []))
    scored = [(float(r["media_time_s"]), float(r["score"])) for r in rows if r.get("score") is not None]
    right = sum(slot["right"] is True for slot in slots)
    return {
        "id": clip.id,
        "outcome": each.outcome,
        "page": each.page,
        "queries": clip.queries,
        "right": right,
        "slots": len(slots),
        "wrong": sum(act.kind == "wrong" for act in acts)
        + sum(slot["right"] is False and slot["tick"] is None for slot in slots),
        "figures": _heard_figures(rows) if each.heard else _asked_figures(rows),
        "axis": [clock(0.0), clock(length / 2), clock(length)],
        "svg": plots.timeline(
            length,
            _truth(clip, slots, length),
            _decided(rows, acts),
            scored,
            _switches(rows),
            f"Truth and decisions of {clip.id}",
        ),
        "events": _events(clip, slots, acts),
    }


def _asked_figures(rows: Sequence[Row]) -> str:
    latency = stats.spread(stats.column([row for row in rows if stats.asked_engine(row)], "latency_ms"))
    windows = len({row.get("window") for row in rows if row.get("window") is not None})
    return (
        f"{len(rows)} ticks · {number(latency.p50, 'ms')} median · {percent(stats.reuse_ratio(rows))} reused"
        f" · {windows} {'window' if windows == 1 else 'windows'}"
    )


def _heard_figures(rows: Sequence[Row]) -> str:
    heard = heard_of(rows)
    units = sum(row.get("kind") == "unit" for row in rows)
    played = sum(one.end_s - one.start_s for one in heard)
    return f"{units} units · {len(heard)} responses heard · {number(played, 's', 1)} of sound"


def _truth(clip: Clip, slots: Sequence[Mapping[str, Any]], length: float) -> list[Mark]:
    """What is asked as long bands, spans of silence below them, slots on top."""
    found = []
    asked = sorted(clip.queries, key=lambda q: q.at_s)
    for index, query in enumerate(asked):
        later = asked[index + 1].at_s if index + 1 < len(asked) else length
        end = min(later, query.until_s) if query.until_s is not None else later
        told = f"{clock(query.at_s)} asked: {query.text}"
        found.append(Mark(query.at_s, end, f"asked{index % 2}", told, 1.0))
    for silence in clip.silences:
        told = f"{clock(silence.start_s)} to {clock(silence.end_s)}: nothing may be said. {silence.why}"
        found.append(Mark(silence.start_s, silence.end_s, "hush", told, 0.18))
    for speech in clip.speech:
        told = f"{clock(speech.start_s)} to {clock(speech.end_s)} spoken: {speech.text}"
        found.append(Mark(speech.start_s, speech.end_s, "speech", told, 0.18))
    verdicts = {slot["id"]: slot for slot in slots}
    for slot in clip.slots:
        verdict = verdicts.get(slot.id)
        right = verdict["right"] if verdict is not None else None
        kind = "open" if right is None else "right" if right else "wrong"
        wanted = ", ".join(slot.accepted) or slot.kind.value
        told = f"{clock(slot.start_s)} to {clock(slot.end_s)}: {slot.kind.value}, wanted {wanted}"
        if verdict is not None and verdict["right"] is not True:
            told += f"; {WHY.get(verdict['why'], verdict['why'])}"
        found.append(Mark(slot.start_s, slot.end_s, kind, told, 0.62))
    return found


_HELD = ("deduplicated", "engine_late", "unhealthy")


def _decided(rows: Sequence[Row], acts: Sequence[_Act]) -> list[Mark]:
    found = []
    for one in heard_of(rows):
        told = f"{clock(one.start_s)} to {clock(one.end_s)} heard{', and cut off' if one.cut else ''}"
        found.append(Mark(one.start_s, one.end_s, "heard", told, 0.45))
    for row in rows:
        if row.get("kind") is not None:
            continue
        at, reason = float(row.get("media_time_s") or 0.0), row.get("reason")
        if reason in ("gated", "not_asked"):
            found.append(Mark(at, at + 1.0, "gated", f"{clock(at)} silent: nothing was asked yet", 0.12))
        elif reason in _HELD or row.get("status") == "failed":
            told = f"{clock(at)} silent: {reason or 'failed'}"
            found.append(Mark(at, at + 1.0, "held", told, 0.3, int(row["tick"])))
    for act in acts:
        kind = f"{act.kind} m-handed" if act.did == "delegate" else act.kind
        found.append(
            Mark(act.at_s, act.at_s, kind, f"{clock(act.at_s)} {act.what}: {act.said}", 1.0, act.tick)
        )
    return found


@dataclass(frozen=True, slots=True)
class _Act:
    """Something said. ``kind``: ``right``, ``wrong`` or ``extra``; ``what``: that in words."""

    at_s: float
    tick: int
    did: str
    kind: str
    what: str
    said: str


def _acts(slots: Sequence[Mapping[str, Any]], acts: Sequence[Mapping[str, Any]]) -> list[_Act]:
    replies = {slot["tick"]: slot for slot in slots if slot["tick"] is not None}
    found = []
    for act in acts:
        slot = replies.get(act["tick"]) if act["class"] == RIGHT else None
        if act["class"] != RIGHT:
            what, kind = WHY.get(act["class"], act["class"]), "extra" if act["class"] == "extra" else "wrong"
        elif slot is not None and slot["right"] is not True:
            what, kind = WHY.get(slot["why"], slot["why"]), "wrong" if slot["right"] is False else "open"
        else:
            what, kind = "Right", "right"
        said = str(act["said"] or act["did"])
        found.append(_Act(float(act["at_s"]), int(act["tick"]), str(act["did"]), kind, what, said))
    return found


def _switches(rows: Sequence[Row]) -> list[float]:
    known = [(float(r.get("media_time_s") or 0.0), r["window"]) for r in rows if r.get("window") is not None]
    return [now[0] for before, now in pairwise(known) if before[1] != now[1]]


def _events(
    clip: Clip, slots: Sequence[Mapping[str, Any]], acts: Sequence[_Act]
) -> list[tuple[float, str, str, str]]:
    """(time, class, what, text), in order: the timeline for those who read."""
    events = [(q.at_s, "asked", "Asked", q.text) for q in clip.queries]
    due = {slot.id: slot for slot in clip.slots}
    for slot in slots:
        if slot["right"] is False and slot["tick"] is None:
            missed = due[slot["id"]]
            wanted = ", ".join(missed.accepted) or slot["kind"]
            events.append((missed.due_s, "wrong", WHY.get(slot["why"], slot["why"]), f"wanted: {wanted}"))
    events += [(act.at_s, act.kind, act.what, act.said) for act in acts]
    return sorted(events, key=lambda event: event[0])


def _wrong(entry: Mapping[str, Any], clips: Sequence[ReportClip], thumb: str | None) -> dict[str, Any]:
    clip = next((each.clip for each in clips if each.clip.id == entry["clip"]), None)
    asked = next((q.text for q in clip.queries if q.id == entry["query"]), "") if clip is not None else ""
    return {**entry, "asked": asked, "thumb": thumb}


@cache
def _template() -> Template:
    env = Environment(
        loader=PackageLoader("evals.report", "page"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    env.filters.update(when=when, clock=clock, number=number, percent=percent, size=size)
    return env.get_template("suite.html.j2")
