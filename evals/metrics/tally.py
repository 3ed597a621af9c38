"""Sums of one clip that every measure is made of. Pure.

A tally holds, for each ratio, numerator and denominator, and for percentiles the values themselves: sums of
tallies are tallies, so clips can be added, resampled and paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from evals.metrics.acts import Act, Did
from evals.metrics.matching import match_times
from evals.metrics.measures import TOLERANCES_S
from evals.metrics.outcome import ClipOutcome, Place, SaidOutcome, SlotOutcome, Why, kind_of, skill_of
from evals.readers.clip import Kind, Slot

Ratios = dict[str, tuple[float, float]]
Values = dict[str, list[float]]

_WIDEST_S = max(TOLERANCES_S)
_HOUR_S = 3600.0
_AT_LEAST = (1, 2)
"""Boundaries for which probes across at least so many are a group too."""


@dataclass(frozen=True, slots=True)
class Tally:
    ratios: Ratios = field(default_factory=dict)
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """The part of an outcome that a group is about. ``seconds``: how long one of its queries was in force."""

    slots: Sequence[SlotOutcome]
    said: Sequence[SaidOutcome]
    seconds: float
    whole: bool


def tallies_of(outcome: ClipOutcome) -> dict[str, Tally]:
    """By group, as they occur: ``all``, ``kind:...``, ``skill:...``, and ``memory:2``: probes across so many
    boundaries, ``memory:2+`` across at least so many."""
    clip = outcome.clip
    free_s = sum(end - start for query, start, end in _in_force(outcome) if not clip.query(query).judged)
    groups: dict[str, View] = {
        "all": View(outcome.slots, outcome.said, outcome.watched_s - free_s, whole=True),
    }
    for prefix, of_slot, of_said, of_query in (
        ("kind", _slot_kind, _said_kind, kind_of),
        ("skill", _slot_skill, _said_skill, skill_of),
    ):
        names = {of_slot(s) for s in outcome.slots} | {of_said(s) for s in outcome.said}
        for name in sorted(names | {of_query(clip, q.id) for q in clip.queries}):
            seconds = sum(
                end - start
                for query, start, end in _in_force(outcome)
                if of_query(clip, query) == name and clip.query(query).judged
            )
            groups[f"{prefix}:{name}"] = View(
                [s for s in outcome.slots if of_slot(s) == name],
                [s for s in outcome.said if of_said(s) == name],
                seconds,
                whole=False,
            )
    probes: dict[str, list[SlotOutcome]] = {}
    for found in outcome.slots:
        if found.of_memory:
            crossed = boundaries(outcome, found)
            at_least = [f"{n}+" for n in _AT_LEAST if crossed is not None and crossed >= n]
            for name in ("unknown" if crossed is None else str(crossed), *at_least):
                probes.setdefault(name, []).append(found)
    tallies = {name: _tally(outcome, view) for name, view in groups.items()}
    return tallies | {f"memory:{name}": _answered(slots) for name, slots in probes.items()}


def _slot_kind(slot: SlotOutcome) -> str:
    return slot.kind


def _slot_skill(slot: SlotOutcome) -> str:
    return slot.skill


def _said_kind(said: SaidOutcome) -> str:
    return said.kind


def _said_skill(said: SaidOutcome) -> str:
    return said.skill


def _in_force(outcome: ClipOutcome) -> list[tuple[str, float, float]]:
    """Each query and from when to when it was in force, within what was watched."""
    queries = sorted(outcome.clip.queries, key=lambda q: q.at_s)
    spans = []
    for number, query in enumerate(queries):
        ends = [outcome.watched_s]
        ends += [query.until_s] if query.until_s is not None else []
        ends += [queries[number + 1].at_s] if number + 1 < len(queries) else []
        if min(ends) > query.at_s:
            spans.append((query.id, query.at_s, min(ends)))
    return spans


def _answered(slots: Sequence[SlotOutcome]) -> Tally:
    """Of some slots alone: whether they were answered, and right; what else was said is not theirs."""
    ratios: Ratios = {}
    _answers(slots, ratios)
    return Tally(ratios)


def _tally(outcome: ClipOutcome, view: View) -> Tally:
    ratios: Ratios = {}
    values: Values = {}
    _onsets(view, ratios, values)
    false = sum(said.place not in (Place.REPLY, Place.EXTRA) for said in view.said)
    _ratio(ratios, "false_alerts_per_h", false, view.seconds / _HOUR_S)
    _ratio(ratios, "repeat_rate", sum(said.repeated for said in view.said), len(view.said))
    extra = sum(said.place is Place.EXTRA for said in view.said)
    _ratio(ratios, "extra_rate", extra, len(view.said))
    _silences(outcome, view, ratios)
    _answers(view.slots, ratios)
    _delegations(view, ratios)
    return Tally(ratios, values)


def _ratio(ratios: Ratios, name: str, above: float, below: float) -> None:
    if below > 0:
        ratios[name] = (float(above), float(below))


# --- onsets ---------------------------------------------------------------------------------------------


def onset_span(slot: Slot, tolerance_s: float) -> tuple[float, float, float]:
    """First and last time at which an act is an onset of this slot, and when it is due."""
    due = slot.due_s
    return max(slot.start_s, due - tolerance_s), min(slot.end_s, due + tolerance_s), due


def _onsets(view: View, ratios: Ratios, values: Values) -> None:
    acts = [said.act for said in view.said]
    slots = [found.slot for found in view.slots]
    same = [[act.query == slot.query for slot in slots] for act in acts]
    for tolerance in TOLERANCES_S:
        spans = [onset_span(slot, tolerance) for slot in slots]
        pairs = match_times([act.at_s for act in acts], spans, same)
        hits = len(pairs)
        _ratio(ratios, f"onset_precision_{tolerance}s", hits, len(acts))
        _ratio(ratios, f"onset_recall_{tolerance}s", hits, len(slots))
        # Twice the hits over acts and slots together: F1 as one ratio of sums.
        _ratio(ratios, f"onset_f1_{tolerance}s", 2 * hits, len(acts) + len(slots))
        if tolerance == _WIDEST_S:
            delays = [acts[a].at_s - slots[n].due_s for a, n in pairs]
            values["delay_s"] = delays
            values["felt_s"] = [
                delay + (acts[a].latency_ms or 0.0) / 1000
                for delay, (a, _) in zip(delays, pairs, strict=True)
            ]
            _ratio(ratios, "delay_mean", sum(delays), len(delays))


# --- silence --------------------------------------------------------------------------------------------


def _silences(outcome: ClipOutcome, view: View, ratios: Ratios) -> None:
    # Where a slot ends as a stretch begins, a reply at that very moment is the slot's.
    owned = {said.act for said in outcome.said if said.place in (Place.REPLY, Place.EXTRA)}
    free = [act for act in outcome.acts if act not in owned]
    silent = ticks = kept = judged = 0
    chosen = {found.slot.id for found in view.slots}
    for query in {found.slot.query for found in view.slots}:
        start = outcome.clip.query(query).at_s
        for slot in outcome.clip.slots_of(query):
            end = min(slot.start_s, slot.known_s)
            acts = [act for act in free if act.query == query and start <= act.at_s < end]
            if acts and slot.id in chosen:
                silent, ticks = silent + _silent(acts), ticks + len(acts)
                kept, judged = kept + (_silent(acts) == len(acts)), judged + 1
            start = max(start, slot.end_s)
    _ratio(ratios, "early_silence", silent, ticks)
    _ratio(ratios, "early_kept", kept, judged)
    if view.whole:
        stretches = outcome.clip.silences
        acts = [act for act in free if any(s.start_s <= act.at_s < s.end_s for s in stretches)]
        _ratio(ratios, "silence", _silent(acts), len(acts))


def _silent(acts: Sequence[Act]) -> int:
    return sum(not act.spoke for act in acts)


# --- answers --------------------------------------------------------------------------------------------


def _answers(slots: Sequence[SlotOutcome], ratios: Ratios) -> None:
    judged = [found for found in slots if found.right is not None]
    replied = [found for found in judged if found.act is not None]
    _ratio(ratios, "answered", sum(f.act is not None for f in slots), len(slots))
    _ratio(ratios, "accuracy", _right(judged), len(judged))
    _ratio(ratios, "accuracy_answered", _right(replied), len(replied))
    ruled = [found for found in slots if found.official is not None]
    both = [found for found in ruled if found.right is not None]
    _ratio(ratios, "official", sum(bool(f.official) for f in ruled), len(ruled))
    _ratio(ratios, "official_strict", _right(both), len(both))
    probes = [found for found in judged if found.of_memory]
    _ratio(ratios, "memory", _right(probes), len(probes))


def _right(slots: Sequence[SlotOutcome]) -> int:
    return sum(found.right is True for found in slots)


def _delegations(view: View, ratios: Ratios) -> None:
    hard = [found for found in view.slots if found.slot.kind is Kind.DELEGATE]
    easy = [found for found in view.slots if found.slot.kind is not Kind.DELEGATE and found.act is not None]
    caught = _right(hard)
    kept = sum(found.why is not Why.DELEGATED for found in easy)
    _ratio(ratios, "delegation_recall", caught, len(hard))
    handed = sum(said.act.did is Did.DELEGATE for said in view.said)
    _ratio(ratios, "delegation_precision", caught, handed)
    if hard or handed:
        _ratio(ratios, "delegation", caught + kept, len(hard) + len(easy))


# --- memory ---------------------------------------------------------------------------------------------


def boundaries(outcome: ClipOutcome, probe: SlotOutcome) -> int | None:
    """How many chunk boundaries really lay between the evidence and the reply to a memory probe.

    Without a reply: up to when it was due. Without chunks in the run: as many as were meant, if that is told.
    """
    crossed = _crossed(outcome.acts, probe)
    return probe.slot.chunks_later if crossed is None else crossed


def _crossed(acts: Sequence[Act], probe: SlotOutcome) -> int | None:
    slot = probe.slot
    seen = slot.evidence_end_s if slot.evidence_end_s is not None else slot.known_s
    then = _chunk_at(acts, seen)
    now = probe.act.chunk if probe.act is not None else _chunk_at(acts, slot.due_s)
    return None if then is None or now is None else now - then


def _chunk_at(acts: Sequence[Act], at_s: float) -> int | None:
    chunks = [act.chunk for act in acts if act.at_s <= at_s and act.chunk is not None]
    return chunks[-1] if chunks else None
