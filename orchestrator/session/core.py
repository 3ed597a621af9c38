"""``SessionCore``: the session aggregate. An input and a time go in, effects come out; nothing waits here.

Inputs are client commands, backend outputs, and ``Carried`` (the runtime's answer to a backend effect).
The runtime hands commands over one at a time: the next one comes when the effects of the former are
carried out, except ``Cancel`` and ``Close``, which must move the fence at once.
"""

from __future__ import annotations

from dataclasses import asdict

from orchestrator.session.backend import (
    Action,
    AudioDelta,
    BackendOutput,
    Capabilities,
    Closed,
    Decision,
    Delegation,
    Failed,
    Heard,
    Notice,
    QueryAsked,
    QueryCleared,
    SessionConfig,
    TextDelta,
    TickDone,
    TickStarted,
    TurnEnd,
    UserTranscript,
)
from orchestrator.session.commands import (
    AnyCommand,
    AppendInput,
    AskQuery,
    Cancel,
    ClearQuery,
    Close,
    CommitInput,
    Configure,
    CreateResponse,
)
from orchestrator.session.effects import (
    Answered,
    BackendAppend,
    BackendCancel,
    BackendClose,
    BackendCommit,
    BackendTell,
    BackendUpdate,
    Carried,
    Completed,
    Effect,
    Emit,
    Record,
    Reject,
)
from orchestrator.session.events import (
    DelegationEvent,
    ErrorEvent,
    Event,
    ItemAdded,
    ItemCreated,
    ItemDone,
    NoticeEvent,
    ResponseListen,
    SessionClosed,
    SessionExpired,
    SessionUpdated,
    TickEvent,
)
from orchestrator.session.facts import (
    EpochBegun,
    ResponseEnded,
    ResponseStarted,
    SessionConfigured,
    SessionEnded,
    SessionOpened,
)
from orchestrator.session.fence import Fence
from orchestrator.session.input_ledger import InputBytes
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.limits import SessionLimits
from orchestrator.session.operations import OperationLedger, Outcome
from orchestrator.session.response import Phase, Response, response_id_of, serial_of
from orchestrator.session.states import State, Trigger, move
from orchestrator.session.units import InputUnit
from orchestrator.wire.errors import (
    Conflict,
    InvalidRequest,
    ResourceExhausted,
    ServerFault,
    VigilError,
)

EXPIRY_REASONS = frozenset({"idle_ttl_expired", "disconnect_grace_expired", "request_cleanup"})
"""Close reasons told as ``session.expired``; every other one is ``session.closed``."""

STALE_FENCE = "stale_fence"
"""Code of an append that a cancel or close aborted while the backend had not taken it yet."""

_SEALING = (CommitInput, CreateResponse)


class SessionCore:
    """One session. Deterministic in its inputs; any exception but a typed refusal is a bug of this room."""

    def __init__(
        self,
        session_id: str,
        config: SessionConfig,
        capabilities: Capabilities,
        limits: SessionLimits,
    ) -> None:
        self.session_id = session_id
        self.config = config
        self.capabilities = capabilities
        self.state = State.IDLE
        self.fence = Fence()
        self.stale_outputs = 0
        self._limits = limits
        self._operations = OperationLedger(limits.remembered_operations)
        self._input = InputBytes(limits.max_pending_input_bytes)
        self._pending_commits = 0
        self._response: Response | None = None
        self._responses = 0
        self._endings: list[Event] = []
        self._last_item_id: str | None = None
        self._ended_turn = -1
        self._decided = False
        self._tick_response_id: str | None = None
        self._close: Close | None = None
        self._effects: list[Effect] = []

    # --- what the runtime calls ---------------------------------------------------------------------

    def opened(self) -> tuple[Effect, ...]:
        """The effects of having been opened."""
        return (Record(SessionOpened(self.session_id, asdict(self.config))),)

    def admit(self, command: AnyCommand) -> bool:
        """Reserve what a command needs before it is queued. False: known already, do not queue it.

        Raises ``ResourceExhausted`` (``input_backpressure``), ``InvalidRequest`` or ``Conflict``
        (``session_closed``); nothing is retained then.
        """
        if not self.state.is_open:
            if isinstance(command, Close):
                return False
            move(self.state, Trigger.INPUT)
        if isinstance(command, _SEALING):
            if self._pending_commits >= self._limits.max_pending_commits:
                raise ResourceExhausted(
                    f"{self._pending_commits} commits are waiting; wait for their answers",
                    code="input_backpressure",
                )
            self._pending_commits += 1
        elif isinstance(command, AppendInput):
            self._check(command.unit)
            return self._reserve(command.operation_id, command.unit.size)
        elif isinstance(command, AskQuery):
            if not command.text.strip():
                raise InvalidRequest("the query is empty; send some text", code="bad_event")
            return self._reserve(command.operation_id, len(command.text.encode()))
        return True

    def handle(self, now: float, item: AnyCommand | Carried | BackendOutput) -> tuple[Effect, ...]:
        """Fold one input at monotonic time ``now`` (seconds); return the effects in order."""
        self._effects = []
        if isinstance(item, Carried):
            self._carried(item)
        elif isinstance(item, AnyCommand):
            self._command(item)
        elif self.state.is_open or (self.state is State.CLOSING and isinstance(item, Delegation)):
            self._output(item)  # a background question that ends with the session is told as cancelled
        return tuple(self._effects)

    def interrupts(self, command: AnyCommand) -> bool:
        """True when the command, as things stand, ends work in flight that was asked for before it."""
        if isinstance(command, Cancel):
            active = self._response
            return active is not None and command.response_id in (None, active.response_id)
        return isinstance(command, Close) and self.state.is_open

    def outcome(self, operation_id: str) -> Outcome | None:
        """How a remembered operation was answered, if it was."""
        return self._operations.outcome(operation_id)

    def statistics(self) -> dict[str, object]:
        return {
            "state": self.state.value,
            "epoch": self.fence.epoch,
            "turn": self.fence.turn,
            "responses": self._responses,
            "pending_input_bytes": self._input.pending,
            "pending_commits": self._pending_commits,
            "stale_outputs": self.stale_outputs,
            "operations": self._operations.statistics(),
        }

    # --- commands -----------------------------------------------------------------------------------

    def _command(self, command: AnyCommand) -> None:
        if isinstance(command, _SEALING):
            self._pending_commits -= 1
        try:
            self._execute(command)
        except VigilError as error:
            self._reject(error, command)

    def _execute(self, command: AnyCommand) -> None:
        match command:
            case AppendInput():
                self.state = move(self.state, Trigger.INPUT)
                self._do(BackendAppend(command, self.fence, command=command))
            case AskQuery(text=text, operation_id=item_id, repeat_ok=repeat_ok):
                self.state = move(self.state, Trigger.INPUT)
                fact = QueryAsked(text, item_id, repeat_ok)
                self._do(BackendTell(fact, self.fence, command=command))
            case ClearQuery(item_id=item_id):
                self._require_open()
                self._do(BackendTell(QueryCleared(item_id), self.fence, command=command))
            case CommitInput(create_response=False):
                self._require_open()
                self._do(BackendCommit(self.fence, False, command=command))
            case CommitInput() | CreateResponse():
                self.state = move(self.state, Trigger.CREATE)
                self.fence = Fence(self.fence.epoch, self.fence.turn + 1)
                self._start_response(self.fence, requested=True)
                self._do(BackendCommit(self.fence, True, command=command))
            case Configure(config=config):
                self._require_open()
                if config.model != self.config.model:
                    raise InvalidRequest(
                        "the model of a session cannot change; open a new session",
                        code="model_update_unsupported",
                        param="model",
                    )
                self._do(BackendUpdate(config, command=command))
            case Cancel(response_id=response_id):
                self._cancel(response_id, command)
            case Close():
                self._begin_close(command)

    def _cancel(self, response_id: str | None, command: Cancel) -> None:
        active = self._response
        if active is None or response_id not in (None, active.response_id):
            unknown = response_id is not None and active is None and not self._was_ours(response_id)
            if unknown and self.state.is_open:
                self._do(Completed(command))
                return
            self._require_open()
            raise Conflict("that response is not active; nothing was cancelled", code="response_not_active")
        self.state = move(self.state, Trigger.CANCEL)
        cancelled = self._next_epoch("cancelled", "client_cancelled")
        self._do(BackendCancel(cancelled, self.fence, command=command))

    def _begin_close(self, command: Close) -> None:
        already = not self.state.is_open
        self.state = move(self.state, Trigger.CLOSE)
        if already:
            self._do(Completed(command))
            return
        self._close = command
        if command.error is not None:
            self._emit(ErrorEvent(command.error))
            self._next_epoch("failed", command.error.code)
        else:
            self._next_epoch("cancelled", command.reason)
        self._do(BackendClose(command.reason, command=command))

    def _next_epoch(self, status: str, reason: str) -> Fence:
        """Close the ledger of the active response, then bump the epoch: from here its output is stale.

        Its closing events are held until the backend has aborted, so that nothing of it follows them.
        """
        if self._response is not None:
            self._endings.extend(self._end_response(status, reason))
        cancelled = self.fence
        self.fence = Fence(cancelled.epoch + 1, cancelled.turn)
        self._decided = False
        self._do(Record(EpochBegun(self.fence.epoch, reason)))
        return cancelled

    # --- backend effects that were carried out --------------------------------------------------------

    def _carried(self, carried: Carried) -> None:
        effect, error = carried.effect, carried.error
        match effect:
            case BackendAppend(append=append):
                self._settle(append.operation_id, error)
            case BackendTell(fact=QueryAsked() as asked):
                self._settle(asked.item_id, error)
                if error is None:
                    self._add_user_item(asked)
            case BackendTell(fact=Heard()) if error is not None and self.state.is_open:
                self._emit(ErrorEvent(ServerFault(error.message, code="runtime_signal_failed")))
            case BackendCommit(fence=fence, create_response=True) if error is not None:
                if self._response is not None and self._response.fence == fence:
                    self._finish_response("failed", error.code)
            case BackendUpdate(config=config) if error is None:
                self.config = config
                self._do(Record(SessionConfigured(asdict(config))))
                self._emit(SessionUpdated(config))
            case BackendCancel():
                self._release_endings()
                if error is not None:
                    error = ServerFault(error.message, code="runtime_abort_failed")
            case BackendClose():
                self._finish_close()
                error = None
        if effect.command is None:
            return
        if error is None:
            self._do(Completed(effect.command))
        else:
            self._reject(error, effect.command)

    def _settle(self, operation_id: str, error: VigilError | None) -> None:
        self._input.release(operation_id)
        if error is None:
            self._operations.accept(operation_id)
        else:
            self._operations.refuse(operation_id)

    def _add_user_item(self, asked: QueryAsked) -> None:
        item = Item(asked.item_id, "user", content=(ContentPart("input_text", asked.text),))
        previous, self._last_item_id = self._last_item_id, asked.item_id
        for event in (ItemAdded(previous, item), ItemCreated(previous, item), ItemDone(previous, item)):
            self._emit(event)

    def _finish_close(self) -> None:
        close = self._close or Close()
        self.state = move(self.state, Trigger.GONE)
        self._release_endings()
        self._do(Record(SessionEnded(close.reason, close.error.code if close.error else None)))
        ending = SessionExpired if close.reason in EXPIRY_REASONS else SessionClosed
        self._emit(ending(self.session_id, close.reason))

    # --- backend outputs --------------------------------------------------------------------------------

    def _output(self, output: BackendOutput) -> None:
        match output:
            case Delegation():
                # A background question outlives the turn that asked it: its epoch may be old.
                self._emit(
                    DelegationEvent(
                        output.fence,
                        output.delegation_id,
                        output.status,
                        output.question,
                        output.text,
                        output.error,
                    )
                )
            case Notice(code=code, message=message):
                self._emit(NoticeEvent(code, message))
            case TickDone():
                self._tick_done(output)
            case Failed():
                self._failed(output)
            case Closed(reason=reason):
                self._begin_close(Close(reason))
            case _ if output.fence.is_stale(self.fence):
                self.stale_outputs += 1
            case TickStarted():
                self._tick_response_id = None
            case Decision():
                self._decision(output)
            case TextDelta(fence=fence, text=text):
                self._text(fence, text)
            case TurnEnd():
                self._turn_end(output)
            case AudioDelta() | UserTranscript():
                raise ServerFault(f"{type(output).__name__} from a backend without speech")

    def _decision(self, decision: Decision) -> None:
        if decision.action is not Action.SILENCE:
            self._decided = True
            if decision.action is Action.RESPONSE:
                response = self._response_of(decision.fence)
                self._emit_all(response.speak(decision.score))
            return
        response_or_none = self._response
        if (
            response_or_none is not None
            and response_or_none.phase is Phase.CREATED
            and decision.fence.turn >= response_or_none.fence.turn
        ):
            # Words were asked for and the model has none: listening ends the response on the client.
            self._emit(
                ResponseListen(
                    decision.fence,
                    decision.reason or "model_listen",
                    decision.reason in (None, "model"),
                    response_or_none.response_id,
                )
            )
            self._finish_response("completed", None)

    def _text(self, fence: Fence, text: str) -> None:
        if self._response is None and not self._decided and fence.turn <= self._ended_turn:
            self.stale_outputs += 1  # late output of a turn that has ended
            return
        self._emit_all(self._response_of(fence).add_text(text))

    def _turn_end(self, end: TurnEnd) -> None:
        response = self._response
        if response is not None and (
            end.fence.turn >= response.fence.turn or response.phase is Phase.STREAMING
        ):
            self._finish_response(end.status, end.reason)
        self._ended_turn = max(self._ended_turn, end.fence.turn)
        self._decided = False

    def _tick_done(self, done: TickDone) -> None:
        # A tick is a matter of record, and its operations wait, even when its epoch was cancelled.
        record = {**done.record, "response_id": self._tick_response_id}
        for operation_id in done.operations:
            self._answer(operation_id, record, done.error_code)
        if not done.fence.is_stale(self.fence):
            self._emit(TickEvent(done.fence, record, done.error_code))

    def _failed(self, failed: Failed) -> None:
        error = ServerFault(failed.message, code=failed.code)
        for operation_id in failed.operations:
            self._answer(operation_id, {}, failed.code)
        if failed.fatal:
            self._begin_close(Close("request_cleanup", error))
        elif failed.fence.is_stale(self.fence):
            self.stale_outputs += 1
        else:
            self._emit(ErrorEvent(error))

    def _answer(self, operation_id: str, record: dict[str, object], error_code: str | None) -> None:
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
        self._operations.answer(outcome)
        self._do(Answered(outcome))

    # --- responses --------------------------------------------------------------------------------------

    def _response_of(self, fence: Fence) -> Response:
        """The response that output of ``fence`` belongs to, created at its first visible output."""
        response = self._response
        if response is not None and fence.turn > response.fence.turn:
            self._finish_response("completed", None)
            response = None
        if response is None:
            self.state = move(self.state, Trigger.VISIBLE)
            response = self._start_response(fence)
        self._tick_response_id = response.response_id
        return response

    def _start_response(self, fence: Fence, *, requested: bool = False) -> Response:
        self._release_endings()
        response_id = response_id_of(self.session_id, fence.epoch, self._responses)
        self._responses += 1
        response = Response(response_id, fence, self._last_item_id, requested=requested)
        self._response = response
        self._last_item_id = response.item_id
        self._do(Record(ResponseStarted(response_id, fence.epoch, fence.turn)))
        self._emit_all(response.begin())
        return response

    def _finish_response(self, status: str, reason: str | None) -> None:
        self._emit_all(self._end_response(status, reason))
        self.state = move(self.state, Trigger.DONE)
        self.fence = Fence(self.fence.epoch, self.fence.turn + 1)

    def _end_response(self, status: str, reason: str | None) -> tuple[Event, ...]:
        """End the active response: its closing events, and what was heard of it told to the backend."""
        response = self._response
        if response is None:
            raise ServerFault("no response to end")
        self._response = None
        events = response.finish(status, reason)
        # Text is read as it is emitted. A failed response enters no history.
        heard = "" if status == "failed" else response.text
        self._do(Record(ResponseEnded(response.response_id, status, reason, response.text, heard)))
        fact = Heard(response.response_id, heard, complete=status == "completed")
        self._do(BackendTell(fact, response.fence))
        return events

    def _release_endings(self) -> None:
        endings, self._endings = self._endings, []
        self._emit_all(endings)

    # --- small helpers ----------------------------------------------------------------------------------

    def _check(self, unit: InputUnit) -> None:
        carried = {name for name, there in (("video", unit.frames), ("audio", unit.pcm)) if there}
        required = set(self.capabilities.required_input_modalities)
        allowed = required | set(self.capabilities.optional_input_modalities)
        if not carried:
            raise InvalidRequest("the append carries nothing", code="bad_event")
        if len(unit.frames) > self.capabilities.max_frames_per_append:
            raise InvalidRequest(
                f"at most {self.capabilities.max_frames_per_append} frames per append; send several appends",
                code="invalid_video_frames",
            )
        if not required <= carried or not carried <= allowed:
            raise InvalidRequest(
                f"this model takes {sorted(allowed)} and needs {sorted(required)}; "
                f"the append carries {sorted(carried)}",
                code="invalid_input_modality",
            )

    def _reserve(self, operation_id: str, size: int) -> bool:
        if not self._operations.begin(operation_id):
            return False
        try:
            self._input.reserve(operation_id, size)
        except ResourceExhausted:
            self._operations.refuse(operation_id)
            raise
        return True

    def _require_open(self) -> None:
        if not self.state.is_open:
            move(self.state, Trigger.INPUT)

    def _was_ours(self, response_id: str) -> bool:
        serial = serial_of(self.session_id, response_id)
        return serial is not None and serial < self._responses

    def _reject(self, error: VigilError, command: AnyCommand) -> None:
        if isinstance(command, AppendInput | AskQuery) and self._operations.outstanding(command.operation_id):
            self._settle(command.operation_id, error)
        error.event_id = command.event_id
        quiet = error.code == STALE_FENCE or not self.state.is_open
        self._do(Reject(error, command, quiet))

    def _emit(self, event: Event) -> None:
        self._effects.append(Emit(event))

    def _emit_all(self, events: tuple[Event, ...] | list[Event]) -> None:
        self._effects.extend(Emit(event) for event in events)

    def _do(self, effect: Effect) -> None:
        self._effects.append(effect)
