"""Everything that ends something: cancels, interruptions, a reader too slow, the end of the session.

The order is always the same: what was heard is computed and entered, the epoch moves, what was queued of the
old epoch is taken back, the backend is told; only when it has aborted do the closing events go out.
"""

from __future__ import annotations

from orchestrator.session import commands as cmd
from orchestrator.session import effects as fx
from orchestrator.session import events as ev
from orchestrator.session.answers import Answers
from orchestrator.session.delivery import Delivery, backpressure
from orchestrator.session.facts import EpochBegun, SessionEnded
from orchestrator.session.fence import Fence
from orchestrator.session.response import Phase
from orchestrator.session.shared import Shared
from orchestrator.session.states import State, Trigger
from orchestrator.session.turns import Turns
from orchestrator.wire.errors import Conflict, Unsupported


class Endings:
    def __init__(self, shared: Shared, answers: Answers, turns: Turns, delivery: Delivery) -> None:
        self._shared = shared
        self._answers = answers
        self._turns = turns
        self._delivery = delivery
        self._close: cmd.Close | None = None
        self._backpressured = False

    # --- output --------------------------------------------------------------------------------------

    def cancel(self, command: cmd.Cancel) -> None:
        answers, wanted = self._answers, command.response_id
        running = [r.response_id for r in (*answers.draining, answers.active) if r is not None]
        on_its_way = self._turns.submission is not None
        if wanted in running or (wanted is None and (running or on_its_way)):
            active = answers.active
            in_vain = active is not None and active.requested and active.phase is Phase.CREATED
            cancelled = self._next_epoch("cancelled", "client_cancelled")
            if in_vain:
                self._turns.unanswered.asked_in_vain()
            self._shared.do(fx.BackendCancel(cancelled, self._shared.fence, command=command))
        elif wanted is not None and not running and not answers.was_ours(wanted):
            self._shared.do(fx.Completed(command))
        else:
            raise Conflict("that response is not active; nothing was cancelled", code="response_not_active")

    def clear_output(self, command: cmd.ClearOutput) -> None:
        active, wanted = self._answers.active, command.response_id
        if active is not None and wanted in (None, active.response_id):
            self._shared.emit(ev.OutputCleared(active.fence, active.response_id))
            cancelled = self._next_epoch("cancelled", "output_audio_buffer_clear")
            self._shared.do(fx.BackendCancel(cancelled, self._shared.fence, command=command))
            return
        if (ledger := self._answers.clear(wanted)) is not None:
            self._delivery.void((ledger.response_id,))
        self._shared.do(fx.Completed(command))

    def interrupt(self, command: cmd.Interrupt) -> None:
        if command.barge_in and not self._shared.capabilities.supports_barge_in:
            raise Unsupported("this model cannot be interrupted", code="barge_in_unsupported")
        cancelled = self._next_epoch("cancelled", "barge_in")
        self._turns.clear()
        self._shared.do(fx.BackendCancel(cancelled, self._shared.fence, command=command))
        self._shared.do(fx.BackendClear())

    def barge_in(self, reason: str) -> None:
        """The user's voice ends what is being answered or played."""
        cancelled = self._next_epoch("cancelled", reason)
        self._shared.do(fx.BackendCancel(cancelled, self._shared.fence))

    def _next_epoch(self, status: str, reason: str) -> Fence:
        """Close the ledgers, then bump the epoch: from here on all earlier output is stale.

        What was queued of it is taken back; the closing events are held until the backend has aborted.
        """
        silenced = self._answers.interrupt(status, reason)
        self._turns.discard_waiting()
        if self._shared.state is State.RESPONDING:
            self._shared.move(Trigger.CANCEL)
        cancelled = self._shared.fence
        self._shared.fence = Fence(cancelled.epoch + 1, cancelled.turn)
        self._delivery.void(silenced)
        self._shared.record(EpochBegun(self._shared.fence.epoch, reason))
        return cancelled

    # --- the session ---------------------------------------------------------------------------------

    def close(self, command: cmd.Close) -> None:
        already = not self._shared.state.is_open
        self._shared.move(Trigger.CLOSE)
        if already:
            self._shared.do(fx.Completed(command))
            return
        self._close = command
        if command.error is not None:
            self._shared.error(command.error)
            self._next_epoch("failed", command.error.code)
        else:
            self._next_epoch("cancelled", command.reason)
        self._turns.release_all()
        self._shared.do(fx.BackendClose(command.reason, command=command))

    def closed(self) -> None:
        close = self._close or cmd.Close()
        self._shared.move(Trigger.GONE)
        self._answers.release_endings()
        self._shared.record(SessionEnded(close.reason, close.error.code if close.error else None))
        ending = ev.SessionExpired if close.reason in cmd.EXPIRY_REASONS else ev.SessionClosed
        self._shared.emit(ending(self._shared.session_id, close.reason))

    def fail_output(self) -> None:
        """The client reads too slowly: its response fails and its session ends, nobody else's."""
        if self._backpressured:
            return
        self._backpressured = True
        answers = self._answers
        self._shared.emit(backpressure())
        failing = [r for r in (*answers.draining, answers.active) if r is not None]
        for response in failing:
            answers.finish(response, "failed", "output_backpressure")
        silenced = [response.response_id for response in failing]
        if not failing and (ended := self._delivery.fail_last_ending("output_backpressure")):
            answers.revoke(ended)
            silenced = [ended]
        self._delivery.void(silenced)
        self.close(cmd.Close("output_backpressure"))
