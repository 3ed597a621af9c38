"""``SessionCore``: the session aggregate. An input and a time go in, effects come out; nothing waits here.

Inputs are client commands, backend outputs, and ``Carried`` (the runtime's answer to a backend effect).
The runtime hands commands over one at a time, in arrival order: the next one comes when the backend effects
of the former are carried out, except for ``commands.IMMEDIATE``, which act at once when their turn comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.session import backend as be
from orchestrator.session import commands as cmd
from orchestrator.session import effects as fx
from orchestrator.session import events as ev
from orchestrator.session.admission import Admission
from orchestrator.session.answers import Answers
from orchestrator.session.attachment import Seat, Ticket, Tokens
from orchestrator.session.configuration import updated
from orchestrator.session.conversation import Conversation
from orchestrator.session.delivery import Delivery, Invitation, Resumed
from orchestrator.session.endings import Endings
from orchestrator.session.facts import (
    SessionConfigured,
    SessionOpened,
    config_data,
)
from orchestrator.session.fence import Fence
from orchestrator.session.history import History, Line
from orchestrator.session.input_ledger import InputAccounts
from orchestrator.session.inputs import Inputs
from orchestrator.session.lease import Lease
from orchestrator.session.limits import SessionLimits
from orchestrator.session.operations import Outcome
from orchestrator.session.outputs import Outputs
from orchestrator.session.playback import PlaybackBook, PlaybackPolicy
from orchestrator.session.said import Said
from orchestrator.session.shared import Shared
from orchestrator.session.states import State
from orchestrator.session.told import QueryAsked, ToolResult
from orchestrator.session.tools import Tools
from orchestrator.session.turns import STALE_FENCE, Turns, told_of_append
from orchestrator.session.view import session_object, signalled_state
from orchestrator.wire.errors import (
    Conflict,
    InvalidRequest,
    ServerFault,
    VigilError,
)
from orchestrator.wire.server import Written


class SessionCore:
    """One session. Deterministic in its inputs; any exception but a typed refusal is a bug of this room.

    :param ids: makes item and event ids; ``tokens`` makes resume tokens
    :param begun: where a session that is taken up again starts, newer than all its earlier output
    :param lines: its conversation so far
    :param former: what its sockets before could resume with
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
        lines: Sequence[Line] = (),
        former: Seat | None = None,
    ) -> None:
        shared = self._shared = Shared(session_id, config, capabilities, limits, ids)
        shared.fence = begun or Fence()
        self._book = PlaybackBook(PlaybackPolicy(config.playback_policy), limits.playback_ledgers)
        history = History(limits.history_items, lines)
        self._answers = Answers(shared, history, self._book)
        accounts = self._accounts = InputAccounts(limits)
        self._admission = Admission(shared, accounts, history)
        turns = self._turns = Turns(shared, self._answers, history, accounts)
        self._delivery = shared.sink = Delivery(shared, tokens, self._book, former)
        self._endings = Endings(shared, self._answers, turns, self._delivery)
        self._inputs = Inputs(shared, self._answers, turns, accounts, self._endings.barge_in)
        self._talk = Conversation(shared, self._answers, history, self._book, turns)
        tools = self._tools = Tools(shared, history)
        said = Said(shared, turns, history)
        self._outputs = Outputs(
            shared, self._answers, self._inputs, turns, accounts, tools, said, self._endings.close
        )
        self.history = history
        self._lease = lease
        if former is not None and former.generation:
            lease.detached(lease.touched_at)  # it waits for its client

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

    # --- commands and outputs ------------------------------------------------------------------------

    def opened(self) -> tuple[fx.Effect, ...]:
        """The effects of having been opened."""
        self._shared.record(SessionOpened(self.session_id, config_data(self.config)))
        return self._shared.take_effects()

    def admit(self, command: cmd.AnyCommand) -> bool:
        """Charge a command before it is queued; see ``Admission.admit``."""
        return self._admission.admit(command)

    def retract(self, commands: Iterable[cmd.AnyCommand]) -> None:
        """Take back what was charged for admitted commands that will not be queued."""
        for command in commands:
            self._admission.dequeued(command)
            self._refund(command)

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

    def gives_way(self, command: cmd.AnyCommand) -> bool:
        """A command that may be left out where newer ones of its kind wait behind it."""
        thins = "replace_latest_chunk" in self.capabilities.input_modes
        return thins and isinstance(command, cmd.AppendInput) and command.is_glimpse

    def thin(self, now: float, command: cmd.AppendInput) -> tuple[fx.Effect, ...]:
        """Leave out an append that was admitted and not executed: newer ones wait behind it."""
        self._begin(now)
        self._inputs.thin(command)
        return self._end()

    def tick(self, now: float, *, busy: bool) -> tuple[fx.Effect, ...]:
        """Time has passed: what waited for a playback goes on, and a session without life expires."""
        self._begin(now)
        reason = self._lease.expired(now, busy=busy) if self.state.is_open else None
        if reason is not None:
            self._endings.close(cmd.Close(reason))
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
        told = not self.state.is_open  # an end that was begun has said why
        self._shared.state = State.CLOSED
        if not told:
            self._shared.error(error)
        self._shared.emit(ev.SessionClosed(self.session_id, "internal_error"))
        return self._shared.take_effects()

    def known(self, operation_id: str) -> bool:
        """An append of that id was taken already: its media must not be decoded twice."""
        return self._accounts.operations.known(operation_id)

    def check_room(self, size: int) -> None:
        """Raise ``input_backpressure`` when that many bytes of input would be too many."""
        self._accounts.bytes.check(size)

    def outcome(self, operation_id: str) -> Outcome | None:
        """How a remembered operation was answered, if it was."""
        return self._accounts.operations.outcome(operation_id)

    # --- sockets -------------------------------------------------------------------------------------

    def attach(self, now: float) -> tuple[Ticket, tuple[fx.Effect, ...]]:
        """Seat the socket that opened the session; its first events are on their way."""
        self._begin(now)
        ticket = self._delivery.open()
        self._lease.attached(now)
        view = self.view()
        self._shared.emit(ev.SessionCreated(view, ticket.generation, ticket.token))
        self._shared.emit(ev.SessionUpdated(view))
        if self.config.opening_text:
            self._talk.open_with(self.config.opening_text)
        return ticket, self._end()

    def resume(self, now: float, token: Any, after: Any) -> Resumed:
        """Seat a socket that presents the session's token; raises what the contract names."""
        self._begin(now)
        if not self.state.is_open:
            raise Conflict("the session is over", code="session_resume_expired")
        resumed = self._delivery.resume(token, after)
        if resumed.ticket is not None:
            self._lease.attached(now)
        return replace(resumed, effects=self._end())

    def invite(self) -> Invitation:
        """What one more socket needs to join the session."""
        self._shared.require_open()
        return self._delivery.invite()

    def alive(self, generation: int) -> None:
        """The socket of that generation sent something."""
        self._delivery.attachments.alive(generation)

    def driven(self) -> None:
        """A command comes from a transport without a seat."""
        if not self.attached:
            self._lease.driven()

    def detach(self, now: float, generation: int) -> tuple[fx.Effect, ...]:
        """A socket is gone. A session that cannot be resumed ends; another waits for its client."""
        self._begin(now)
        if self._delivery.detach(generation):
            self._lease.detached(now)
            if self.state.is_open and not self._shared.capabilities.supports_session_resume:
                self._endings.close(cmd.Close("disconnect"))
        return self._end()

    def take(self, now: float) -> tuple[Written, ...]:
        """What the attached socket writes next; empty when nothing waits."""
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
    def answering(self) -> bool:
        """A response is being made."""
        return self._answers.active is not None or bool(self._answers.draining)

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
            "thinned": self._inputs.thinned,
            "playback": self._book.statistics(),
            **self._accounts.statistics(),
            **self._turns.statistics(),
            **self._delivery.statistics(),
        }

    # --- one input -----------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        self._shared.now = now
        if self.state.is_open:
            self._answers.advance()

    def _end(self) -> tuple[fx.Effect, ...]:
        status, self._answers.ended_status = self._answers.ended_status, None
        if self.state.is_open:
            if self._delivery.overflowed:
                self._endings.fail_output()
            elif status is not None:
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
                self._shared.do(fx.BackendClear(command=command))
            case cmd.CreateResponse():
                self._turns.create(command)
            case cmd.AskQuery():
                self._talk.ask(command)
            case cmd.ClearQuery():
                self._talk.clear_query(command)
            case cmd.CreateItem():
                self._talk.create(command)
            case cmd.ReturnOutput():
                self._tools.returned(command)
            case cmd.RetrieveItem():
                self._talk.retrieve(command)
            case cmd.DeleteItem():
                self._talk.delete(command)
            case cmd.TruncateItem():
                self._talk.truncate(command)
            case cmd.PlaybackAck():
                self._talk.ack(command)
            case cmd.Cancel():
                self._endings.cancel(command)
            case cmd.ClearOutput():
                self._endings.clear_output(command)
            case cmd.Interrupt():
                self._endings.interrupt(command)
            case cmd.Configure(config=config):
                self._configure(config, command)
            case cmd.Reconfigure(body=body):
                config = updated(body, self.config, self._shared.capabilities)
                self._configure(config, command)
            case cmd.Close():
                self._endings.close(command)
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

    # --- configuration -------------------------------------------------------------------------------

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

    # --- backend effects that were carried out -------------------------------------------------------

    def _carried(self, carried: fx.Carried) -> None:
        effect, error = carried.effect, carried.error
        match effect:
            case fx.BackendAppend():
                self._turns.append_carried(effect, error)
            case fx.BackendTell(fact=QueryAsked() as asked):
                if isinstance(effect.command, cmd.AskQuery):
                    self._accounts.settle(asked.item_id, taken=error is None)
                self._talk.asked(asked, taken=error is None)
            case fx.BackendTell(fact=ToolResult() as result):
                self._tools.told(result, taken=error is None)
            case fx.BackendTell() | fx.BackendPlayback() | fx.BackendClear() if (
                error is not None and effect.command is None
            ):
                if self.state.is_open:
                    self._shared.error(ServerFault(error.message, code="runtime_signal_failed"))
            case fx.BackendCommit(fence=fence, create_response=True) if self._turns.committed(fence, error):
                self._outputs.release()
            case fx.BackendCommit(fence=fence, create_response=True) if error is not None:
                active = self._answers.active
                if active is not None and active.fence == fence:
                    self._answers.finish(active, "failed", error.code)
            case fx.BackendUpdate(config=config) if error is None:
                self._shared.config = config
                self._shared.record(SessionConfigured(config_data(config)))
                self._shared.emit(ev.SessionUpdated(self.view(), carried.planned_tick))
            case fx.BackendCancel():
                self._answers.release_endings()
                if error is not None:
                    error = ServerFault(error.message, code="runtime_abort_failed")
            case fx.BackendClose():
                self._endings.closed()
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
