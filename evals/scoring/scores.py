"""``scores.json``: everything a run's record says of how good it was. Pure, but for what is handed in.

Clips that did not run to their end are counted and not judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evals.metrics import bootstrap
from evals.metrics.acts import acts_of
from evals.metrics.benchmarks import tables_of
from evals.metrics.cost import cost_of, total_cost, total_spent
from evals.metrics.curve import Scored, best_of, curve_json, operating_curve
from evals.metrics.outcome import (
    Asked,
    ClipOutcome,
    Place,
    SaidOutcome,
    SlotOutcome,
    Verdicts,
    Why,
    asked_of,
    outcome_of,
)
from evals.metrics.sound import sound_of
from evals.metrics.tally import Tally, tallies_of
from evals.readers.clip import Clip
from evals.scoring.folder import SCORES_FORMAT, Run, RunClip

SEED = 7
"""Of the bootstrap: the same record gives the same intervals."""

Json = dict[str, Any]


def cases_of(run: Run) -> set[Asked]:
    """What a judge has to be asked about a run."""
    asked: set[Asked] = set()
    for one in run.complete:
        asked |= asked_of(one.clip, acts_of(one.clip, one.rows), one.watched_s)
    return asked


def scores_of(run: Run, verdicts: Verdicts, judge: Mapping[str, Any] | None = None) -> Json:
    """The content of ``scores.json``.

    :param judge: what is told of the judge: settings, how many cases were asked, remembered and failed
    """
    complete = run.complete
    outcomes = [outcome_of(c.clip, acts_of(c.clip, c.rows), c.watched_s, verdicts) for c in complete]
    tallies = [tallies_of(outcome) for outcome in outcomes]
    drawn = bootstrap.draws(len(outcomes), seed=SEED)
    groups = {
        name: bootstrap.to_json(bootstrap.figures([t.get(name, Tally()) for t in tallies], drawn))
        for name in group_names(tallies)
    }
    curve = operating_curve(Scored(o.clip, o.acts, o.watched_s) for o in outcomes)
    best = best_of(curve)
    cases = cases_of(run)
    return {
        "format": SCORES_FORMAT,
        "record": run.digest,
        "run": {
            "name": run.path.resolve().name,
            **{name: run.facts.get(name) for name in ("settings", "dataset", "engine", "profile")},
        },
        "counts": _counts(run, outcomes, [case for case in cases if case not in verdicts]),
        "judge": judge,
        "bootstrap": {"draws": bootstrap.DRAWS, "confidence": bootstrap.CONFIDENCE, "seed": SEED},
        "groups": groups,
        "benchmarks": tables_of(outcomes),
        "sound": sound_of((c.heard, c.rows) for c in complete),
        "cost": {
            **total_cost(
                (cost_of(c.rows, c.watched_s) for c in complete), (row for c in complete for row in c.rows)
            ),
            "by_purpose": total_spent(c.spent for c in complete),
        },
        "curve": {"points": curve_json(curve), "best": curve_json([best])[0] if best else None},
        "wrong": [entry for outcome in outcomes for entry in wrong_of(outcome)],
        "clips": {
            **{one.clip.id: {"outcome": one.outcome} for one in run.clips if one not in complete},
            **{
                one.clip.id: _clip(one, outcome, tally)
                for one, outcome, tally in zip(complete, outcomes, tallies, strict=True)
            },
        },
    }


def group_names(tallies: Sequence[Mapping[str, Tally]]) -> list[str]:
    """``all`` first, then kinds, memory by boundaries, skills."""
    return sorted({name for tally in tallies for name in tally}, key=lambda name: (":" in name, name))


def wrong_of(outcome: ClipOutcome) -> list[Json]:
    """Every wrong decision of a clip, in time order, with the ticks that can be asked again."""
    found = [_wrong_slot(outcome, slot) for slot in outcome.slots if slot.right is False]
    found += [_wrong_act(outcome.clip, said) for said in outcome.said if said.place is not Place.REPLY]
    return sorted(found, key=lambda entry: (entry["media_time_s"], entry["why"]))


def _counts(run: Run, outcomes: Sequence[ClipOutcome], open_cases: Sequence[Asked]) -> Json:
    ends: dict[str, int] = {}
    for one in run.clips:
        ends[one.outcome] = ends.get(one.outcome, 0) + 1
    return {
        "clips": len(run.clips),
        "outcomes": ends,
        "not_begun": run.not_begun,
        "slots": sum(len(o.slots) for o in outcomes),
        "unreached": sum(len(o.unreached) for o in outcomes),
        "unjudged": sum(slot.right is None for o in outcomes for slot in o.slots),
        "judge_cases_open": len(open_cases),
        "said": sum(len(o.said) for o in outcomes),
        "watched_s": sum(o.watched_s for o in outcomes),
    }


def _clip(one: RunClip, outcome: ClipOutcome, tallies: Mapping[str, Tally]) -> Json:
    return {
        "outcome": one.outcome,
        "truth": one.truth_digest,
        "tags": list(one.clip.tags),
        "watched_s": outcome.watched_s,
        "figures": bootstrap.to_json(bootstrap.figures([tallies["all"]], bootstrap.draws(1, seed=SEED))),
        "slots": [_slot(slot) for slot in outcome.slots],
        "acts": [_act(said) for said in outcome.said],
        "unreached": list(outcome.unreached),
        "cost": cost_of(one.rows, outcome.watched_s),
        "spent": one.spent,
        "tallies": {
            name: {"ratios": tally.ratios, "values": tally.values} for name, tally in tallies.items()
        },
    }


def _slot(found: SlotOutcome) -> Json:
    act = found.act
    return {
        "id": found.slot.id,
        "query": found.slot.query,
        "kind": found.kind,
        "skill": found.skill,
        "why": found.why.value,
        "right": found.right,
        "official": found.official,
        "memory": found.of_memory,
        "tick": act.tick if act else None,
        "at_s": act.at_s if act else None,
        "delay_s": act.at_s - found.slot.due_s if act else None,
        "did": act.did.value if act else None,
        "said": act.text if act else None,
    }


def _act(said: SaidOutcome) -> Json:
    return {
        "tick": said.act.tick,
        "at_s": said.act.at_s,
        "did": said.act.did.value,
        "class": said.place.value,
        "slot": said.slot,
        "query": said.act.query,
        "repeated": said.repeated,
        "said": said.act.text,
    }


def _wrong_slot(outcome: ClipOutcome, found: SlotOutcome) -> Json:
    slot, act = found.slot, found.act
    silent = [
        other.tick
        for other in outcome.acts
        if not other.spoke and other.query == slot.query and slot.start_s <= other.at_s <= slot.end_s
    ]
    ticks = [act.tick] if act is not None else silent
    return {
        "clip": outcome.clip.id,
        "why": found.why.value,
        "tick": ticks[-1] if ticks else None,
        "ticks": ticks,
        "media_time_s": act.at_s if act is not None else slot.due_s,
        "query": slot.query,
        "slot": slot.id,
        "said": (act.text or act.question) if act is not None else None,
        "wanted": "delegate" if found.why is Why.NOT_DELEGATED else " | ".join(slot.accepted),
    }


def _wrong_act(clip: Clip, said: SaidOutcome) -> Json:
    return {
        "clip": clip.id,
        "why": said.place.value,
        "tick": said.act.tick,
        "ticks": [said.act.tick],
        "media_time_s": said.act.at_s,
        "query": said.act.query,
        "slot": said.slot,
        "said": said.act.text or said.act.question,
        "wanted": "silence",
    }


def tally_from(told: Mapping[str, Any]) -> Tally:
    """A tally as ``scores.json`` holds it."""
    return Tally({name: (a, b) for name, (a, b) in told["ratios"].items()}, dict(told["values"]))
