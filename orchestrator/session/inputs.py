"""The user's input as it comes: appends, what overlaps a response, what the detector hears.

In auto mode input goes to the backend as it comes. In turn mode it does so only where the backend records
input itself; otherwise it is held until a commit.
"""

from __future__ import annotations

from collections.abc import Callable

from orchestrator.session.answers import Answers
from orchestrator.session.commands import AppendInput, AppendText, CommitInput
from orchestrator.session.effects import Answered, BackendAppend, Completed
from orchestrator.session.events import OverlapDecided, UserSpeechStarted, UserSpeechStopped
from orchestrator.session.input_ledger import InputAccounts, OpenItem, hold
from orchestrator.session.intake import MAX_ITEM_CHARS
from orchestrator.session.operations import Outcome
from orchestrator.session.overlap import (
    OverlapAction,
    OverlapDecision,
    OverlapInput,
    applies,
    decide,
)
from orchestrator.session.shared import Shared
from orchestrator.session.states import Trigger
from orchestrator.session.turns import Turns
from orchestrator.wire.errors import ResourceExhausted, Unsupported, VigilError

Interrupter = Callable[[str], None]
"""Ends what is being answered, for the reason given, and moves on to the next epoch."""


class Inputs:
    def __init__(
        self,
        shared: Shared,
        answers: Answers,
        turns: Turns,
        accounts: InputAccounts,
        interrupt: Interrupter,
    ) -> None:
        self._shared = shared
        self._answers = answers
        self._turns = turns
        self._accounts = accounts
        self._interrupt = interrupt
        self.vad_active = False
        """The detector is inside an utterance."""
        self.thinned = 0
        """Appends that gave way to newer ones while they waited."""

    # --- appends -------------------------------------------------------------------------------------------

    def append(self, command: AppendInput) -> None:
        shared = self._shared
        shared.move(Trigger.INPUT)
        self._accounts.operations.name(command.operation_id, command.event_id)
        item = self._turns.open_item(command.item_id)
        decision = None
        if not self._unasked(command):
            decision = self._overlap(self._seen(command, vad_started=False), command.event_id)
        if decision is not None and decision.action is OverlapAction.DROP:
            self._skip(command, decision.reason)
            return
        if decision is not None and decision.deferred:
            self._defer(item, command, decision)
            return
        held = not shared.auto and shared.capabilities.holds_turn_input
        if held and self._leading_silence(item, command):
            self._skip(command, "silence_or_noise")
            self._answers.listen(shared.fence, "silence_or_noise", model_listen=False)
            return
        self._note(item, command)
        if held:
            item.units = hold(item.units, command)
            shared.do(Completed(command))
            return
        self._turns.flush(item)
        item.streamed = self._turns.unanswered.recorded = True
        shared.do(BackendAppend(command.unit, shared.fence, (command,), command=command))

    def thin(self, command: AppendInput) -> None:
        """A newer picture has taken the place of this one."""
        self.thinned += 1
        self._skip(command, "thinned")

    def append_text(self, command: AppendText) -> None:
        self._shared.move(Trigger.INPUT)
        item = self._turns.open_item()
        if len(item.text) + len(command.text) > MAX_ITEM_CHARS:
            raise ResourceExhausted(
                f"the open item holds {len(item.text)} of {MAX_ITEM_CHARS} characters; commit it first",
                code="input_backpressure",
            )
        item.text += command.text
        self._shared.do(Completed(command))

    def _unasked(self, command: AppendInput) -> bool:
        """Sound for ears of the backend's: what it means is theirs to say, unless the client says it."""
        hinted = command.overlap_action is not None or command.force_barge_in or command.force_listen
        return self._shared.capabilities.transcribes and not hinted

    def _seen(self, command: AppendInput, *, vad_started: bool) -> OverlapInput:
        return OverlapInput(
            is_speech=command.is_speech or vad_started,
            has_frames=bool(command.unit.frames),
            duration_ms=command.duration_ms,
            action_hint=command.overlap_action,
            force_barge_in=command.force_barge_in,
            force_listen=command.force_listen,
            transcript=command.transcript,
            vad_started=vad_started,
            vad_active=self.vad_active and not vad_started,
        )

    def _overlap(self, given: OverlapInput, event_id: str | None = None) -> OverlapDecision | None:
        """Decide on input that comes over a response; carries out a barge-in. ``None``: nothing to decide."""
        shared = self._shared
        settings = shared.overlap
        if not self._answers.responding:
            return None
        if given.wants_barge_in and not settings.supports_barge_in:
            refused = Unsupported("this model cannot be interrupted", code="barge_in_unsupported")
            shared.error(refused, event_id)
        if not applies(settings, given):
            return None
        decision = decide(settings, given, self._turns.overlap_speech_ms)
        self._turns.overlap_speech_ms = decision.overlap_speech_ms
        shared.emit(
            OverlapDecided(
                shared.fence,
                settings.policy.value,
                decision.action.value,
                decision.reason,
                given.duration_ms,
                decision.overlap_speech_ms,
                decision.buffered,
                decision.deferred,
            )
        )
        if decision.cancel_reason is not None:
            self._interrupt(decision.cancel_reason)
        return decision

    def _defer(self, item: OpenItem, command: AppendInput, decision: OverlapDecision) -> None:
        """Keep input from the engine while it answers; what is no part of the turn is let go."""
        if command.is_speech:
            item.overlap_ms += command.duration_ms
        if item.turn is None:
            item.turn = self._shared.fence.turn + 1
        if not decision.buffered:
            self._skip(command, decision.reason)
            return
        self._note(item, command)
        item.units = hold(item.units, command)
        self._shared.do(Completed(command))

    def _skip(self, command: AppendInput, reason: str) -> None:
        """Take the append without using it."""
        self._accounts.settle(command.operation_id, taken=True)
        outcome = Outcome(command.operation_id, {"reason": reason}, action="silence")
        self._accounts.operations.answer(outcome)
        self._shared.do(Answered(outcome))
        self._shared.do(Completed(command))

    def _leading_silence(self, item: OpenItem, command: AppendInput) -> bool:
        pictures = command.unit.frames and self._shared.capabilities.video_alone
        detected = self._shared.config.turn_detection is not None
        return not (command.is_speech or item.speech or pictures or detected)

    def _note(self, item: OpenItem, command: AppendInput) -> None:
        item.note(command)
        if command.is_speech and not item.speech_told and self._shared.config.turn_detection is None:
            item.speech_told = True
            self._shared.emit(UserSpeechStarted(item.item_id, int(command.start_ms)))

    # --- detector ------------------------------------------------------------------------------------------

    def speech_started(self, audio_start_ms: int) -> None:
        item = self._turns.open_item()
        item.speech = item.speech_told = True
        self._shared.emit(UserSpeechStarted(item.item_id, audio_start_ms))
        self._overlap(OverlapInput(is_speech=True, vad_started=True))
        self.vad_active = True

    def speech_stopped(self, audio_end_ms: int) -> None:
        """The user stopped: in turn mode that commits, and asks for an answer if so configured."""
        self.vad_active = False
        item, detection = self._turns.item, self._shared.config.turn_detection
        if item is None:
            return
        self._shared.emit(UserSpeechStopped(item.item_id, audio_end_ms))
        item.speech_told = False
        if self._shared.capabilities.transcribes:
            return  # its words make it a turn, see ``Said``
        if not self._shared.auto and detection is not None:
            try:
                self._turns.commit(CommitInput(detection.create_response), internal=True)
            except VigilError as refused:
                self._shared.error(refused)  # as for a commit of the client's own; the session goes on
