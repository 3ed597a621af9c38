"""The rules of the data sets' own scorers, lax where they are lax, so that our figures stand beside theirs.

They are computed beside the strict rules of ``evals.metrics.answers`` and never enter them. What is lax:

- OVO-Bench, multiple choice and Yes/No: the right text occurs anywhere in the reply, so the letter ``A``
  matches in "ALL", and "No" in "Nothing".
- OVO-Bench, counting: all figures of the reply are joined, so "2 of 10" is 210.
- StreamingBench proactive: only the last logged poll counts, which is the one that first said "now"; the
  wanted output may be part of a word or a number ("3" in "13").
- Omni-DuplexEval reminders and corrections: everything said within the window is judged as one text, however
  often and whatever else was said.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from evals.metrics.acts import Act
from evals.readers.clip import Clip, Official, Slot
from evals.readers.streamingbench import LAST_POLL_S, TIME_TOLERANCE_S


def official(clip: Clip, slot: Slot, reply: str | None, acts: Sequence[Act]) -> bool | None:
    """What the data set's scorer would say of this slot.

    ``None``: it names no rule, or a language model has to say (``joined`` is what it would be shown).

    :param reply: what was said to the slot; ``None``: nothing
    :param acts: everything the model did
    """
    match slot.official:
        case Official.OVO_CHOICE:
            return reply is not None and slot.accepted[0] in reply
        case Official.OVO_YES_NO:
            wanted = slot.accepted[0]
            return reply is not None and (reply == wanted[0] or wanted in reply)
        case Official.OVO_COUNT:
            return reply is not None and "".join(re.findall(r"\d+", reply)) == slot.accepted[0]
        case Official.STREAMINGBENCH_PROACTIVE:
            first = first_polled(clip, slot, acts)
            return in_time(slot, first) and first is not None and slot.accepted[0] in first.text
        case _:
            return None


def first_polled(clip: Clip, slot: Slot, acts: Sequence[Act]) -> Act | None:
    """The output that ends the polling of StreamingBench."""
    asked = clip.query(slot.query).at_s
    polled = (
        act
        for act in acts
        if act.spoke and act.query == slot.query and asked + 1 <= act.at_s <= slot.due_s + LAST_POLL_S
    )
    return next(polled, None)


def in_time(slot: Slot, act: Act | None) -> bool:
    """StreamingBench's time rule alone, which it reports beside the answers."""
    return act is not None and abs(act.at_s - slot.due_s) <= TIME_TOLERANCE_S


def joined(slot: Slot, acts: Sequence[Act]) -> str:
    """Everything said within a window, as Omni-DuplexEval shows it to its judge."""
    said = (act.text.strip() for act in acts if act.spoke and slot.start_s <= act.at_s <= slot.end_s)
    return " ".join(text for text in said if text)
