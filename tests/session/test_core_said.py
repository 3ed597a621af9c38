"""A backend that hears by transcripts: its sound always reaches it, and what is said is asked like text."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.session.backend import (
    SpeechStarted,
    SpeechStopped,
    TurnDetection,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.commands import ClearInput, CommitInput, DeleteItem, RetrieveItem
from orchestrator.session.effects import BackendAppend, BackendCommit, BackendTell
from orchestrator.session.events import (
    InputCommitted,
    ItemDone,
    ItemRetrieved,
    OverlapDecided,
    ResponseCreated,
    ResponseDone,
    TranscriptionCompleted,
    TranscriptionDelta,
    UserSpeechStopped,
)
from orchestrator.session.fence import Fence
from orchestrator.session.items import ContentPart
from orchestrator.session.told import QueryAsked
from tests.session.driver import Driver
from tests.session.turn_parts import RECORDS, answer, driver, picture, silence, speech

EARS = replace(RECORDS, transcribes=True)


def hearing(*, auto: bool, vad: bool = True, create: bool = True) -> Driver:
    detection = TurnDetection(create_response=create) if vad else None
    policy = "barge_in_on_speech" if vad else "listen_only"
    return driver(EARS, auto=auto, turn_detection=detection, overlap_policy=policy)


def says(d: Driver, text: str, at: int = 0) -> None:
    fence = Fence()
    d.yields(SpeechStarted(fence, at), SpeechStopped(fence, at + 900))
    d.yields(UserTranscript(fence, text, True, at, at + 900))


def asked(d: Driver) -> list[str]:
    facts = [effect.fact for effect in d.done if isinstance(effect, BackendTell)]
    return [fact.text for fact in facts if isinstance(fact, QueryAsked)]


def test_words_make_a_turn_and_are_asked_before_it_is_answered() -> None:
    d = hearing(auto=False)
    d.send(speech("a"))
    says(d, "what is it")
    (done,), (told,) = d.of(ItemDone), d.of(TranscriptionCompleted)
    assert done.item.content == (ContentPart("input_audio", "what is it"),)
    assert (told.item_id, told.transcript, told.duration_ms) == (done.item.item_id, "what is it", 900)
    assert asked(d) == ["what is it"]
    calls = [e for e in d.done if isinstance(e, BackendTell | BackendCommit)]
    assert isinstance(calls[0], BackendTell) and isinstance(calls[1], BackendCommit)
    assert calls[1].create_response and len(d.of(ResponseCreated)) == 1


def test_a_turn_is_answered_only_if_so_configured() -> None:
    d = hearing(auto=False, create=False)
    d.send(speech("a"))
    says(d, "note this")
    assert len(d.of(InputCommitted)) == 1 and asked(d) == ["note this"] and not d.of(ResponseCreated)


def test_speech_without_words_is_no_turn() -> None:
    d = hearing(auto=False)
    d.send(speech("a"))
    d.yields(SpeechStarted(Fence(), 0), SpeechStopped(Fence(), 900))
    assert d.of(UserSpeechStopped) and not d.of(InputCommitted) and not d.of(ResponseCreated)


def test_sound_over_an_answer_reaches_the_ears_and_loudness_alone_decides_nothing() -> None:
    for auto in (True, False):
        d = hearing(auto=auto)
        d.send(speech("first"))
        says(d, "tell me")
        answer(d, end=False)
        for name in ("a", "b"):
            d.send(speech(name))
        d.send(silence("c"))
        appended = [a.operation_id for e in d.done if isinstance(e, BackendAppend) for a in e.appends]
        assert appended == ["first", "a", "b", "c"]
        assert not d.of(OverlapDecided) and not d.of(ResponseDone)
        d.yields(SpeechStarted(Fence(), 5000))
        (decided,) = d.of(OverlapDecided)
        assert decided.action == "barge_in" and d.of(ResponseDone)[0].status == "cancelled"


def test_a_hint_of_the_clients_counts_all_the_same() -> None:
    d = hearing(auto=False)
    d.send(speech("first"))
    says(d, "tell me")
    answer(d, end=False)
    d.send(speech("a", overlap_action="drop"))
    assert d.of(OverlapDecided)[0].action == "drop"
    d.send(speech("b", force_barge_in=True))
    assert d.of(ResponseDone)[0].status == "cancelled"


def test_in_auto_mode_each_utterance_is_an_item_and_nothing_is_committed() -> None:
    d = hearing(auto=True)
    d.send(speech("a"))
    says(d, "one")
    d.send(speech("b"))
    says(d, "two", 2000)
    assert asked(d) == ["one", "two"] and not d.of(InputCommitted)
    ids = [event.item.item_id for event in d.of(ItemDone)]
    assert len(set(ids)) == 2 and ids == [event.item_id for event in d.of(TranscriptionCompleted)]
    d.send(DeleteItem(ids[1]))


def test_a_turn_that_the_client_committed_gets_its_words_later() -> None:
    d = hearing(auto=False, vad=False)
    d.send(speech("a"))
    d.send(CommitInput())
    d.send(speech("next"))
    (done,) = d.of(ItemDone)
    d.yields(UserTranscript(Fence(), "what is it", True, 0, 900))
    assert d.of(TranscriptionCompleted)[0].item_id == done.item.item_id and asked(d) == ["what is it"]
    d.send(RetrieveItem(done.item.item_id))
    assert d.of(ItemRetrieved)[0].item.content == (ContentPart("input_audio", "what is it"),)
    assert len(d.of(ItemDone)) == 1, "the open item is another one"


def test_pictures_and_typed_words_of_the_item_stay_with_it() -> None:
    d = hearing(auto=False)
    d.send(picture("p"))
    d.send(speech("a"))
    says(d, "what is this")
    kinds = [part.kind for part in d.of(ItemDone)[0].item.content]
    assert kinds == ["input_audio", "input_image"]


def test_words_so_far_are_told_of_the_open_item() -> None:
    d = hearing(auto=True)
    d.yields(UserTranscript(Fence(), "early", False))
    assert not d.of(TranscriptionDelta)
    d.send(speech("a"))
    d.yields(SpeechStarted(Fence(), 0), UserTranscript(Fence(), "what", False))
    (delta,) = d.of(TranscriptionDelta)
    d.yields(SpeechStopped(Fence(), 900), UserTranscript(Fence(), "what is it", True, 0, 900))
    assert d.of(TranscriptionCompleted)[0].item_id == delta.item_id


def test_words_that_come_after_a_clear_are_a_turn_of_their_own() -> None:
    d = hearing(auto=False)
    d.send(speech("a"))
    d.send(ClearInput())
    d.yields(UserTranscript(Fence(), "late", True, 0, 900))
    assert asked(d) == ["late"] and len(d.of(InputCommitted)) == 1
    d.yields(TurnEnd(d.core.fence))
