"""Sessions keep their engine when engines come and go, and no engine gets far more than its share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engines.placement import chosen, overloaded, ranked

names = st.lists(st.text("abcdef:0123456789", min_size=1, max_size=8), min_size=1, max_size=8, unique=True)


@given(st.text(max_size=12), names)
def test_the_order_is_the_same_whoever_asks(session: str, engines: list[str]) -> None:
    assert ranked(session, engines) == ranked(session, sorted(engines))
    assert sorted(ranked(session, engines)) == sorted(engines)


@given(st.text(max_size=12), names)
def test_an_engine_that_goes_moves_its_own_sessions_alone(session: str, engines: list[str]) -> None:
    order = ranked(session, engines)
    for gone in engines:
        assert ranked(session, [e for e in engines if e != gone]) == [e for e in order if e != gone]


@given(st.integers(1, 8), st.integers(1, 200))
def test_loads_stay_near_each_other(engines: int, sessions: int) -> None:
    loads = {f"engine-{number}:8000": 0 for number in range(engines)}
    for number in range(sessions):
        name = chosen(f"duplex-{number}", loads, dict.fromkeys(loads, True))
        assert name is not None
        loads[name] += 1
        assert not overloaded(loads[name], loads)
    assert max(loads.values()) <= 1.25 * sessions / engines + 2


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 50), min_size=1), st.sets(st.sampled_from("abcd"))
)
def test_only_an_engine_that_admits_is_chosen(loads: dict[str, int], open_to: set[str]) -> None:
    admits = {name: name in open_to for name in loads}
    name = chosen("s", loads, admits)
    assert (name is None) == (not any(admits.values()))
    assert name is None or admits[name]
