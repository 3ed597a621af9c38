"""What a backend yields, folded into the session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.session import backend as be
from orchestrator.session import events as ev
from orchestrator.session.answers import Answers
from orchestrator.session.commands import Close
from orchestrator.session.effects import Answered
from orchestrator.session.input_ledger import InputAccounts
from orchestrator.session.inputs import Inputs
from orchestrator.session.operations import Outcome
from orchestrator.session.said import Said
from orchestrator.session.shared import Shared
from orchestrator.session.tools import Tools
from orchestrator.session.turns import Turns
from orchestrator.wire.errors import ResourceExhausted, ServerFault, StoreUnavailable, of_code

_SAID = (be.Decision, be.TextDelta, be.AudioDelta, be.Metrics, be.TurnEnd)


class Outputs:
    """:param close: ends the session, when the backend says so"""

    def __init__(
        self,
        shared: Shared,
        answers: Answers,
        inputs: Inputs,
        turns: Turns,
        accounts: InputAccounts,
        tools: Tools,
        said: Said,
        close: Callable[[Close], None],
    ) -> None:
        self._shared = shared
        self._answers = answers
        self._inputs = inputs
        self._turns = turns
        self._accounts = accounts
        self._tools = tools
        self._said = said
        self._close = close
        self._early: list[be.BackendOutput] = []  # said to a turn whose commit is still under way

    def take(self, output: be.BackendOutput) -> None:
        """Fold one output; one of an epoch that has been cancelled changes nothing the client sees."""
        if isinstance(output, _SAID) and self._turns.holds_back(output.fence):
            self._early.append(output)
            return
        match output:
            case be.Delegation():
                # A background question outlives the turn that asked it: its epoch may be old.
                self._shared.emit(
                    ev.DelegationEvent(
                        output.fence,
                        output.delegation_id,
                        output.status,
                        output.question,
                        output.text,
                        output.error,
                    )
                )
            case be.ToolCalled():
                self._tools.called(output)
            case be.Notice(code=code, message=message):
                self._shared.emit(ev.NoticeEvent(code, message))
            case be.SpeechStarted(audio_start_ms=start_ms):
                self._inputs.speech_started(start_ms)
            case be.SpeechStopped(audio_end_ms=end_ms):
                self._inputs.speech_stopped(end_ms)
            case be.PlaybackHeld(held=held):
                self._answers.hold(held)
            case be.UserTranscript():
                self._said.take(output)
            case be.TickDone():
                self._tick_done(output)
            case be.Failed():
                self._failed(output)
            case be.Closed(reason=reason):
                self._close(Close(reason))
            case _ if output.fence.is_stale(self._shared.fence):
                self._answers.stale += 1
            case be.TickStarted():
                self._answers.tick_response_id = None
            case be.Decision():
                self._answers.decision(output)
            case be.TextDelta(fence=fence, text=text):
                self._answers.text(fence, text)
            case be.AudioDelta():
                self._answers.audio(output)
            case be.Metrics():
                self._answers.measured(output)
            case be.TurnEnd():
                self._answers.turn_end(output)

    def release(self) -> None:
        """The turn was told to be committed: fold what was said to it meanwhile."""
        early, self._early = self._early, []
        for output in early:
            self.take(output)

    def _tick_done(self, done: be.TickDone) -> None:
        # A tick is a matter of record, and its operations wait, even when its epoch was cancelled.
        record = {**done.record, "response_id": self._answers.tick_response_id}
        for operation_id in done.operations:
            self._answer(operation_id, record, done.error_code)
        if not done.fence.is_stale(self._shared.fence):
            self._shared.emit(ev.TickEvent(done.fence, record, done.error_code))

    def _failed(self, failed: be.Failed) -> None:
        error = of_code(failed.code, failed.message)
        if failed.code == StoreUnavailable.default_code:
            error = StoreUnavailable(failed.message, code=failed.code)
        elif not isinstance(error, ResourceExhausted):
            error = ServerFault(failed.message, code=failed.code)
        error.event_id = self._accounts.operations.event_of(failed.operations)
        for operation_id in failed.operations:
            self._answer(operation_id, {}, failed.code)
        if failed.fatal:
            self._close(Close("request_cleanup", error))
        elif failed.fence.is_stale(self._shared.fence):
            self._answers.stale += 1
        else:
            self._shared.error(error)

    def _answer(self, operation_id: str, record: dict[str, Any], error_code: str | None) -> None:
        def text_of(key: str) -> str | None:
            value = record.get(key)
            return None if value is None else str(value)

        outcome = Outcome(
            operation_id,
            record,
            text_of("text") or "",
            text_of("action"),
            text_of("question"),
            text_of("response_id"),
            error_code,
        )
        self._accounts.operations.answer(outcome)
        self._turns.pictures.over(operation_id)
        self._shared.do(Answered(outcome))
