"""Turn taking in turn mode: what is committed, what waits, and what asks for a response."""

from orchestrator.session.commands import (
    AppendText,
    AskQuery,
    CommitInput,
    CreateItem,
    CreateResponse,
)
from orchestrator.session.effects import BackendAppend, BackendCommit
from orchestrator.session.events import (
    ErrorEvent,
    InputCommitted,
    ItemDone,
    ResponseCreated,
    ResponseListen,
)
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.states import State
from orchestrator.session.units import Modality
from orchestrator.wire.errors import EngineFault, InvalidRequest
from tests.session.turn_parts import NEEDS_AUDIO, driver, pending, picture, silence, speech, submitted


def test_pictures_wait_and_are_handed_over_in_order_with_the_response_asked_last() -> None:
    d = driver()
    d.send(picture("f1"))
    d.send(picture("f2"))
    assert submitted(d) == []
    assert pending(d) == 8
    d.send(CommitInput(create_response=True))
    assert submitted(d) == ["f1", "f2", "create"]
    assert pending(d) == 0
    kinds = [t for t in d.types() if t in ("input_audio_buffer.committed", "response.created")]
    assert kinds == ["input_audio_buffer.committed", "response.created"]


def test_committed_is_told_only_after_the_prefixes_were_taken() -> None:
    d = driver(carry=False)
    d.send(picture("f1"))
    d.send(picture("f2"))
    d.send(CommitInput(create_response=True))
    d.carry()
    assert d.of(InputCommitted) == []
    d.carry()
    assert len(d.of(InputCommitted)) == 1
    assert isinstance(d.pending[0], BackendCommit)


def test_the_commit_events_follow_the_template() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(CommitInput())
    assert d.types() == [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "conversation.item.added",
        "conversation.item.created",
        "input_audio_buffer.committed",
        "conversation.item.done",
    ]
    item = d.of(ItemDone)[0].item
    assert [part.kind for part in item.content] == ["input_audio"]


def test_a_plain_commit_is_retained_and_answered_when_asked() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(CommitInput())
    assert submitted(d) == []
    d.send(CreateResponse(metadata={"k": "v"}))
    assert submitted(d) == ["a", "create"]
    assert d.of(ResponseCreated)[0].metadata == {"k": "v"}


def test_audio_of_one_item_is_one_unit() -> None:
    d = driver()
    for name in "abc":
        d.send(speech(name))
    d.send(CommitInput(create_response=True))
    appends = [e for e in d.done if isinstance(e, BackendAppend)]
    assert [len(e.unit.pcm or b"") for e in appends] == [24]
    assert [a.operation_id for a in appends[0].appends] == ["a", "b", "c"]
    assert pending(d) == 0


def test_a_picture_committed_over_retained_speech_joins_it() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(CommitInput())
    d.send(picture("f"))
    d.send(CommitInput(create_response=True))
    units = [e.unit for e in d.done if isinstance(e, BackendAppend)]
    assert [unit.modality for unit in units] == [Modality.OMNI]


def test_a_retained_picture_goes_ahead_of_speech() -> None:
    d = driver()
    d.send(picture("f"))
    d.send(CommitInput())
    d.send(speech("a"))
    d.send(CommitInput(create_response=True))
    assert submitted(d) == ["f", "a", "create"]


def test_leading_silence_is_skipped_and_said_seldom() -> None:
    d = driver()
    for number in range(5):
        d.send(silence(f"s{number}"))
    assert [e.reason for e in d.of(ResponseListen)] == ["silence_or_noise"]
    assert pending(d) == 0
    assert len(d.answers()) == 5
    d.send(CommitInput(create_response=True))
    assert d.of(InputCommitted)[0].details == {"is_speech": False, "no_response": True, "empty": True}
    assert d.of(ResponseCreated) == []


def test_silence_inside_speech_is_kept() -> None:
    d = driver()
    d.send(speech("a"))
    d.send(silence("s"))
    d.send(CommitInput(create_response=True))
    assert [a.operation_id for e in d.done if isinstance(e, BackendAppend) for a in e.appends] == ["a", "s"]


def test_a_commit_of_nothing_is_refused() -> None:
    d = driver()
    d.send(CommitInput())
    assert d.rejects() == ["input_audio_buffer_empty"]
    d.send(speech("a"))
    d.send(CommitInput())
    d.send(CommitInput())
    assert d.rejects() == ["input_audio_buffer_empty"] * 2


def test_a_very_short_commit_that_wants_an_answer_is_listened_to_only() -> None:
    d = driver()
    d.send(speech("a", 700))
    d.send(CommitInput(create_response=True, duration_ms=700))
    assert d.of(InputCommitted)[0].details == {"no_response": True}
    assert d.of(ResponseCreated) == []
    assert pending(d) == 0


def test_a_refused_unit_keeps_the_rest_and_the_next_try_succeeds() -> None:
    d = driver(carry=False)
    d.send(picture("f1"))
    d.send(picture("f2"))
    d.send(CommitInput(create_response=True, event_id="evt_1"))
    d.carry(EngineFault("no"))
    assert [e.error.code for e in d.of(ErrorEvent)] == ["runtime_append_failed"]
    assert d.rejects() == ["commit_aborted"]
    assert d.dropped() == ["f1"]
    assert d.of(InputCommitted) == []
    assert d.core.state is State.LISTENING
    assert pending(d) == 4
    d.auto = True
    d.send(picture("f1"))
    d.send(CommitInput(create_response=True))
    assert submitted(d)[1:] == ["f2", "f1", "create"]
    assert pending(d) == 0


def test_text_only_turns_where_the_model_has_none() -> None:
    d = driver(NEEDS_AUDIO)
    d.send(AskQuery("hello", "q"))
    d.send(CreateResponse())
    assert d.rejects() == ["text_only_turn_unsupported"]


def test_a_users_message_may_be_answered() -> None:
    d = driver()
    item = Item("item_x", "user", content=(ContentPart("input_text", "hello"),))
    d.send(CreateItem(item))
    d.send(CreateResponse())
    assert submitted(d) == ["hello", "create"]


def test_a_message_id_is_never_taken_twice() -> None:
    d = driver()
    item = Item("item_x", "user", content=(ContentPart("input_text", "hello"),))
    d.send(CreateItem(item))
    d.send(CreateItem(item))
    assert d.rejects() == ["bad_event"]


def test_a_message_that_the_backend_refuses_leaves_no_item() -> None:
    d = driver(carry=False)
    d.send(AskQuery("hello", "item_q"))
    d.carry(InvalidRequest("too long", code="query_too_long"))
    assert d.types() == []
    assert d.core.history.last_item_id is None


def test_words_of_an_item_become_the_query_when_committed() -> None:
    d = driver()
    d.send(AppendText("is there "))
    d.send(AppendText("smoke?"))
    d.send(CommitInput(create_response=True))
    assert submitted(d) == ["is there smoke?", "create"]
    assert [part.text for part in d.of(ItemDone)[0].item.content] == ["is there smoke?"]
