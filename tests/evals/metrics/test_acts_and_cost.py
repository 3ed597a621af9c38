"""Acts from the rows of a replay, and what it cost."""

from __future__ import annotations

from evals.metrics.acts import Act, Did, acts_of, query_at
from evals.metrics.cost import cost_of, spent, total_cost, total_spent
from evals.readers.clip import Clip, Query
from evals.runs.tape_reader import Moment
from tests.evals.rows import run_rows

CLIP = Clip(
    id="c",
    video="c.mp4",
    queries=(Query(id="a", at_s=5, text="?"), Query(id="b", at_s=20, until_s=30, text="?")),
)


def test_rows_become_acts_with_the_query_in_force() -> None:
    acts = acts_of(CLIP, run_rows(100))
    assert acts[12] == Act(12, 12.0, Did.RESPONSE, "A red car passes.", "", None, acts[12].latency_ms, 0, "a")
    assert acts[20].did is Did.DELEGATE and acts[20].question == "Which model is it?"
    # The tick that failed decided nothing.
    assert [act.tick for act in acts if act.tick >= 78] == [78, 79, *range(81, 100)]
    assert [query_at(CLIP, at) for at in (4.9, 5, 19.9, 20, 29.9, 30)] == [None, "a", "a", "b", "b", None]


def test_of_two_queries_asked_at_once_the_later_one_stands() -> None:
    queries = (Query(id="b", at_s=5, text="?"), Query(id="a", at_s=5, text="?"), Query(id="c", text="?"))
    assert query_at(CLIP.model_copy(update={"queries": queries}), 6) == "a"


def test_tokens_time_and_bytes_are_added_up() -> None:
    rows = run_rows(100)
    sums = cost_of(rows, 100.0)
    assert sums["ticks"] == 100
    assert sums["prompt_tokens"] == sums["cached_tokens"] + sums["prefilled_tokens"]
    assert sums["failed"] == 1
    both = total_cost([sums, sums], [*rows, *rows])
    assert both["sums"]["requests"] == 2 * sums["requests"]
    assert both["per_request"]["prefilled_tokens"] == sums["prefilled_tokens"] / sums["requests"]
    assert both["per_hour"]["body_bytes"] == sums["body_bytes"] * 36
    assert total_cost([], [])["per_hour"] == {}


def test_requests_are_told_apart_by_what_they_were_for() -> None:
    def took(asked: int, seconds: float, cached: int | None) -> Moment:
        told = {"prompt_tokens": 100, "cached_tokens": cached, "completion_tokens": 5, "body_bytes": 1000}
        return Moment(1.0, "end", {"id": asked, "finished": told | {"total_ms": 1000 * seconds}})

    asks = [
        Moment(0.0, "ask", {"id": n, "purpose": purpose})
        for n, purpose in enumerate(("decision 1", "decision 2", "summary 0/1", "decision 3"), 1)
    ]
    ends = [took(1, 0.5, 90), took(2, 0.5, None), took(3, 4.0, 0), Moment(1.0, "end", {"id": 4, "error": {}})]
    found = spent([*asks, Moment(0.5, "frame", {}), *ends])
    assert (found["decision"]["requests"], found["decision"]["prefilled_tokens"]) == (3, 110)
    assert (found["summary"]["engine_s"], found["summary"]["body_bytes"]) == (4.0, 1000)
    assert total_spent([found, found])["decision"]["engine_s"] == 2.0
    assert total_spent([]) == {}


def test_where_no_cached_tokens_are_told_all_count_as_prefilled() -> None:
    sums = cost_of([{"prompt_tokens": 100, "latency_ms": 50.0}, {"prompt_tokens": 0}], 2.0)
    assert (sums["prefilled_tokens"], sums["cached_tokens"], sums["engine_s"]) == (100, 0, 0.05)
