"""The tables of public benchmarks, laid out as their own scorers lay them out. Pure.

A share stands beside its strict twin: the same slots by the rules of ``evals.metrics.answers``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evals.metrics.official import first_polled, in_time
from evals.metrics.outcome import ClipOutcome, SlotOutcome

OVO, STREAMINGBENCH, OMNI_DUPLEX = "ovo", "streamingbench", "omni_duplex"
"""Names of data sets that have a table."""

UNTOLD = "unknown"
"""Mode, task or split of a clip that has no such tag."""

Table = dict[str, Any]


def tables_of(outcomes: Sequence[ClipOutcome]) -> dict[str, Table]:
    """By name of the data set; those without clips are left out."""
    found: dict[str, Table] = {}
    makers: dict[str, Callable[[Sequence[ClipOutcome]], Table]] = {
        OVO: ovo,
        STREAMINGBENCH: streamingbench,
        OMNI_DUPLEX: omni_duplex,
    }
    for name, make in makers.items():
        mine = [outcome for outcome in outcomes if outcome.clip.dataset == name]
        if mine:
            found[name] = make(mine)
    return found


def ovo(outcomes: Sequence[ClipOutcome]) -> Table:
    """Accuracy of each task, their mean for each mode, and the mean of the modes. Tags are mode and task."""
    tasks: dict[str, dict[str, Table]] = {}
    slots: dict[tuple[str, str], list[SlotOutcome]] = {}
    for outcome in outcomes:
        mode, task, *_ = (*outcome.clip.tags, UNTOLD, UNTOLD)
        slots.setdefault((mode, task), []).extend(outcome.slots)
    for (mode, task), found in sorted(slots.items()):
        tasks.setdefault(mode, {})[task] = _shares(found)
    modes = {mode: _mean(list(of.values())) for mode, of in tasks.items()}
    return {"tasks": tasks, "modes": modes, "total": _mean(list(modes.values()))}


def streamingbench(outcomes: Sequence[ClipOutcome]) -> Table:
    """Share of outputs at the right time, and of right outputs at the right time, of all questions."""
    pairs = [(outcome, slot) for outcome in outcomes for slot in outcome.slots]
    timely = [in_time(s.slot, first_polled(o.clip, s.slot, o.acts)) for o, s in pairs]
    shares = _shares([slot for _, slot in pairs])
    return {"time": sum(timely) / len(timely) if timely else None, **shares}


def omni_duplex(outcomes: Sequence[ClipOutcome]) -> Table:
    """Success of each split: all reminders of a clip right. Descriptions have no slots and no row here.

    A clip with a reminder that nobody judged counts as ``unjudged`` and in no share.
    """
    splits: dict[str, list[ClipOutcome]] = {}
    for outcome in outcomes:
        if outcome.slots:
            split, *_ = (*outcome.clip.tags, UNTOLD)
            splits.setdefault(split, []).append(outcome)
    return {"splits": {split: _all_right(found) for split, found in sorted(splits.items())}}


def _all_right(outcomes: Sequence[ClipOutcome]) -> Table:
    official = [_every([slot.official for slot in outcome.slots]) for outcome in outcomes]
    strict = [_every([slot.right for slot in outcome.slots]) for outcome in outcomes]
    return {
        "official": _share(official),
        "strict": _share(strict),
        "count": len(outcomes),
        "unjudged": sum(verdict is None for verdict in official),
    }


def _every(verdicts: Sequence[bool | None]) -> bool | None:
    if any(verdict is False for verdict in verdicts):
        return False
    return None if any(verdict is None for verdict in verdicts) else True


def _shares(slots: Sequence[SlotOutcome]) -> Table:
    return {
        "official": _share([slot.official for slot in slots]),
        "strict": _share([slot.right for slot in slots]),
        "count": len(slots),
    }


def _share(verdicts: Sequence[bool | None]) -> float | None:
    known = [verdict for verdict in verdicts if verdict is not None]
    return sum(known) / len(known) if known else None


def _mean(tables: Sequence[Table]) -> Table:
    means: Table = {}
    for name in ("official", "strict"):
        known = [table[name] for table in tables if table[name] is not None]
        means[name] = sum(known) / len(known) if known else None
    return means
