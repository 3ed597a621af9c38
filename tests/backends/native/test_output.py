"""What the engine says, as the client gets it: ids, pairs of audio and words, listening, errors, playback."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridges.duplex_client.link import (
    AudioChunk,
    EngineFault,
    Heard,
    ResponseCreated,
    ResponseDone,
    Speaking,
    SpokenText,
    StageMetrics,
    UserSpeech,
)
from orchestrator.session.backend import TurnDetection
from orchestrator.session.commands import CreateResponse, PlaybackAck, TruncateItem
from orchestrator.session.events import (
    ErrorEvent,
    InputCommitted,
    OutputAudioDelta,
    OutputAudioDone,
    OutputTextDelta,
    OutputTranscriptDelta,
    OutputTranscriptDone,
    PlaybackAcknowledged,
    ResponseListen,
    TickEvent,
    TranscriptionCompleted,
    UserSpeechStarted,
)
from orchestrator.session.events import ResponseCreated as Created
from orchestrator.session.events import ResponseDone as Done
from tests.backends.native.harness import DUPLEX, TURN, Rig, open_rig
from tests.fakes.link import RATE, listen, spoken, tone

FIRST = "resp-duplex-1-0-00000000"


async def talking(**arguments: object) -> Rig:
    """A session whose model has been given a second."""
    rig = await open_rig(**arguments)  # type: ignore[arg-type]
    await rig.append(1000)
    return rig


async def test_three_chunks_are_three_pairs_and_the_words_stay_with_theirs() -> None:
    """Case 40."""
    rig = await talking()
    await rig.say(*spoken("engine-r", ("Hello ", 400), ("", 300), ("you.", 300)))
    kinds = [event.type for event in rig.events() if event.type.startswith("response.")]
    assert kinds.count("response.speak") == 1
    assert kinds.index("response.speak") < kinds.index("response.output_audio.delta")
    pairs = [k for k in kinds if k.endswith(("audio.delta", "transcript.delta"))]
    assert pairs == ["response.output_audio.delta", "response.output_audio_transcript.delta"] * 3
    assert [event.delta for event in rig.of(OutputTranscriptDelta)] == ["Hello ", "", "you."]
    assert [event.total_ms for event in rig.of(OutputAudioDelta)] == [400, 700, 1000]
    assert len(rig.of(OutputAudioDone)) == 1
    assert rig.of(OutputTranscriptDone)[0].transcript == "Hello you."
    assert (rig.of(Done)[0].status, rig.of(Done)[0].item.content[0].text_marks) == (
        "completed",
        ((6, 400), (6, 700), (10, 1000)),
    )


async def test_ids_of_the_engine_never_reach_the_client() -> None:
    rig = await talking()
    await rig.say(*spoken("engine-r", ("a", 100)), *spoken("engine-s", ("b", 100)))
    ids = [event.response_id for event in rig.of(Created)]
    assert ids == [FIRST, "resp-duplex-1-0-00000001"]
    assert "engine-" not in repr(rig.events())


async def test_a_response_is_visible_only_when_something_of_it_is() -> None:
    rig = await talking()
    await rig.say(ResponseCreated("r"))
    assert rig.of(Created) == []
    await rig.say(ResponseDone("r", "completed"))
    assert [rig.of(Created), rig.of(Done)] == [[], []]
    await rig.say(ResponseCreated("s"), Speaking("s"))
    assert len(rig.of(Created)) == 1


async def test_a_chunk_waits_for_its_words_only_so_long() -> None:
    rig = await talking()
    await rig.say(ResponseCreated("r"), AudioChunk("r", tone(100), RATE))
    assert rig.of(OutputAudioDelta) == []
    await rig.clock.advance(0.06)
    assert len(rig.of(OutputAudioDelta)) == 1
    await rig.say(SpokenText("r", "late"), ResponseDone("r", "completed"))
    assert rig.of(OutputTranscriptDone)[0].transcript == "late"


async def test_metrics_between_a_chunk_and_its_words_part_them_not() -> None:
    rig = await talking()
    figures = {"0": {"num_tokens_out": 3}}
    await rig.say(
        ResponseCreated("r"),
        AudioChunk("r", tone(100), RATE),
        StageMetrics("r", figures),
        SpokenText("r", "hi"),
        ResponseDone("r", "completed"),
    )
    assert [event.delta for event in rig.of(OutputTranscriptDelta)] == ["hi"]
    assert rig.of(Done)[0].stage_metrics == figures


async def test_an_engines_sums_are_passed_on_as_they_are() -> None:
    """Each chunk tells the sums of its response so far; how soon it answered is told once a value."""
    rig = await talking()
    sums = [{"0": {"num_tokens_in": prompt, "vllm_ttft_ms": 5.0}} for prompt in (116, 116, 245)]
    await rig.say(
        ResponseCreated("r"),
        StageMetrics("r", {}, {"source": "server_monotonic_request_start", "ttft_ms": 12.5}),
        *(StageMetrics("r", each) for each in sums),
        StageMetrics("r", {"2": {"audio_duration_s": 1.0}}, {"ttfp_ms": 80.0}),
        *spoken("r", ("hi", 100))[1:],
    )
    (done,) = rig.of(Done)
    assert done.stage_metrics == {**sums[-1], "2": {"audio_duration_s": 1.0}}
    assert done.request_metrics == {
        "source": "server_monotonic_request_start", "ttft_ms": 12.5, "ttfp_ms": 80.0,
    }  # fmt: skip


async def test_text_alone_is_text() -> None:
    rig = await talking(modalities=("text",))
    await rig.say(ResponseCreated("r"), SpokenText("r", "Just "), SpokenText("r", "words."))
    await rig.say(ResponseDone("r", "completed"))
    assert [event.delta for event in rig.of(OutputTextDelta)] == ["Just ", "words."]


async def test_two_responses_may_run_at_once_where_the_engine_says_so() -> None:
    rig = await talking(profile=replace(DUPLEX, concurrent_turns=True))
    await rig.say(*spoken("r", ("one ", 100), done=False), *spoken("s", ("two ", 100), done=False))
    await rig.say(AudioChunk("r", tone(100), RATE), SpokenText("r", "more"))
    await rig.say(ResponseDone("r", "completed"), ResponseDone("s", "completed"))
    said = {event.response_id: event.transcript for event in rig.of(OutputTranscriptDone)}
    assert said == {FIRST: "one more", "resp-duplex-1-0-00000001": "two "}


async def test_late_words_of_a_response_that_is_over_change_nothing() -> None:
    rig = await talking()
    await rig.say(*spoken("r", ("done", 100)))
    before = len(rig.events())
    await rig.say(AudioChunk("r", tone(100), RATE), SpokenText("r", "late"), ResponseDone("r", "completed"))
    await rig.clock.advance(1)
    assert len(rig.events()) == before


async def test_a_listen_in_a_response_that_goes_on_is_no_end() -> None:
    rig = await talking()
    await rig.say(*spoken("r", ("one ", 100), done=False), listen(response_id="r"))
    await rig.say(AudioChunk("r", tone(100), RATE), SpokenText("r", "two"), ResponseDone("r", "completed"))
    assert rig.of(OutputTranscriptDone)[0].transcript == "one two"
    assert len(rig.of(Done)) == 1


async def test_a_listen_without_a_done_ends_where_the_next_response_begins() -> None:
    rig = await talking()
    await rig.say(*spoken("r", ("one", 100), done=False), listen(response_id="r"))
    await rig.say(*spoken("s", ("two", 100)))
    assert [event.status for event in rig.of(Done)] == ["completed", "completed"]


async def test_the_engines_own_limit_is_told_and_then_the_end() -> None:
    rig = await talking()
    await rig.say(*spoken("r", ("one", 100), done=False), listen("continuation_limit", "r"))
    await rig.say(ResponseDone("r", "completed"))
    types = rig.types()
    assert rig.of(ResponseListen)[0].reason == "continuation_limit"
    assert types.index("response.listen") < types.index("response.done")


@pytest.mark.parametrize(("told", "status"), [("failed", "failed"), ("cancelled", "incomplete")])
async def test_an_end_of_the_engines_own_is_told_as_it_is(told: str, status: str) -> None:
    rig = await talking()
    await rig.say(*spoken("r", ("one", 100), done=False), ResponseDone("r", told, "because"))
    (done,) = rig.of(Done)
    assert (done.status, done.reason) == (status, "because")


# --- what the user said -------------------------------------------------------------------------------------


async def test_what_the_engine_understood_of_the_user_is_told_and_remembered() -> None:
    rig = await talking()
    await rig.say(Heard("engine-item", "good morning"))
    assert [event.transcript for event in rig.of(TranscriptionCompleted)] == ["good morning"]
    (said,) = rig.facts("user_said")
    assert said["text"] == "good morning"
    assert rig.backend.memory.revision == 1


async def test_the_engines_detector_interrupts_what_is_said() -> None:
    rig = await talking(turn_detection=TurnDetection(), overlap_policy="barge_in_on_speech")
    await rig.say(*spoken("r", ("one", 100), done=False))
    await rig.say(UserSpeech(True, 1200))
    assert [event.audio_start_ms for event in rig.of(UserSpeechStarted)] == [1200]
    (done,) = rig.of(Done)
    assert (done.status, done.reason) == ("cancelled", "turn_detected")
    assert rig.link.named("cancel") == ["r"]


# --- errors -------------------------------------------------------------------------------------------------


async def test_an_error_of_the_engine_keeps_its_code_and_gets_the_contracts_type() -> None:
    rig = await talking()
    await rig.say(EngineFault("runtime_data_plane_stream_failed", "stage 1"))
    await rig.say(EngineFault("input_backpressure", "slow"))
    told = [(event.error.code, event.error.error_type) for event in rig.of(ErrorEvent)]
    assert told == [
        ("runtime_data_plane_stream_failed", "server_error"),
        ("input_backpressure", "rate_limit_error"),
    ]
    assert rig.session.is_open


async def test_a_response_while_one_is_visible_is_refused_and_the_first_completes() -> None:
    """Case 34."""
    rig = await talking()
    await rig.say(*spoken("r", ("one", 100), done=False))
    await rig.session.submit(CreateResponse())
    await rig.say(ResponseDone("r", "completed"))
    assert rig.codes() == ["response_already_active"]
    assert [event.status for event in rig.of(Done)] == ["completed"]


# --- playback -----------------------------------------------------------------------------------------------


async def test_acks_reach_the_engine_under_its_own_ids() -> None:
    """Case 46, and its translation."""
    rig = await talking()
    await rig.say(*spoken("engine-r", ("x" * 30, 3000)))
    for played in (1200.7, 800.0):
        await rig.session.submit(PlaybackAck(played, response_id=FIRST))
    await rig.clock.advance(0)
    assert rig.link.named("playback") == [("engine-r", 1200, 1200)] * 2
    told = [(e.cursors.played_ms, e.cursors.committed_ms) for e in rig.of(PlaybackAcknowledged)]
    assert told == [(1200, 1200)] * 2


async def test_an_ack_that_names_the_wrong_item_is_refused() -> None:
    """Case 47."""
    rig = await talking()
    await rig.say(*spoken("engine-r", ("x", 1000)))
    await rig.session.submit(PlaybackAck(1, response_id=FIRST, item_id="item_other"))
    await rig.session.submit(PlaybackAck(1, response_id="resp-engine-r"))
    await rig.clock.advance(0)
    assert rig.codes() == ["playback_item_mismatch", "playback_item_not_found"]
    assert rig.link.named("playback") == []


async def test_a_truncation_caps_what_was_heard_for_good() -> None:
    """Case 50."""
    rig = await talking()
    await rig.say(*spoken("engine-r", ("abcde", 500), ("fghijklmno", 1500)))
    item = "item_" + FIRST
    await rig.session.submit(TruncateItem(item, 0, 2001))
    await rig.session.submit(TruncateItem(item, 0, 500))
    await rig.session.submit(PlaybackAck(2000, response_id=FIRST))
    await rig.clock.advance(0)
    assert rig.codes() == ["bad_event"]
    assert rig.facts("heard")[-1]["text"] == "abcde"
    assert rig.link.named("playback")[0] == ("engine-r", 500, 500)


async def test_the_wall_clock_plays_for_the_engine_too() -> None:
    rig = await talking(playback_policy="wall_clock")
    await rig.say(*spoken("engine-r", ("x" * 10, 1000)))
    await rig.clock.advance(1.2)
    rig.session.tick()
    await rig.clock.advance(0)
    assert rig.link.named("playback") == [("engine-r", 1000, 1000)]


# --- records ------------------------------------------------------------------------------------------------


async def test_every_unit_has_a_record_of_what_was_decided_on_it() -> None:
    rig = await open_rig(include=("vigil.tick",))
    await rig.append(1000)
    await rig.clock.advance(0.3)
    await rig.say(listen())
    await rig.append(1000)
    await rig.clock.advance(0.5)
    await rig.say(*spoken("r", ("hi", 400)))
    rows = [event.record for event in rig.of(TickEvent)]
    assert [(row["unit"], row["action"], row["latency_ms"]) for row in rows] == [
        (0, "listen", 300.0),
        (1, "speak", 500.0),
    ]
    assert rows[0]["bytes"] == 64000
    assert [(ms, round(took)) for ms, took in rig.seats.seats[0].paces] == [(1000, 300), (1000, 500)]
    await rig.session.close("client_close")
    told = [row for fact in rig.facts("units_written") for row in fact["rows"]]
    assert [(row[0], row[10]) for row in told] == [(0, "listen"), (1, "speak")]


# --- turn mode ----------------------------------------------------------------------------------------------


async def test_in_turn_mode_nothing_is_answered_unasked() -> None:
    """Case 29: the order of events, and the response before any output."""
    rig = await open_rig(TURN)
    await rig.append(1000)
    await rig.commit()
    await rig.clock.advance(2)
    assert rig.of(Created) == []
    assert rig.link.units == []
    await rig.session.submit(CreateResponse())
    await rig.clock.advance(0)
    assert (len(rig.link.units), rig.link.named("commit")) == (1, [True])
    assert len(rig.of(Created)) == 1
    await rig.say(*spoken("r", ("yes", 200)))
    assert [event.response_id for event in rig.of(Done)] == [FIRST]
    types = rig.types()
    order = [
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "conversation.item.added",
        "conversation.item.created",
        "input_audio_buffer.committed",
        "conversation.item.done",
        "response.created",
        "response.output_audio.delta",
        "response.done",
    ]
    assert [types.index(each) for each in order] == sorted(types.index(each) for each in order)


async def test_only_silence_then_a_commit_is_a_listen() -> None:
    """Case 28."""
    rig = await open_rig(TURN)
    await rig.append(1000, speech=False)
    await rig.commit(create=True)
    assert rig.of(ResponseListen)[0].reason == "silence_or_noise"
    assert [rig.of(Created), rig.link.units] == [[], []]


async def test_a_turn_over_a_response_waits_for_its_end() -> None:
    """Case 35: 701 ms are deferred, 700 ms are an acknowledgement."""
    for ms, responses in ((700, 1), (701, 2)):
        rig = await open_rig(TURN)
        await rig.append(1000)
        await rig.commit(create=True)
        await rig.say(*spoken("r", ("one", 200), done=False))
        await rig.append(ms)
        await rig.commit(create=True)
        await rig.say(ResponseDone("r", "completed"))
        await rig.session.submit(PlaybackAck(200, response_id=FIRST))
        await rig.clock.advance(0.1)
        await rig.say(*spoken("s", ("two", 200)))
        created = [event.response_id for event in rig.of(Created)]
        assert len(created) == responses if ms == 701 else created[0] == FIRST
        assert rig.link.named("commit") == [True] * responses


async def test_committed_follows_the_engines_own_word() -> None:
    rig = await open_rig(TURN)
    rig.link.hold("commit")
    await rig.append(1000)
    await rig.commit(create=True)
    assert rig.of(InputCommitted) == []
    assert rig.of(Created) == []
    rig.link.free("commit")
    rig.link.emit(*spoken("r", ("yes", 200)))
    await rig.clock.advance(0)
    types = rig.types()
    order = ["input_audio_buffer.committed", "response.created", "response.speak", "response.done"]
    assert [types.index(each) for each in order] == sorted(types.index(each) for each in order)


async def test_a_commit_that_the_engine_refuses_is_refused_and_nothing_was_announced() -> None:
    rig = await open_rig(TURN)
    rig.link.fail("commit", "input_audio_buffer_empty")
    await rig.append(1000)
    await rig.commit(create=True)
    assert rig.codes() == ["input_audio_buffer_empty"]
    assert [rig.of(InputCommitted), rig.of(Created)] == [[], []]
    await rig.append(1000)
    await rig.commit(create=True)
    await rig.say(*spoken("r", ("yes", 200)))
    assert [event.status for event in rig.of(Done)] == ["completed"]


async def test_a_listen_to_input_before_the_commit_is_no_answer_to_the_turn() -> None:
    rig = await open_rig(TURN, script=lambda link, unit: [listen("silence_or_noise")])
    rig.link.hold("commit")
    await rig.append(3000)
    await rig.commit(create=True)
    rig.link.free("commit")
    await rig.say(*spoken("r", ("yes", 200)))
    assert [event.status for event in rig.of(Done)] == ["completed"]
    assert rig.of(OutputTranscriptDone)[0].transcript == "yes"
    assert {event.response_id for event in rig.of(ResponseListen)} == {None}


async def test_a_turn_that_the_model_only_listens_to_ends_its_response() -> None:
    rig = await open_rig(TURN)
    await rig.append(1000)
    await rig.commit(create=True)
    await rig.say(listen())
    assert [event.response_id for event in rig.of(ResponseListen)] == [FIRST]
    assert [event.status for event in rig.of(Done)] == ["completed"]
