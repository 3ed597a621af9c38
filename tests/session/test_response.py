"""The life cycle of one response: events in the contract's order, exactly one terminal, ids by rule."""

import pytest

from orchestrator.session.events import Event, OutputItemAdded, OutputTextDone, ResponseDone
from orchestrator.session.fence import Fence
from orchestrator.session.response import STEPS, Phase, Response, Step, response_id_of, serial_of
from orchestrator.wire.errors import ServerFault


def make() -> Response:
    return Response(response_id_of("duplex-1", 2, 10), Fence(2, 1), "item_before")


def types(*groups: tuple[Event, ...]) -> list[str]:
    return [event.type for group in groups for event in group]


def test_text_response_follows_the_template() -> None:
    response = make()
    events = types(
        response.begin(),
        response.speak(0.7),
        response.add_text("One "),
        response.add_text("two"),
        response.finish("completed", None),
    )
    assert events == [
        "response.created",
        "conversation.item.added",
        "conversation.item.created",
        "response.output_item.added",
        "response.speak",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ]


def test_text_done_equals_the_concatenation_of_deltas() -> None:
    response = make()
    response.begin()
    for delta in ("a", "", "bc"):
        response.add_text(delta)
    done = [e for e in response.finish("completed", None) if isinstance(e, OutputTextDone | ResponseDone)]
    assert [event.text for event in done] == ["abc", "abc"]


def test_creation_events_are_snapshots_that_never_grow() -> None:
    response = make()
    added = next(e for e in response.begin() if isinstance(e, OutputItemAdded))
    response.add_text("later")
    response.finish("completed", None)
    assert added.item.content == ()
    assert added.item.status == "in_progress"


def test_speak_is_said_once_and_never_after_content() -> None:
    response = make()
    response.begin()
    assert types(response.speak(None)) == ["response.speak"]
    assert response.speak(None) == ()
    late = make()
    late.begin()
    late.add_text("x")
    assert late.speak(0.5) == ()


def test_a_response_without_content_ends_without_content_events() -> None:
    response = make()
    response.begin()
    assert types(response.finish("cancelled", "client_cancelled")) == [
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ]


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("step", Step)
def test_step_table_is_total(phase: Phase, step: Step) -> None:
    response = make()
    response.phase = phase

    def act() -> object:
        return response.add_text("x") if step is Step.CONTENT else response.finish("failed", "x")

    if (phase, step) in STEPS:
        act()
        assert response.phase is STEPS[phase, step]
    else:
        with pytest.raises(ServerFault):
            act()


def test_ids_follow_the_contract() -> None:
    response_id = response_id_of("duplex-ab", 3, 255)
    assert response_id == "resp-duplex-ab-3-000000ff"
    assert Response(response_id, Fence(3, 0), None).item_id == "item_" + response_id
    assert serial_of("duplex-ab", response_id) == 255
    for other in ("resp-duplex-x-3-000000ff", "resp-duplex-ab-3-ff", "resp-duplex-ab-3-zzzzzzzz", "", "-"):
        assert serial_of("duplex-ab", other) is None
