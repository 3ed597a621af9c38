"""Turn mode with the engine's own detector: it seals the turns, Vigil sends all that is heard as it comes."""

from __future__ import annotations

from dataclasses import replace

from bridges.duplex_client.link import InputCommitted as InputSealed
from bridges.duplex_client.link import Listening, UserSpeech
from orchestrator.session.backend import TurnDetection
from orchestrator.session.commands import CreateResponse
from orchestrator.session.events import (
    InputCommitted,
    OutputAudioDelta,
    ResponseCreated,
    ResponseDone,
    UserSpeechStarted,
    UserSpeechStopped,
)
from tests.backends.native.engine_rig import EngineRig, over_engine
from tests.backends.native.harness import TURN, open_rig
from tests.fakes.link import spoken
from tests.realtime.serving import eventually


async def say(rig: EngineRig, seconds: int = 2) -> None:
    """Speech, and silence until the turn is told to be committed."""
    before = len(rig.of(InputCommitted))
    for _ in range(seconds):
        await rig.append(1000)
    for _ in range(2):
        await rig.append(1000, speech=False)
    await eventually(lambda: len(rig.of(InputCommitted)) == before + 1)


def commits(rig: EngineRig) -> int:
    """That reached the engine; its own have no id."""
    received = rig.engine_session.received
    return sum(e["type"] == "input_audio_buffer.commit" and "event_id" in e for e in received)


async def test_each_utterance_is_answered_once_without_a_commit_of_ours() -> None:
    async with over_engine("pattern:E", auto_response=False, turn_detection=TurnDetection()) as rig:
        rig.acking = True
        for turn in range(1, 3):
            await say(rig)
            await eventually(lambda turn=turn: len(rig.of(ResponseDone)) == turn)
        kinds = [
            type(event)
            for event in rig.events
            if isinstance(event, UserSpeechStarted | UserSpeechStopped | InputCommitted | ResponseCreated)
        ]
        assert kinds == [UserSpeechStarted, UserSpeechStopped, InputCommitted, ResponseCreated] * 2
        assert {event.status for event in rig.of(ResponseDone)} == {"completed"}
        assert len({event.response_id for event in rig.of(ResponseDone)}) == 2
        assert rig.audio() and commits(rig) == 0


async def test_a_detector_that_answers_nothing_waits_for_a_word() -> None:
    detection = TurnDetection(create_response=False)
    async with over_engine("pattern:E", auto_response=False, turn_detection=detection) as rig:
        await say(rig)
        assert rig.of(ResponseCreated) == []
        await rig.session.submit(CreateResponse())
        await eventually(lambda: rig.of(ResponseDone))
        (done,) = rig.of(ResponseDone)
        assert done.status == "completed" and len(rig.of(ResponseCreated)) == 1
        assert commits(rig) == 0


async def test_speech_over_an_answer_ends_it_and_becomes_the_next_turn() -> None:
    """The engine's detector and ours may both say so: one end, and nothing of the old answer afterwards."""
    async with over_engine(
        lambda unit: "S" if not unit.silence else "L",
        auto_response=False,
        turn_detection=TurnDetection(),
        overlap_policy="barge_in_on_speech",
    ) as rig:
        await say(rig)
        await eventually(lambda: rig.of(OutputAudioDelta))
        await say(rig)
        await eventually(lambda: len(rig.of(ResponseCreated)) == 2)
        first, second = (event.response_id for event in rig.of(ResponseCreated))
        (done,) = [event for event in rig.of(ResponseDone) if event.response_id == first]
        assert done.status == "cancelled"
        after = rig.events[rig.events.index(done) :]
        assert {e.response_id for e in after if isinstance(e, OutputAudioDelta)} <= {second}
        assert commits(rig) == 0


async def test_silence_that_the_engine_hears_behind_a_turn_is_no_answer_to_it() -> None:
    """As vllm-omni's server says it: the last silent append is turned down while the turn is being sealed."""
    profile = replace(TURN, server_vad=True)
    rig = await open_rig(profile, auto_response=False, turn_detection=TurnDetection())
    await rig.append(2000)
    await rig.say(UserSpeech(True, 0))
    await rig.append(1000, speech=False)
    await rig.say(UserSpeech(False, 2500), Listening(None, "silence_or_noise", False), InputSealed("item"))
    await rig.append(1000, speech=False)
    await rig.say(Listening(None, "silence_or_noise", False))
    await rig.say(*spoken("r", ("Yes. ", 500)))
    (done,) = rig.of(ResponseDone)
    assert done.status == "completed" and len(rig.of(ResponseCreated)) == 1
    assert rig.link.named("commit") == [] and rig.codes() == []


async def test_a_model_that_chooses_to_listen_answers_the_turn_with_that() -> None:
    profile = replace(TURN, server_vad=True)
    rig = await open_rig(profile, auto_response=False, turn_detection=TurnDetection())
    await rig.append(2000)
    await rig.say(UserSpeech(True, 0), UserSpeech(False, 2000), InputSealed("item"))
    await rig.say(Listening(None, "model_listen", True))
    (done,) = rig.of(ResponseDone)
    assert done.status == "completed" and rig.of(OutputAudioDelta) == []
