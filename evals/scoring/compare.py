"""Runs held against each other, paired by clip and by slot. Pure.

Only clips that every run watched to the end, with the same truth, are compared. The first run is what the
others are held against.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evals.metrics import bootstrap
from evals.metrics.cost import total_spent
from evals.metrics.measures import BY_NAME, MEASURES, Better
from evals.metrics.tally import Tally
from evals.scoring.scores import SEED, Json, group_names, tally_from
from evals.scoring.tables import Table, interval, number, with_interval

FORMAT = "vigil-comparison-1"

ABLATION = (
    "onset_f1_1s",
    "false_alerts_per_h",
    "delay_p90",
    "accuracy",
    "memory",
    "delegation",
)
"""Measures of the ablation table, as far as anything is known of them."""

_COSTS = (
    ("prefilled_tokens", "prefilled a decision"),
    ("engine_s", "engine s/h, decisions"),
    ("other_engine_s", "engine s/h, other requests"),
)


class NothingCommon(Exception):
    """No clip was watched to the end by every run, with one truth."""


def compare(scored: Mapping[str, Mapping[str, Any]]) -> Json:
    """What becomes of the measures from run to run.

    :param scored: content of ``scores.json`` by name of the run, the first being the base
    :raises NothingCommon: they share no clip
    """
    names = list(scored)
    clips = _common([scored[name] for name in names])
    if not clips:
        raise NothingCommon(
            "these runs share no clip that all of them watched to the end with the same truth"
        )
    drawn = bootstrap.draws(len(clips), seed=SEED)
    tallies = {name: [_tallies(scored[name], clip) for clip in clips] for name in names}
    groups = group_names([one for run in tallies.values() for one in run])
    every = {clip for one in scored.values() for clip in one["clips"]}
    return {
        "format": FORMAT,
        "runs": names,
        "clips": clips,
        "left_out": sorted(every - set(clips)),
        "settings": _differing({name: scored[name].get("run") or {} for name in names}),
        "groups": {group: _group(group, tallies, names, drawn) for group in groups},
        "slots": {name: _slots(scored[names[0]], scored[name], clips) for name in names[1:]},
        "cost": {name: _cost(scored[name], clips) for name in names},
    }


def tables_of(comparison: Mapping[str, Any]) -> list[Table]:
    """The ablation table, then every measure of all clips, then the slots that changed."""
    return [_ablation(comparison), *_measures(comparison), _changed(comparison)]


# --- the figures ------------------------------------------------------------------------------------------


def _common(scored: Sequence[Mapping[str, Any]]) -> list[str]:
    """Clips with one truth in all runs, each watched to its end."""
    first, others = scored[0]["clips"], [one["clips"] for one in scored[1:]]
    return sorted(
        name
        for name, clip in first.items()
        if "truth" in clip and all(o.get(name, {}).get("truth") == clip["truth"] for o in others)
    )


def _tallies(scores: Mapping[str, Any], clip: str) -> dict[str, Tally]:
    return {name: tally_from(told) for name, told in scores["clips"][clip]["tallies"].items()}


def _group(
    group: str,
    tallies: Mapping[str, Sequence[Mapping[str, Tally]]],
    names: Sequence[str],
    drawn: bootstrap.Draws,
) -> Json:
    mine = {name: [one.get(group, Tally()) for one in tallies[name]] for name in names}
    found: Json = {}
    for measure in MEASURES:
        values = {name: bootstrap.figure(measure, mine[name], drawn) for name in names}
        if not any(values.values()):
            continue
        changes = {
            name: bootstrap.difference(measure, mine[names[0]], mine[name], drawn) for name in names[1:]
        }
        found[measure.name] = {
            "runs": bootstrap.to_json({name: one for name, one in values.items() if one is not None}),
            "changes": bootstrap.to_json({name: one for name, one in changes.items() if one is not None}),
        }
    return found


def _slots(base: Mapping[str, Any], other: Mapping[str, Any], clips: Sequence[str]) -> Json:
    """Slots judged in both runs: right in both, in neither, and which are right in one alone."""
    found: Json = {"both": 0, "neither": 0, "lost": [], "won": []}
    for clip in clips:
        now = {slot["id"]: slot for slot in other["clips"][clip]["slots"]}
        for slot in base["clips"][clip]["slots"]:
            twin = now.get(slot["id"])
            if twin is None or slot["right"] is None or twin["right"] is None:
                continue
            place = {"clip": clip, "query": slot["query"], "slot": slot["id"], "skill": slot["skill"]}
            match slot["right"], twin["right"]:
                case True, True:
                    found["both"] += 1
                case False, False:
                    found["neither"] += 1
                case True, False:
                    found["lost"].append(place | {"why": twin["why"]})
                case _:
                    found["won"].append(place | {"why": slot["why"]})
    return found


def _cost(scores: Mapping[str, Any], clips: Sequence[str]) -> Json:
    sums: dict[str, float] = {}
    for clip in clips:
        for name, value in scores["clips"][clip]["cost"].items():
            sums[name] = sums.get(name, 0.0) + value
    spent = total_spent(scores["clips"][clip]["spent"] for clip in clips)
    other = sum(told["engine_s"] for purpose, told in spent.items() if purpose != "decision")
    requests, hours = sums.get("requests", 0.0), sums.get("watched_s", 0.0) / 3600
    return {
        "sums": sums,
        "prefilled_tokens": sums["prefilled_tokens"] / requests if requests else None,
        "engine_s": sums["engine_s"] / hours if hours else None,
        "other_engine_s": other / hours if hours and spent else None,
        "by_purpose": spent,
    }


def _differing(runs: Mapping[str, Mapping[str, Any]]) -> Json:
    """Settings that are not the same in all runs, by dotted name and run."""
    flat = {name: _flat(run.get("settings") or {}) for name, run in runs.items()}
    keys = sorted({key for settings in flat.values() for key in settings})
    return {
        key: {name: flat[name].get(key) for name in runs}
        for key in keys
        if len({repr(settings.get(key)) for settings in flat.values()}) > 1
    }


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


# --- the tables -------------------------------------------------------------------------------------------


def _ablation(comparison: Mapping[str, Any]) -> Table:
    settings, figures = comparison["settings"], comparison["groups"]["all"]
    measures = [name for name in ABLATION if name in figures]
    rows = []
    for run in comparison["runs"]:
        cells = [run, *(str(by_run[run]) for by_run in settings.values())]
        for name in measures:
            told = figures[name]
            value = with_interval(told["runs"].get(run), BY_NAME[name])
            mark = _mark(told["changes"].get(run), name)
            # On the value's own line, where an interval follows on the next.
            cells.append(value.replace("\n", f"{mark}\n") if "\n" in value else value + mark)
        cost = comparison["cost"][run]
        cells += ["-" if cost[key] is None else f"{cost[key]:,.0f}" for key, _ in _COSTS]
        rows.append(cells)
    header = ["run", *settings, *(BY_NAME[n].short for n in measures), *(title for _, title in _COSTS)]
    clips, base = len(comparison["clips"]), comparison["runs"][0]
    title = f"{clips} clips; + better, - worse than {base}, by a 95 % interval"
    return Table(title, header, rows)


def _mark(change: Mapping[str, Any] | None, name: str) -> str:
    """Better or worse than the base, where the interval of the difference leaves zero out."""
    if change is None or change["low"] is None or change["low"] <= 0 <= change["high"]:
        return ""
    return " +" if (change["value"] > 0) == (BY_NAME[name].better is Better.HIGHER) else " -"


def _measures(comparison: Mapping[str, Any]) -> list[Table]:
    base, *others = comparison["runs"]
    tables = []
    for run in others:
        rows = []
        for group, figures in comparison["groups"].items():
            if group.startswith("kind:"):
                # Skills say the same in more detail.
                continue
            chosen = {n: t for n, t in figures.items() if group == "all" or n in _of_group(group)}
            for name, told in chosen.items():
                measure, change = BY_NAME[name], told["changes"].get(run)
                of_group = "" if group == "all" else f"{group.replace(':', ' ')}: "
                values = [
                    number((told["runs"].get(one) or {}).get("value"), measure.unit) for one in (base, run)
                ]
                delta = number(change["value"], measure.unit) if change else "-"
                bounds = interval(change, measure) if change else "-"
                rows.append([f"{of_group}{measure.title}", *values, f"{delta}{_mark(change, name)}", bounds])
        tables.append(Table(f"{run} less {base}", ["", base, run, "difference", "95 % interval"], rows))
    return tables


def _of_group(group: str) -> Sequence[str]:
    """Measures of a group that are shown; all of them are in the JSON."""
    return ("memory",) if group.startswith("memory:") else ABLATION


def _changed(comparison: Mapping[str, Any]) -> Table:
    rows = [
        [run, str(told["both"]), str(len(told["lost"])), str(len(told["won"])), str(told["neither"])]
        for run, told in comparison["slots"].items()
    ]
    base = comparison["runs"][0]
    return Table(
        f"Slots, beside {base}", ["run", "right in both", f"only in {base}", "only here", "in neither"], rows
    )
