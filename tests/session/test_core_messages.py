"""Messages with pictures, responses with settings of their own, and updates."""

import pytest

from orchestrator.session.backend import Capabilities, TickDone
from orchestrator.session.commands import (
    AppendInput,
    Close,
    CreateItem,
    CreateResponse,
    Reconfigure,
)
from orchestrator.session.effects import BackendCommit, BackendTell
from orchestrator.session.events import (
    ItemDone,
    ResponseCreated,
    SessionUpdated,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.limits import SessionLimits
from orchestrator.session.told import ResponseOptions
from orchestrator.wire.errors import EngineFault, InvalidRequest, VigilError
from tests.session.turn_parts import HOLDS, RECORDS, driver, pending, picture, speech, submitted


def message(name: str, *pictures: AppendInput, text: str = "what is it?") -> CreateItem:
    parts = [ContentPart("input_text", text)] if text else []
    content = (*parts, *[ContentPart("input_image")] * len(pictures))
    return CreateItem(Item(name, "user", content=content), None, pictures)


@pytest.mark.parametrize("capabilities", [HOLDS, RECORDS])
def test_pictures_of_a_message_come_before_its_answer(capabilities: Capabilities) -> None:
    d = driver(capabilities)
    d.send(message("item_1", picture("p1"), picture("p2")))
    d.send(CreateResponse())
    assert submitted(d) == ["what is it?", "p1", "p2", "create"]
    assert pending(d) == 0


def test_a_picture_alone_may_be_answered() -> None:
    d = driver(RECORDS)
    d.send(message("item_1", picture("p1"), text=""))
    assert [part.kind for part in d.of(ItemDone)[0].item.content] == ["input_image"]
    d.send(CreateResponse())
    assert submitted(d) == ["p1", "create"]


def test_a_refused_message_keeps_no_picture() -> None:
    d = driver(RECORDS, carry=False)
    d.send(message("item_1", picture("p1")))
    assert pending(d) == 4
    d.carry(InvalidRequest("too long", code="query_too_long"))
    assert pending(d) == 0
    assert submitted(d) == ["what is it?"]
    d.auto = True
    d.send(message("item_1", picture("p1")))
    d.send(message("item_1", picture("p2")))
    assert d.rejects() == ["query_too_long", "bad_event"]
    assert pending(d) == 0


@pytest.mark.parametrize("capabilities", [HOLDS, RECORDS])
def test_a_message_that_the_end_overtakes_keeps_no_picture(capabilities: Capabilities) -> None:
    """Race: the session is closed while the backend is still taking the message's words."""
    d = driver(capabilities, carry=False)
    d.send(message("item_1", picture("p1")))
    d.send(Close())
    while d.pending:
        d.carry()
    assert pending(d) == 0
    assert submitted(d) == ["what is it?"]


def test_only_so_many_pictures_wait_for_an_answer() -> None:
    d = driver(RECORDS)
    for number in range(4):
        d.send(message(f"item_{number}", picture(f"a{number}"), picture(f"b{number}")))
    d.send(message("item_9", picture("one_more")))
    assert d.rejects() == ["input_backpressure"]
    answered = TickDone(Fence(), 1, ("a0", "b0"), {"tick": 1})
    d.yields(answered)
    d.send(message("item_10", picture("now")))
    assert d.rejects() == ["input_backpressure"]
    assert pending(d) == 0


def test_pictures_are_charged_all_or_none() -> None:
    d = driver(limits=SessionLimits(max_pending_input_bytes=50))
    with pytest.raises(VigilError):
        d.send(message("item_1", picture("p1", b"x" * 30), picture("p2", b"x" * 30)))
    assert pending(d) == 0


@pytest.mark.parametrize("text", ["x" * 30, "x" * 60])
def test_a_message_whose_words_do_not_fit_charges_no_picture(text: str) -> None:
    d = driver(limits=SessionLimits(max_pending_input_bytes=50))
    with pytest.raises(VigilError):
        d.send(message("item_1", picture("p1", b"x" * 30), text=text))
    assert pending(d) == 0


def test_settings_of_one_response_are_told_with_its_fence() -> None:
    able = Capabilities(1000, optional_input_modalities=("video",), response_options=True)
    d = driver(able)
    d.send(picture("f"))
    options = ResponseOptions(instructions="brief")
    d.send(CreateResponse(options=options))
    told, commit = d.done[-2:]
    assert told == BackendTell(options, d.core.fence)
    assert isinstance(commit, BackendCommit)
    assert commit.fence == d.core.fence


def test_settings_of_one_response_where_there_are_none() -> None:
    d = driver(RECORDS)
    d.send(picture("f"))
    d.send(CreateResponse(options=ResponseOptions(temperature=0.1)))
    assert d.rejects() == ["unsupported_native_response_options"]
    assert d.of(ResponseCreated) == []


def test_modalities_of_one_response() -> None:
    voice = Capabilities(1000, optional_input_modalities=("video",), output_modalities=("text", "audio"))
    d = driver(voice)
    d.send(picture("f"))
    d.send(CreateResponse(modalities=("text",)))
    assert d.of(ResponseCreated)[0].modalities == ("text",)


# --- updates ---


def test_an_update_is_applied_to_the_configuration_as_it_then_is() -> None:
    d = driver(RECORDS)
    d.send(Reconfigure({"instructions": "a", "extra_body": {"k": 1}}))
    d.send(Reconfigure({"temperature": 0.5}))
    assert (d.core.config.instructions, d.core.config.temperature) == ("a", 0.5)
    assert [type(e).__name__ for e in d.of(SessionUpdated)] == ["SessionUpdated"] * 2
    assert d.of(SessionUpdated)[-1].session["temperature"] == 0.5


def test_a_refused_update_changes_nothing_and_names_its_event() -> None:
    d = driver(RECORDS)
    before = d.core.config
    d.send(Reconfigure({"instructions": "a", "turn_detection": {"type": "nope"}}, event_id="evt_7"))
    assert d.rejects() == ["unsupported_turn_detection"]
    assert d.core.config == before
    assert d.of(SessionUpdated) == []


def test_an_update_behind_a_failed_append_is_aborted() -> None:
    d = driver(RECORDS, auto=True, carry=False)
    d.send(speech("a"))
    d.carry(EngineFault("no"))
    d.send(Reconfigure({"instructions": "a"}))
    assert d.rejects()[-1] == "session_update_aborted"
