"""Standing queries: notes are derived from what answered turns show."""

from __future__ import annotations

from memory.queries import Queries, Query


def query(name: str, index: int = 1) -> Query:
    return Query(name, index, f"text {name}", 0)


def ids(queries: list[Query]) -> list[str]:
    return [q.query_id for q in queries]


def test_a_query_is_asked_until_an_answered_turn_shows_it() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    assert ids(queries.unseen()) == ["a"]  # and after a failed tick still
    queries.commit(("a",), seq=4)
    assert not queries.unseen() and queries.current and queries.current.shown_seq == 4


def test_a_query_withdrawn_before_it_was_shown_leaves_no_note() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    assert ids(queries.clear()) == ["a"]
    assert not queries.unseen() and not queries.withdrawn()


def test_a_shown_query_has_to_be_withdrawn_in_words() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    queries.commit(("a",), 0)
    queries.clear()
    assert queries.withdrawn()
    queries.commit((), 1)
    assert not queries.withdrawn()


def test_a_replaced_query_needs_no_withdrawal() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    queries.commit(("a",), 0)
    assert ids(queries.set(query("b"))) == ["a"]
    assert ids(queries.unseen()) == ["b"] and not queries.withdrawn()


def test_a_query_that_came_mid_tick_is_asked_by_the_next() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    queries.set(query("b"))
    queries.commit(("a",), 0)  # the tick was begun when "a" stood
    assert ids(queries.unseen()) == ["b"]


def test_the_same_id_is_the_same_asking_and_a_new_id_asks_again() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    assert queries.set(query("a")) == [] and len(queries.standing) == 1
    queries.commit(("a",), 0)
    queries.set(Query("a2", 2, "text a", 0))
    assert ids(queries.unseen()) == ["a2"]


def test_several_at_a_time_where_the_limit_allows() -> None:
    queries = Queries(2)
    for name in "abc":
        replaced = queries.set(query(name))
    assert ids(replaced) == ["a"] and ids(queries.standing) == ["b", "c"]


def test_the_head_shows_queries_whose_turn_is_gone() -> None:
    queries = Queries(2)
    queries.set(query("a"))
    queries.commit(("a",), 3)
    queries.set(query("b"))
    assert ids(queries.before(4)) == ["a"] and not queries.before(3)


def test_a_deleted_query_is_forgotten_without_a_word() -> None:
    queries = Queries(1)
    queries.set(query("a"))
    queries.commit(("a",), 0)
    queries.remove("a")
    assert not queries.standing and not queries.withdrawn()
