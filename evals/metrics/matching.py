"""Which act answers which slot: the largest one-to-one matching, and of those the one of least delay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Costs = npt.NDArray[np.float64]

NEVER = np.inf
"""Cost of a pair that can't be."""


def match(costs: Costs) -> list[tuple[int, int]]:
    """Pairs of row and column, each used at most once, ordered by row.

    No other choice has more pairs, and none with as many has a smaller sum of costs. The Hungarian method
    (Kuhn 1955) with potentials, each step over all columns at once: O(rows * rows * columns).

    :param costs: rows x columns, finite and not negative, or ``NEVER``
    """
    rows, columns = costs.shape
    if not rows or not columns:
        return []
    if rows > columns:
        return sorted((row, column) for column, row in match(costs.T))
    allowed = np.isfinite(costs)
    if not allowed.any():
        return []
    # What can't be costs more than all others together: it is taken only where nothing else is left.
    dear = float(costs[allowed].sum()) + 1.0
    padded = np.where(allowed, costs, dear)
    taken = _assign(padded)
    return [(row, column) for row, column in enumerate(taken) if allowed[row, column]]


def _assign(costs: Costs) -> list[int]:
    """A column for each row at the least sum; there are at least as many columns as rows."""
    rows, columns = costs.shape
    # Column 0 is an imaginary one that holds the row to be placed; real columns are 1 and on.
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    owner = np.zeros(columns + 1, dtype=np.int64)
    for row in range(1, rows + 1):
        owner[0] = row
        column = 0
        nearest = np.full(columns + 1, np.inf)
        came_from = np.zeros(columns + 1, dtype=np.int64)
        seen = np.zeros(columns + 1, dtype=bool)
        while owner[column]:
            seen[column] = True
            here = int(owner[column])
            slack = costs[here - 1] - row_price[here] - column_price[1:]
            closer = ~seen[1:] & (slack < nearest[1:])
            nearest[1:][closer] = slack[closer]
            came_from[1:][closer] = column
            reach = np.where(seen, np.inf, nearest)
            reach[0] = np.inf
            following = int(np.argmin(reach))
            step = reach[following]
            row_price[owner[seen]] += step
            column_price[seen] -= step
            nearest[~seen] -= step
            column = following
        while column:
            before = int(came_from[column])
            owner[column] = owner[before]
            column = before
    placed = [0] * rows
    for column in range(1, columns + 1):
        if owner[column]:
            placed[int(owner[column]) - 1] = column - 1
    return placed


def match_times(
    times: Sequence[float], spans: Sequence[tuple[float, float, float]], same: Sequence[Sequence[bool]]
) -> list[tuple[int, int]]:
    """Pairs of act and span.

    :param times: of acts, in seconds
    :param spans: first and last time that is right (both included), and the time that is due
    :param same: acts x spans, whether the act can be meant for that span at all
    """
    costs = np.full((len(times), len(spans)), NEVER)
    for act, at in enumerate(times):
        for number, (start, end, due) in enumerate(spans):
            if same[act][number] and start - EDGE_S <= at <= end + EDGE_S:
                costs[act, number] = abs(at - due)
    return match(costs)


EDGE_S = 1e-6
"""Spans and times come through decimal text: what is equal to a millionth is equal."""
