"""The overlap table, row by row, and that every combination of inputs gets a decision."""

import itertools

import pytest

from orchestrator.session.overlap import (
    OverlapAction,
    OverlapInput,
    OverlapPolicy,
    OverlapSettings,
    applies,
    decide,
    is_short_acknowledgement,
)

LISTEN, DROP, BARGE_IN = OverlapAction.LISTEN, OverlapAction.DROP, OverlapAction.BARGE_IN
TURN = OverlapSettings(False, OverlapPolicy.LISTEN_ONLY, supports_barge_in=True, video_alone=True)
TURN_ON_SPEECH = OverlapSettings(False, OverlapPolicy.BARGE_IN_ON_SPEECH, True, True)
AUTO = OverlapSettings(True, OverlapPolicy.LISTEN_ONLY, True, True)
AUTO_ON_SPEECH = OverlapSettings(True, OverlapPolicy.BARGE_IN_ON_SPEECH, True, True)
NO_BARGE_IN = OverlapSettings(False, OverlapPolicy.LISTEN_ONLY, False, True)
AUDIO_ONLY = OverlapSettings(False, OverlapPolicy.LISTEN_ONLY, True, False)

CANCEL = "barge_in"

# settings, input, (action, reason), (buffered, deferred), counter after (300 before), cancel reason
ROWS = [
    *(
        (TURN, OverlapInput(True, action_hint=hint), (BARGE_IN, "client_overlap_action"), (1, 0), 0.0, CANCEL)
        for hint in ("barge_in", "interrupt", "cancel")
    ),
    *(
        (TURN, OverlapInput(speech, duration_ms=ms, action_hint="listen"),
         (LISTEN, "client_overlap_action"), (kept, 1), 0.0, None)
        for speech, ms, kept in ((True, 701, 1), (True, 700, 0), (False, 900, 0))
    ),
    *(
        (TURN, OverlapInput(True, duration_ms=900, action_hint=hint),
         (LISTEN, "client_overlap_action"), (0, 1), 0.0, None)
        for hint in ("continue", "continue_output", "ack")
    ),
    *(
        (TURN, OverlapInput(True, action_hint=hint), (DROP, "client_overlap_action"), (0, 0), 0.0, None)
        for hint in ("drop", "ignore", "silence")
    ),
    (TURN, OverlapInput(False, force_barge_in=True),
     (BARGE_IN, "client_force_barge_in"), (1, 0), 0.0, CANCEL),
    (AUTO_ON_SPEECH, OverlapInput(True), (BARGE_IN, "barge_in_on_speech"), (1, 0), 0.0, CANCEL),
    (AUTO_ON_SPEECH, OverlapInput(True, vad_started=True),
     (BARGE_IN, "server_vad_speech_started"), (1, 0), 0.0, "turn_detected"),
    (AUTO_ON_SPEECH, OverlapInput(True, vad_active=True),
     (LISTEN, "auto_response_continuous"), (1, 0), 300.0, None),
    (AUTO_ON_SPEECH, OverlapInput(False), (LISTEN, "auto_response_continuous"), (1, 0), 300.0, None),
    (AUTO, OverlapInput(True), (LISTEN, "auto_response_continuous"), (1, 0), 300.0, None),
    (TURN, OverlapInput(True, force_listen=True), (LISTEN, "client_force_listen"), (1, 1), 0.0, None),
    (TURN, OverlapInput(False, force_listen=True), (LISTEN, "client_force_listen"), (0, 1), 0.0, None),
    (TURN, OverlapInput(False, has_frames=True), (LISTEN, "vision_follow"), (1, 0), 300.0, None),
    (AUDIO_ONLY, OverlapInput(False, has_frames=True), (DROP, "silence_or_noise"), (0, 0), 300.0, None),
    (TURN, OverlapInput(False), (DROP, "silence_or_noise"), (0, 0), 300.0, None),
    (TURN, OverlapInput(True, transcript="OK!"), (LISTEN, "short_ack_transcript"), (0, 1), 0.0, None),
    (TURN, OverlapInput(True, duration_ms=200), (LISTEN, "policy_listen_only"), (1, 1), 500.0, None),
    (TURN_ON_SPEECH, OverlapInput(True, vad_active=True),
     (LISTEN, "server_vad_utterance_active"), (1, 0), 300.0, None),
    (TURN_ON_SPEECH, OverlapInput(True, vad_started=True),
     (BARGE_IN, "server_vad_speech_started"), (1, 0), 0.0, "turn_detected"),
    (TURN_ON_SPEECH, OverlapInput(True), (BARGE_IN, "policy_barge_in_on_speech"), (1, 0), 0.0, CANCEL),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[2][1]}-{row[1].action_hint}")
def test_row(row: tuple) -> None:  # type: ignore[type-arg]
    settings, given, verdict, kept, after, cancel_reason = row
    decision = decide(settings, given, 300.0)
    assert (decision.action, decision.reason) == verdict
    assert (decision.buffered, decision.deferred) == kept
    assert decision.overlap_speech_ms == after
    assert decision.cancel_reason == cancel_reason
    assert not decision.refused_hint


@pytest.mark.parametrize(
    "given", [OverlapInput(True, force_barge_in=True), OverlapInput(True, action_hint="interrupt")]
)
def test_a_barge_in_the_model_cannot_do_is_refused_and_the_rest_decides(given: OverlapInput) -> None:
    decision = decide(NO_BARGE_IN, given, 0.0)
    assert decision.refused_hint
    assert decision.reason == "policy_listen_only"


def test_a_listen_hint_survives_a_refused_force() -> None:
    decision = decide(NO_BARGE_IN, OverlapInput(True, action_hint="ack", force_barge_in=True), 0.0)
    assert decision.refused_hint
    assert decision.reason == "client_overlap_action"


def test_a_policy_the_model_cannot_follow_listens() -> None:
    settings = OverlapSettings(False, OverlapPolicy.BARGE_IN_ON_SPEECH, False, True)
    decision = decide(settings, OverlapInput(True), 0.0)
    assert (decision.action, decision.reason) == (LISTEN, "barge_in_unsupported")
    assert decision.deferred
    assert not decision.refused_hint


def test_where_no_decision_is_made() -> None:
    plain, wants = OverlapInput(True), OverlapInput(True, force_barge_in=True)
    assert not applies(AUTO, plain)
    assert applies(AUTO, wants)
    assert applies(AUTO_ON_SPEECH, plain)
    assert applies(TURN, plain)
    unable = OverlapSettings(True, OverlapPolicy.LISTEN_ONLY, False, True)
    assert not applies(unable, wants)


ENGLISH = ["Yes.", "yeah", "YEP!", "ok", "Okay,", "continue", "go on", "Go on…", "right", "keep going"]
CHINESE = ["嗯", "嗯嗯。", "对", "对的", "好", "好的!", "继续", "继续说", "可以", "是的"]


@pytest.mark.parametrize("text", [*ENGLISH, *CHINESE, "please continue"])
def test_short_acknowledgements(text: str) -> None:
    assert is_short_acknowledgement(text)


@pytest.mark.parametrize("text", [None, "", "...", "yes but wait", "no", "stop", "好吗"])
def test_other_words_are_no_acknowledgement(text: str | None) -> None:
    assert not is_short_acknowledgement(text)


def test_every_combination_is_decided_and_consistent() -> None:
    hints = (None, "barge_in", "listen", "ack", "drop", "nonsense")
    flags = (False, True)
    for auto, policy, able, alone in itertools.product(flags, OverlapPolicy, flags, flags):
        settings = OverlapSettings(auto, policy, able, alone)
        for speech, frames, hint, barge, quiet, started, active in itertools.product(
            flags, flags, hints, flags, flags, flags, flags
        ):
            given = OverlapInput(speech, frames, 100.0, hint, barge, quiet, None, started, active)
            decision = decide(settings, given, 50.0)
            if decision.action is BARGE_IN:
                assert able
                assert decision.buffered
                assert not decision.deferred
                assert decision.cancel_reason is not None
            else:
                assert decision.cancel_reason is None
            if decision.action is DROP:
                assert not decision.buffered
            assert decision.refused_hint == (given.wants_barge_in and not able)
            assert decision.overlap_speech_ms in (0.0, 50.0, 150.0)
