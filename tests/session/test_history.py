"""The conversation: order of items, retrieving and deleting, and that only what was heard enters history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.session.history import ROOT, History, Line
from orchestrator.session.items import ContentPart, Item
from orchestrator.wire.errors import VigilError


def user(name: str, text: str = "hi") -> Item:
    return Item(name, "user", content=(ContentPart("input_text", text),))


def assistant(name: str) -> Item:
    return Item(name, "assistant", "in_progress")


def order(history: History) -> list[str]:
    return list(history._items)


def test_items_follow_each_other() -> None:
    history = History()
    assert history.add(user("u1")) is None
    assert history.add(assistant("a1")) == "u1"
    assert history.last_item_id == "a1"


def test_an_item_can_be_put_behind_another_or_first() -> None:
    history = History()
    for name in ("u1", "u2"):
        history.add(user(name))
    assert history.add(user("between"), "u1") == "u1"
    assert history.add(user("first"), ROOT) is None
    assert order(history) == ["first", "u1", "between", "u2"]


@given(st.lists(st.integers(0, 30), max_size=20))
def test_insertion_equals_insertion_into_a_list(places: list[int]) -> None:
    history = History()
    model: list[str] = []
    for number, place in enumerate(places):
        at = place % (len(model) + 1)
        previous = ROOT if at == 0 else model[at - 1]
        history.add(user(f"u{number}"), previous)
        model.insert(at, f"u{number}")
        assert order(history) == model


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (lambda h: h.add(user("u1")), "bad_event"),
        (lambda h: h.add(user("u9"), "nobody"), "item_not_found"),
        (lambda h: h.retrieve("nobody"), "item_not_found"),
        (lambda h: h.retrieve(None), "item_not_found"),
        (lambda h: h.delete("nobody"), "item_not_found"),
    ],
)
def test_refusals_change_nothing(act: object, code: str) -> None:
    history = History()
    history.add(user("u1"))
    with pytest.raises(VigilError) as refused:
        act(history)  # type: ignore[operator]
    assert refused.value.code == code
    assert order(history) == ["u1"]


def test_deleting_removes_item_and_line() -> None:
    history = History()
    history.add(user("u1"))
    history.delete("u1")
    assert history.entries() == ()
    history.update(user("u1"))
    assert history.entries() == (), "an update cannot bring it back"


def test_old_items_are_forgotten() -> None:
    history = History(kept=2)
    for name in ("a", "b", "c"):
        history.add(user(name))
    assert order(history) == ["b", "c"]


def test_only_what_was_heard_enters_and_it_is_filled_in_place() -> None:
    history = History()
    history.add(user("u1", "question"))
    history.add(assistant("a1"))
    assert [line.item_id for line in history.entries()] == ["u1"]
    history.reserve("a1")
    assert [line.item_id for line in history.entries()] == ["u1"], "a reserved slot without text is no line"
    assert history.hear("a1", "half", complete=False)
    history.add(user("u2", "next"))
    assert history.hear("a1", "half and whole", complete=True)
    assert not history.hear("a1", "half and whole", complete=True)
    assert history.entries() == (
        Line("user", "u1", "question"),
        Line("assistant", "a1", "half and whole"),
        Line("user", "u2", "next"),
    )


def test_too_late_once_an_unheard_item_is_followed_by_the_user() -> None:
    history = History()
    history.add(assistant("a1"))
    history.unheard("a1")
    history.add(user("u1"))
    assert history.too_late("a1")
    with pytest.raises(VigilError) as refused:
        history.reserve("a1")
    assert refused.value.code == "playback_ack_too_late"
    assert not history.hear("a1", "x", complete=True)


def test_the_user_speaking_over_a_response_does_not_make_it_too_late() -> None:
    history = History()
    history.add(assistant("a1"))
    history.add(user("u1"))
    history.reserve("a1")
    assert history.hear("a1", "x", complete=True)


def test_a_forgotten_item_is_ignored() -> None:
    history = History()
    history.reserve("gone")
    history.unheard("gone")
    assert not history.reserved("gone")


def test_any_earlier_reservation_keeps_the_slot() -> None:
    history = History()
    history.add(assistant("a1"))
    history.reserve("a1")
    history.add(user("u1"))
    history.reserve("a1")
    assert history.hear("a1", "x", complete=False)


def test_a_later_assistant_item_does_not_make_it_too_late() -> None:
    history = History()
    history.add(assistant("a1"))
    history.add(assistant("a2"))
    history.reserve("a1")
    assert history.reserved("a1")


def test_a_conversation_is_taken_up_again() -> None:
    lines = (Line("user", "u1", "question"), Line("assistant", "a1", "ans", complete=False))
    history = History(lines=lines)
    assert history.entries() == lines
    assert history.retrieve("a1").content == (ContentPart("output_text", "ans"),)
    assert history.add(user("u2")) == "a1"
    assert not history.too_late("a1")
