"""``SessionCore``: the session aggregate. An input and a time go in, effects come out; nothing waits here.

Inputs are client commands, backend outputs, and ``Carried`` (the runtime's answer to a backend effect).
The runtime hands commands over one at a time, in arrival order: the next one comes when the backend effects
of the former are carried out, except for ``commands.IMMEDIATE``, which act at once when their turn comes.
"""

from __future__ import annotations

from typing import Any

from orchestrator.session import backend as be
from orchestrator.session import commands as cmd
from orchestrator.session import effects as fx
from orchestrator.session import events as ev
from orchestrator.session.admission import Admission
from orchestrator.session.answers import Answers
from orchestrator.session.attachment import Ticket, Tokens
from orchestrator.session.configuration import updated
from orchestrator.session.conversation import Conversation
from orchestrator.session.delivery import Delivery, Payload, Resumed, backpressure
from orchestrator.session.facts import (
    EpochBegun,
    SessionConfigured,
    SessionEnded,
    SessionOpened,
    config_data,
)
from orchestrator.session.fence import Fence
from orchestrator.session.history import History
from orchestrator.session.input_ledger import InputAccounts
from orchestrator.session.inputs import Inputs
from orchestrator.session.lease import Lease
from orchestrator.session.limits import SessionLimits
from orchestrator.session.operations import Outcome
from orchestrator.session.outputs import Outputs
from orchestrator.session.playback import PlaybackBook, PlaybackPolicy
from orchestrator.session.shared import Shared
from orchestrator.session.states import State, Trigger
from orchestrator.session.turns import STALE_FENCE, Turns, told_of_append
from orchestrator.session.view import session_object, signalled_state
from orchestrator.wire.errors import (
    Conflict,
    InvalidRequest,
    ServerFault,
    Unsupported,
    VigilError,
)

EXPIRY_REASONS = frozenset({"idle_ttl_expired", "disconnect_grace_expired", "request_cleanup"})
"""Close reasons told as ``session.expired``; every other one is ``session.closed``."""


class SessionCore:
    """One session. Deterministic in its inputs; any exception but a typed refusal is a bug of this room.

    :param ids: makes item and event ids; ``tokens`` makes resume tokens
    :param begun: where a session that is taken up again starts, newer than all its earlier output
    """

    def __init__(
        self,
        session_id: str,
        config: be.SessionConfig,
        capabilities: be.Capabilities,
        limits: SessionLimits,
        ids: be.Ids,
        tokens: Tokens,
        lease: Lease,
        *,
        begun: Fence | None = None,
    ) -> None:
        shared = self._shared = Shared(session_id, config, capabilities, limits, ids)
        shared.fence = begun or Fence()
        self._book = PlaybackBook(PlaybackPolicy(config.playback_policy))
        history = History(limits.history_items)
        self._answers = Answers(shared, history, self._book)
        accounts = self._accounts = InputAccounts(limits)
        self._admission = Admission(shared, accounts)
        turns = self._turns = Turns(shared, self._answers, history, accounts)
        self._inputs = Inputs(shared, self._answers, turns, accounts, self._barge_in)
        self._talk = Conversation(shared, self._answers, history, self._book, turns)
        self._outputs = Outputs(shared, self._answers, self._inputs, turns, accounts, self._begin_close)
        self._delivery = shared.sink = Delivery(shared, tokens, self._book)
        self.history = history
        self._lease = lease
        self._close: cmd.Close | None = None
        self._backpressured = False

    @property
    def session_id(self) -> str:
        return self._shared.session_id

    @property
    def state(self) -> State:
        return self._shared.state

    @property
    def fence(self) -> Fence:
        return self._shared.fence

    @property
    def config(self) -> be.SessionConfig:
        return self._shared.config

    @property
    def capabilities(self) -> be.Capabilities:
        return self._shared.capabilities

    @property
    def stale_outputs(self) -> int:
        return self._answers.stale

    # --- commands and outputs -----------------------------------------------------------------------------

    def opened(self) -> tuple[fx.Effect, ...]:
        """The effects of having been opened."""
        self._shared.record(SessionOpened(self.session_id, config_data(self.config)))
        return self._shared.take_effects()

    def admit(self, command: cmd.AnyCommand) -> bool:
        """Charge a command before it is queued; see ``Admission.admit``."""
        return self._admission.admit(command)

    def interrupts(self, command: cmd.AnyCommand) -> bool:
        """True when the command, as things stand, ends work in flight that was asked for before it."""
        active = self._answers.active
        match command:
            case cmd.Cancel(response_id=wanted) | cmd.ClearOutput(response_id=wanted):
                return active is not None and wanted in (None, active.response_id)
            case cmd.Interrupt() | cmd.Close():
                return self.state.is_open
            case _:
                return False

    def handle(
        self, now: float, item: cmd.AnyCommand | fx.Carried | be.BackendOutput
    ) -> tuple[fx.Effect, ...]:
        """Fold one input at monotonic time ``now`` (seconds); return the effects in order."""
        self._begin(now)
        if isinstance(item, fx.Carried):
            self._carried(item)
        elif isinstance(item, cmd.AnyCommand):
            self._lease.touch(now)
            self._command(item)
        elif self.state.is_open:
            self._lease.touch(now)
            self._outputs.take(item)
        elif self.state is State.CLOSING and isinstance(item, be.Delegation):
            self._outputs.take(item)  # a background question that ends with the session is cancelled
        return self._end()

    def tick(self, now: float, *, busy: bool) -> tuple[fx.Effect, ...]:
        """Time has passed: what waited for a playback goes on, and a session without life expires."""
        self._begin(now)
        reason = self._lease.expired(now, busy=busy) if self.state.is_open else None
        if reason is not None:
            self._begin_close(cmd.Close(reason))
        return self._end()

    def tell(self, error: VigilError) -> tuple[fx.Effect, ...]:
        """Tell the client of a refusal for which nobody waits; nothing once the session is over."""
        if self.state is not State.CLOSED:
            self._shared.error(error)
        return self._end()

    def abandon(self, now: float, error: VigilError) -> tuple[fx.Effect, ...]:
        """The last resort, when an end in order is no longer possible: tell the client and be closed."""
        self._shared.now = now
        self._shared.take_effects()
        self._shared.state = State.CLOSED
        self._shared.error(error)
        self._shared.emit(ev.SessionClosed(self.session_id, "internal_error"))
        return self._shared.take_effects()

    def outcome(self, operation_id: str) -> Outcome | None:
        """How a remembered operation was answered, if it was."""
        return self._accounts.operations.outcome(operation_id)

    # --- sockets ------------------------------------------------------------------------------------------

    def attach(self, now: float) -> tuple[Ticket, tuple[fx.Effect, ...]]:
        """Seat the socket that opened the session; its first events are on their way."""
        self._begin(now)
        ticket = self._delivery.open()
        self._lease.attached(now)
        view = self.view()
        self._shared.emit(ev.SessionCreated(view, ticket.generation, ticket.token))
        self._shared.emit(ev.SessionUpdated(view))
        return ticket, self._end()

    def resume(self, now: float, token: Any, after: Any) -> Resumed:
        """Seat a socket that presents the session's token; raises what the contract names."""
        self._begin(now)
        if not self.state.is_open:
            raise Conflict("the session is over", code="session_resume_expired")
        resumed = self._delivery.resume(token, after)
        if resumed.ticket is not None:
            self._lease.attached(now)
        return resumed

    def invite(self) -> str:
        """A token with which one more socket may join the session."""
        self._shared.require_open()
        return self._delivery.attachments.invite()

    def alive(self, generation: int) -> None:
        """The socket of that generation sent something."""
        self._delivery.attachments.alive(generation)

    def detach(self, now: float, generation: int) -> tuple[fx.Effect, ...]:
        """A socket is gone. A session that cannot be resumed ends; another waits for its client."""
        self._begin(now)
        if self._delivery.detach(generation):
            self._lease.detached(now)
            if self.state.is_open and not self._shared.capabilities.supports_session_resume:
                self._begin_close(cmd.Close("disconnect"))
        return self._end()

    def take(self, now: float) -> tuple[Payload, ...]:
        """What the attached socket writes next, as JSON values; empty when nothing waits."""
        self._shared.now = now
        return self._delivery.take()

    def is_seated(self, generation: int) -> bool:
        """The socket of that generation still has its place."""
        return self._delivery.attached and self._delivery.attachments.generation == generation

    @property
    def attached(self) -> bool:
        """A socket is attached."""
        return self._delivery.attached

    @property
    def waiting(self) -> bool:
        """Something waits to be written."""
        return self._delivery.waiting()

    def view(self) -> dict[str, Any]:
        """The session object."""
        return session_object(self._shared, self._answers, self._turns, self._inputs.vad_active, self._book)

    def statistics(self) -> dict[str, object]:
        return {
            "state": self.state.value,
            "epoch": self.fence.epoch,
            "turn": self.fence.turn,
            "responses": self._answers.count,
            "stale_outputs": self._answers.stale,
            "pending_commits": self._admission.pending_commits,
            "playback": self._book.statistics(),
            **self._accounts.statistics(),
            **self._turns.statistics(),
            **self._delivery.statistics(),
        }

    # --- one input ----------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        self._shared.now = now
        if self.state.is_open:
            self._answers.advance()

    def _end(self) -> tuple[fx.Effect, ...]:
        status, self._answers.ended_status = self._answers.ended_status, None
        if self.state.is_open:
            if self._delivery.overflowed and not self._backpressured:
                self._fail_output()
            elif status is not None:
                self._inputs.response_over()
                self._turns.response_over(status)
            else:
                self._turns.promote()
        return self._shared.take_effects()

    def _command(self, command: cmd.AnyCommand) -> None:
        self._admission.dequeued(command)
        try:
            if not isinstance(command, cmd.Close):
                self._shared.require_open()
            self._execute(command)
        except VigilError as error:
            self._refund(command)
            self._reject(error, command)

    def _execute(self, command: cmd.AnyCommand) -> None:
        match command:
            case cmd.AppendInput():
                self._inputs.append(command)
            case cmd.AppendText():
                self._inputs.append_text(command)
            case cmd.CommitInput():
                self._turns.commit(command)
            case cmd.ClearInput():
                self._turns.clear()
                self._shared.do(fx.Completed(command))
            case cmd.CreateResponse():
                self._turns.create(command)
            case cmd.AskQuery():
                self._talk.ask(command)
            case cmd.ClearQuery():
                self._talk.clear_query(command)
            case cmd.CreateItem():
                self._talk.create(command)
            case cmd.RetrieveItem():
                self._talk.retrieve(command)
            case cmd.DeleteItem():
                self._talk.delete(command)
            case cmd.TruncateItem():
                self._talk.truncate(command)
            case cmd.PlaybackAck():
                self._talk.ack(command)
            case cmd.Cancel():
                self._cancel(command)
            case cmd.ClearOutput():
                self._clear_output(command)
            case cmd.Interrupt():
                self._interrupt(command)
            case cmd.Configure(config=config):
                self._configure(config, command)
            case cmd.Reconfigure(body=body):
                config = updated(body, self.config, self._shared.capabilities)
                self._configure(config, command)
            case cmd.Close():
                self._begin_close(command)
            case cmd.SignalTurn(event=event):
                state = signalled_state(event, self._answers, self._turns, self._inputs.vad_active)
                self._shared.emit(ev.TurnSignalled(self.fence, event, state))
                self._shared.do(fx.Completed(command))
            case cmd.Heartbeat():
                self._shared.emit(ev.HeartbeatAck(self.session_id))
                self._shared.do(fx.Completed(command))
            case cmd.AckEvents(seq=seq):
                self._delivery.ack(seq)
                self._shared.do(fx.Completed(command))

    # --- cancelling ---------------------------------------------------------------------------------------

    def _cancel(self, command: cmd.Cancel) -> None:
        answers, wanted = self._answers, command.response_id
        running = [r.response_id for r in (*answers.draining, answers.active) if r is not None]
        on_its_way = self._turns.submission is not None
        if wanted in running or (wanted is None and (running or on_its_way)):
            cancelled = self._next_epoch("cancelled", "client_cancelled")
            self._shared.do(fx.BackendCancel(cancelled, self.fence, command=command))
        elif wanted is not None and not running and not answers.was_ours(wanted):
            self._shared.do(fx.Completed(command))
        else:
            raise Conflict("that response is not active; nothing was cancelled", code="response_not_active")

    def _clear_output(self, command: cmd.ClearOutput) -> None:
        active, wanted = self._answers.active, command.response_id
        if active is not None and wanted in (None, active.response_id):
            self._shared.emit(ev.OutputCleared(active.fence, active.response_id))
            cancelled = self._next_epoch("cancelled", "output_audio_buffer_clear")
            self._shared.do(fx.BackendCancel(cancelled, self.fence, command=command))
            return
        if (ledger := self._answers.clear(wanted)) is not None:
            self._delivery.void((ledger.response_id,))
        self._shared.do(fx.Completed(command))

    def _interrupt(self, command: cmd.Interrupt) -> None:
        if command.barge_in and not self._shared.capabilities.supports_barge_in:
            raise Unsupported("this model cannot be interrupted", code="barge_in_unsupported")
        cancelled = self._next_epoch("cancelled", "barge_in")
        self._turns.clear()
        self._shared.do(fx.BackendCancel(cancelled, self.fence, command=command))

    def _barge_in(self, reason: str) -> None:
        """The user's voice ends what is being answered or played."""
        cancelled = self._next_epoch("cancelled", reason)
        self._shared.do(fx.BackendCancel(cancelled, self.fence))

    def _next_epoch(self, status: str, reason: str) -> Fence:
        """Close the ledgers, then bump the epoch: from here on all earlier output is stale.

        What was queued of it is taken back; the closing events are held until the backend has aborted.
        """
        silenced = self._answers.interrupt(status, reason)
        self._inputs.response_over()
        self._turns.discard_waiting()
        if self.state is State.RESPONDING:
            self._shared.move(Trigger.CANCEL)
        cancelled = self.fence
        self._shared.fence = Fence(cancelled.epoch + 1, cancelled.turn)
        self._delivery.void(silenced)
        self._shared.record(EpochBegun(self.fence.epoch, reason))
        return cancelled

    # --- configuration and the end ------------------------------------------------------------------------

    def _configure(self, config: be.SessionConfig, command: cmd.Configure | cmd.Reconfigure) -> None:
        if self._turns.append_failed():
            raise ServerFault("the append before this update failed", code="session_update_aborted")
        if config.model != self.config.model:
            raise InvalidRequest(
                "the model of a session cannot change; open a new session",
                code="model_update_unsupported",
                param="model",
            )
        if config.voice != self.config.voice and self._answers.has_spoken:
            raise InvalidRequest(
                "the voice cannot change once it has been heard",
                code="voice_update_after_audio_unsupported",
                param="voice",
            )
        self._shared.do(fx.BackendUpdate(config, command=command))

    def _begin_close(self, command: cmd.Close) -> None:
        already = not self.state.is_open
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

    def _finish_close(self) -> None:
        close = self._close or cmd.Close()
        self._shared.move(Trigger.GONE)
        self._answers.release_endings()
        self._shared.record(SessionEnded(close.reason, close.error.code if close.error else None))
        ending = ev.SessionExpired if close.reason in EXPIRY_REASONS else ev.SessionClosed
        self._shared.emit(ending(self.session_id, close.reason))

    def _fail_output(self) -> None:
        """The client reads too slowly: its response fails and its session ends, nobody else's."""
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
        self._begin_close(cmd.Close("output_backpressure"))

    # --- backend effects that were carried out ------------------------------------------------------------

    def _carried(self, carried: fx.Carried) -> None:
        effect, error = carried.effect, carried.error
        match effect:
            case fx.BackendAppend():
                self._turns.append_carried(effect, error)
            case fx.BackendTell(fact=be.QueryAsked() as asked):
                if isinstance(effect.command, cmd.AskQuery):
                    self._accounts.settle(asked.item_id, taken=error is None)
                self._talk.asked(asked, taken=error is None)
            case fx.BackendTell() | fx.BackendPlayback() if error is not None and effect.command is None:
                if self.state.is_open:
                    self._shared.error(ServerFault(error.message, code="runtime_signal_failed"))
            case fx.BackendCommit(fence=fence, create_response=True) if error is not None:
                active = self._answers.active
                if active is not None and active.fence == fence:
                    self._answers.finish(active, "failed", error.code)
            case fx.BackendUpdate(config=config) if error is None:
                self._shared.config = config
                self._shared.record(SessionConfigured(config_data(config)))
                self._shared.emit(ev.SessionUpdated(self.view()))
            case fx.BackendCancel():
                self._answers.release_endings()
                if error is not None:
                    error = ServerFault(error.message, code="runtime_abort_failed")
            case fx.BackendClose():
                self._finish_close()
                error = None
        if effect.command is None:
            return
        if error is None:
            self._shared.do(fx.Completed(effect.command))
        else:
            self._reject(error, effect.command)

    def _refund(self, command: cmd.AnyCommand) -> None:
        """A command that could not be executed gives back what it was charged at admission."""
        charged: tuple[cmd.OperationCommand, ...] = ()
        if isinstance(command, cmd.OperationCommand):
            charged = (command,)
        elif isinstance(command, cmd.CreateItem):
            charged = command.pictures
        for each in charged:
            self._accounts.settle(each.operation_id, taken=False)

    def _reject(self, error: VigilError, command: cmd.AnyCommand) -> None:
        error.event_id = command.event_id
        told: VigilError | None = None
        if error.code != STALE_FENCE and self.state.is_open:
            told = told_of_append(error) if isinstance(command, cmd.AppendInput) else error
        self._shared.do(fx.Reject(error, command, told))
