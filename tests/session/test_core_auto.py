"""Turn taking where the model decides, or records: streamed input, commits, the detector."""

from orchestrator.session.backend import (
    SpeechStarted,
    SpeechStopped,
    TurnDetection,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.commands import (
    CommitInput,
    CreateResponse,
)
from orchestrator.session.events import (
    InputCommitted,
    OverlapDecided,
    ResponseCreated,
    ResponseDone,
    ResponseListen,
    TranscriptionCompleted,
)
from orchestrator.session.fence import Fence
from orchestrator.wire.errors import EngineFault
from tests.session.turn_parts import RECORDS, answer, driver, picture, silence, speech, submitted


def test_recorded_input_goes_out_at_once_and_is_answered_when_asked() -> None:
    d = driver(RECORDS)
    d.send(picture("f1"))
    d.send(picture("f2"))
    assert submitted(d) == ["f1", "f2"]
    d.send(CreateResponse())
    assert submitted(d) == ["f1", "f2", "create"]


def test_what_was_kept_from_a_recording_backend_goes_before_what_follows() -> None:
    d = driver(RECORDS)
    d.send(speech("first"))
    d.send(CommitInput(create_response=True))
    answer(d, end=False)
    d.send(speech("kept", 800))
    d.yields(TurnEnd(d.core.fence))
    d.send(speech("next"))
    assert submitted(d) == ["first", "create", "kept", "next"]


# --- auto mode ---


def test_auto_mode_streams_and_a_commit_only_seals() -> None:
    d = driver(RECORDS, auto=True)
    d.send(speech("a"))
    d.send(CommitInput())
    assert submitted(d) == ["a", "commit"]
    assert d.of(InputCommitted)[0].details == {"is_speech": True}
    assert d.of(ResponseCreated) == []


def test_auto_mode_committed_comes_before_any_output() -> None:
    d = driver(RECORDS, auto=True, carry=False)
    d.send(speech("a"))
    d.carry()
    d.send(CommitInput())
    assert len(d.of(InputCommitted)) == 1


def test_auto_mode_silence_that_was_streamed_is_committed_without_a_listen() -> None:
    d = driver(RECORDS, auto=True)
    d.send(silence("s"))
    d.send(CommitInput())
    assert d.of(InputCommitted)[0].details["no_response"]
    assert d.of(ResponseListen) == []


def test_a_commit_behind_a_failed_append_is_aborted_once() -> None:
    d = driver(RECORDS, auto=True, carry=False)
    d.send(speech("a"))
    d.carry(EngineFault("no"))
    d.send(CommitInput())
    assert d.rejects() == ["engine_error", "commit_aborted"]
    d.auto = True
    d.send(speech("a"))
    d.send(CommitInput())
    assert submitted(d)[-2:] == ["a", "commit"]


# --- detector ---


VAD = TurnDetection()


def test_in_turn_mode_the_end_of_speech_commits_and_asks() -> None:
    d = driver(RECORDS, turn_detection=VAD, overlap_policy="barge_in_on_speech")
    d.send(silence("s0"))
    d.yields(SpeechStarted(Fence(), 300))
    d.send(speech("a"))
    d.yields(SpeechStopped(Fence(), 1200), UserTranscript(Fence(), "hi", final=True))
    types = d.types()
    assert types[0] == "input_audio_buffer.speech_started"
    assert types.count("input_audio_buffer.speech_stopped") == 1
    assert submitted(d) == ["s0", "a", "create"]
    said = d.of(TranscriptionCompleted)[0]
    assert said.item_id == d.of(InputCommitted)[0].item_id
    assert said.transcript == "hi"


def test_the_detector_may_commit_without_asking() -> None:
    d = driver(RECORDS, turn_detection=TurnDetection(create_response=False))
    d.send(silence("s0"))
    d.yields(SpeechStarted(Fence(), 0), SpeechStopped(Fence(), 900))
    assert submitted(d) == ["s0", "commit"]


def test_in_auto_mode_the_detector_only_reports_and_interrupts() -> None:
    d = driver(RECORDS, auto=True, turn_detection=VAD, overlap_policy="barge_in_on_speech")
    d.send(silence("s0"))
    answer(d, end=False)
    d.yields(SpeechStarted(Fence(), 300))
    assert [(e.status, e.reason) for e in d.of(ResponseDone)] == [("cancelled", "turn_detected")]
    assert d.of(OverlapDecided)[0].reason == "server_vad_speech_started"
    d.yields(SpeechStopped(Fence(), 900))
    assert submitted(d) == ["s0"]


def test_the_policy_interrupts_on_hinted_speech_once_per_utterance() -> None:
    d = driver(RECORDS, auto=True, turn_detection=VAD, overlap_policy="barge_in_on_speech")
    d.send(silence("s0"))
    d.yields(SpeechStarted(Fence(), 300))
    answer(d, end=False)
    d.send(speech("a"))
    assert d.of(OverlapDecided)[0].reason == "auto_response_continuous"
    assert d.of(ResponseDone) == []
