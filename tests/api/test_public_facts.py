"""Which facts clients see, and what of them."""

from __future__ import annotations

from dataclasses import fields

import pytest

from memory.facts import KINDS as MEMORY_KINDS
from orchestrator.api.public_facts import KINDS, RESPONSE, checked_kinds, public_fact, selects
from orchestrator.session import facts as session_facts
from orchestrator.wire.errors import InvalidRequest

ANSWERED = {
    "tick": 3,
    "media_time_ms": 3000,
    "action": "response",
    "said": "</response> Hello.",
    "raw": "<think>password</think></response> Hello.",
    "text": "Hello.",
    "usage": {"prompt": 10},
    "metrics": {"row": {"tick": 3, "score": 0.9}, "oddities": {}},
}


def test_every_kind_of_fact_is_either_shown_or_known_to_be_hidden() -> None:
    kinds = MEMORY_KINDS | {
        cls.kind for cls in session_facts.SessionFact.__subclasses__() if "kind" in vars(cls)
    }
    assert kinds - KINDS == set()


def test_only_named_fields_are_shown() -> None:
    assert public_fact("tick_answered", ANSWERED) == {
        "tick": 3,
        "media_time_ms": 3000,
        "action": "response",
        "text": "Hello.",
        "record": {"tick": 3, "score": 0.9},
    }
    assert public_fact("head_frozen", {"head": 1, "system": "secret", "memory": []}) == {"head": 1}
    assert public_fact("something_new", {"x": 1}) is None


def test_a_configuration_is_shown_without_what_is_passed_on() -> None:
    config = {"persona": "default", "seed": 0, "voice": None, "extra_body": {"api_key": "secret"}}
    for kind in ("session_opened", "session_configured"):
        assert public_fact(kind, {"config": config}) == {"config": {"persona": "default", "seed": 0}}


def test_kinds_select_and_response_means_words() -> None:
    silent = {**ANSWERED, "text": ""}
    assert selects((), "tick_answered", silent)
    assert selects({"tick_answered"}, "tick_answered", silent)
    assert selects({RESPONSE}, "tick_answered", ANSWERED)
    assert not selects({RESPONSE}, "tick_answered", silent)
    assert not selects({RESPONSE}, "frame_seen", {})
    assert not selects((), "something_new", {})


def test_a_list_of_kinds_is_checked() -> None:
    assert checked_kinds(" response, frame_seen ,", "kinds") == {"response", "frame_seen"}
    assert checked_kinds("", "kinds") == frozenset()
    with pytest.raises(InvalidRequest, match="nonsense") as refused:
        checked_kinds("nonsense", "kinds")
    assert refused.value.param == "kinds"


def test_shown_fields_exist() -> None:
    """A field that is renamed in its fact must be renamed here."""
    from memory import facts as memory_facts
    from orchestrator.api.public_facts import _FIELDS
    from orchestrator.backends.native import facts as native_facts

    known = {
        cls.model_fields["kind"].default: set(cls.model_fields) for cls in memory_facts.Fact.__subclasses__()
    }
    known |= {
        cls.kind: {field.name for field in fields(cls)}
        for cls in (*session_facts.SessionFact.__subclasses__(), *native_facts.NativeFact.__subclasses__())
        if "kind" in vars(cls)
    }
    assert {kind for kind, shown in _FIELDS.items() if set(shown) - known[kind]} == set()
