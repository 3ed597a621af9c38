"""The user's turns: what is committed, what waits for an answer, what is on its way to be answered.

In turn mode nothing is answered unasked. A committed turn is *retained* until a response is asked for,
*deferred* while another response is being made or played, and *submitted*, unit by unit, to be answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.session.answers import Answers
from orchestrator.session.commands import AnyCommand, AppendInput, CommitInput, CreateResponse
from orchestrator.session.effects import (
    BackendAppend,
    BackendClear,
    BackendCommit,
    BackendTell,
    Completed,
    Dropped,
    Reject,
)
from orchestrator.session.events import (
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemCreated,
    ItemDone,
    UserSpeechStopped,
)
from orchestrator.session.fence import Fence
from orchestrator.session.history import History
from orchestrator.session.input_ledger import HeldUnit, InputAccounts, OpenItem, Payload
from orchestrator.session.shared import Shared
from orchestrator.session.states import Trigger
from orchestrator.session.told import QueryAsked, ResponseOptions
from orchestrator.session.unanswered import Unanswered
from orchestrator.session.waiting_pictures import WaitingPictures
from orchestrator.wire.errors import (
    Conflict,
    InvalidRequest,
    ServerFault,
    Unsupported,
    VigilError,
)

STALE_FENCE = "stale_fence"
"""Code of input that a cancel, clear or close overtook before the backend had it."""


def told_of_append(error: VigilError) -> VigilError:
    """What the client is told of an append that failed: a fault of ours has one code for all causes."""
    if not isinstance(error, ServerFault):
        return error
    return ServerFault(error.message, code="runtime_append_failed", event_id=error.event_id)


@dataclass(slots=True)
class Submission:
    """A committed turn on its way to the backend, one unit at a time.

    :param item: the user's item to announce once its units were taken; ``None`` if that was done before
    :param sealing: its units were taken, and the backend commits it
    """

    units: deque[HeldUnit]
    fence: Fence
    create: bool
    command: CommitInput | CreateResponse | None
    item: OpenItem | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    sealing: bool = False


class Turns:
    """:param accounts: bytes and operations of the input that turns hold"""

    def __init__(self, shared: Shared, answers: Answers, history: History, accounts: InputAccounts) -> None:
        self._shared = shared
        self._answers = answers
        self._history = history
        self._accounts = accounts
        self.item: OpenItem | None = None
        """The user's item since the last commit or clear."""
        self.last_item: OpenItem | None = None
        """The item that was committed last."""
        self.submission: Submission | None = None
        self.overlap_speech_ms = 0.0
        """Speech that came over a response, counted until one ends."""
        self.unanswered = Unanswered()
        self._retained: Payload | None = None
        self._deferred: Payload | None = None
        self._append_failed = False
        self._aside: OpenItem | None = None
        self.pictures = WaitingPictures()

    def open_item(self, item_id: str | None = None) -> OpenItem:
        """:param item_id: of a spoken message, which is an item of its own; the one that the user is in the
        middle of is set aside until it is committed"""
        if item_id is not None and self.item is not None and self.item.item_id != item_id:
            self._aside, self.item = self.item, None
        if self.item is None:
            self.item = OpenItem(item_id or self._shared.ids("item_"))
        return self.item

    def flush(self, item: OpenItem) -> None:
        """Input that was kept from the engine goes before what follows it."""
        units, item.units = item.units, ()
        for held in units:
            self._shared.do(BackendAppend(held.unit, self._shared.fence, held.appends))

    def append_carried(self, effect: BackendAppend, error: VigilError | None) -> None:
        """The backend took a unit, or refused it."""
        for each in effect.appends:
            self._accounts.settle(each.operation_id, taken=error is None)
        if error is not None and error.event_id is None:
            error.event_id = next((each.event_id for each in effect.appends if each.event_id), None)
        submission = self.submission
        if effect.command is not None or submission is None:
            self._append_failed = error is not None
        if effect.command is not None:
            return
        if error is not None:
            for each in effect.appends:
                self._shared.do(Dropped(each.operation_id, error))
        if submission is None or submission.fence != effect.fence:
            return
        if error is None:
            self._go_on(submission)
        else:
            self._abort(submission, error)

    def append_failed(self) -> bool:
        """The last append failed; asked once, for what comes right behind it."""
        failed, self._append_failed = self._append_failed, False
        return failed

    # --- commits -------------------------------------------------------------------------------------------

    def commit(self, command: CommitInput, *, internal: bool = False) -> None:
        """Seal the open item. ``internal``: the detector asked, so nobody waits for it."""
        if command.item_id is None:
            self._seal(command, internal=internal)
            return
        try:
            self._seal(command, internal=internal)
        finally:  # a message that is refused leaves nothing behind either
            if self.item is not None and self.item.item_id == command.item_id:
                self._discard(self.item.payload(create=False))
                self.item = None
            if self._aside is not None:
                self.item, self._aside = self._aside, None

    def _seal(self, command: CommitInput, *, internal: bool) -> None:
        shared = self._shared
        shared.require_open()
        if self.append_failed():
            raise ServerFault("the append before this commit failed; append again", code="commit_aborted")
        item = self.item
        if item is None:
            raise InvalidRequest(
                "nothing was appended since the last commit", code="input_audio_buffer_empty"
            )
        if command.item_id is not None:
            self._history.check_place(command.item_id, command.previous_item_id)
            item.previous_item_id = command.previous_item_id
        waited = None if internal else command
        pending = bool(item.units) or item.streamed
        if not item.has_content or (command.is_speech is False and not pending):
            self._commit_silence(item, waited)
        elif shared.auto:
            self._commit_streamed(item, command, waited)
        elif self._answers.responding or self.submission is not None:
            self._commit_over_response(item, command, waited)
        elif command.create_response and self._is_murmur(command.duration_ms or 0):
            self._commit_unanswered(item, waited, {"no_response": True})
            reason = "model_turn_completed_without_output"
            self._answers.listen(shared.fence, reason, model_listen=False, asked=True)
        elif command.create_response:
            self._commit_and_answer(item, waited)
        else:
            self._retain(item.payload(create=False))
            self._announce(item, {"is_speech": item.speech})
            self._end_turn(item, waited)

    def _commit_silence(self, item: OpenItem, waited: CommitInput | None) -> None:
        streamed = item.streamed
        details = {"is_speech": False, "no_response": True, "empty": True}
        self._discard(item.payload(create=False))
        self._announce(item, details)
        if streamed:
            self._shared.do(BackendClear())
        else:
            self._answers.listen(self._shared.fence, "silence_or_noise", model_listen=False, asked=True)
        self._complete(waited)

    def _commit_streamed(self, item: OpenItem, command: CommitInput, waited: CommitInput | None) -> None:
        """Auto mode: the model decides; it has all of the item but what was kept from it."""
        shared = self._shared
        self.flush(item)
        self._announce(item, {"is_speech": item.speech})
        self.ask(item)
        if command.create_response and self._answers.active is None:
            shared.move(Trigger.CREATE)
            self._create(Fence(shared.fence.epoch, shared.fence.turn + 1), waited)
        else:
            shared.do(BackendCommit(shared.fence, False, command=waited))

    def _commit_over_response(self, item: OpenItem, command: CommitInput, waited: CommitInput | None) -> None:
        """Turn mode, and a response is being made or played: a murmur is dropped, a turn waits."""
        if self._is_murmur(item.overlap_ms):
            self._commit_unanswered(
                item, waited, {"overlap_ack": True, "no_response": True, "is_speech": False}
            )
            return
        payload = item.payload(create=command.create_response)
        self._deferred = payload if self._deferred is None else self._deferred.merged(payload)
        self._announce(
            item,
            {
                "is_speech": item.speech,
                "overlap_deferred": True,
                "response_create_deferred": command.create_response,
            },
        )
        self._end_turn(item, waited)

    def _commit_unanswered(
        self, item: OpenItem, waited: CommitInput | None, details: Mapping[str, Any]
    ) -> None:
        self._discard(item.payload(create=False))
        self._announce(item, details)
        self._complete(waited)

    def _commit_and_answer(self, item: OpenItem, waited: CommitInput | None) -> None:
        payload = item.payload(create=True)
        if self._retained is not None:
            payload, self._retained = self._retained.merged(payload), None
        self._shared.move(Trigger.CREATE)
        self.item = None
        self._submit(payload, waited, item, {"is_speech": item.speech})

    def _retain(self, payload: Payload) -> None:
        self._retained = payload if self._retained is None else self._retained.merged(payload)

    def _end_turn(self, item: OpenItem, waited: CommitInput | None) -> None:
        """A turn that is not answered now: the backend learns of its words and, if it records, of its end."""
        self.ask(item)
        if self._shared.capabilities.holds_turn_input:
            self._complete(waited)
        else:
            self._shared.do(BackendCommit(self._shared.fence, False, command=waited))

    def _announce(self, item: OpenItem, details: Mapping[str, Any]) -> None:
        """The events of a commit; the open item is closed."""
        shared = self._shared
        if self.item is item:
            self.item = None
        self.last_item = item
        if item.speech_told:
            shared.emit(UserSpeechStopped(item.item_id, 0))
        nobody_spoke = details.get("no_response") and details.get("is_speech") is False
        user = item.snapshot(is_speech=False if nobody_spoke else None)
        previous = self._history.add(user, item.previous_item_id)
        shared.emit(ItemAdded(previous, user))
        shared.emit(ItemCreated(previous, user))
        shared.emit(InputCommitted(previous, item.item_id, details))
        if (transcription := item.transcription()) is not None:
            shared.emit(transcription)
        shared.emit(ItemDone(previous, user))
        if not details.get("no_response"):
            self.unanswered.said()

    def ask(self, item: OpenItem) -> None:
        """Words of the item become the standing query."""
        words = "\n".join(each for each in (item.text, item.transcript) if each.strip())
        if words:
            fact = QueryAsked(words, item.item_id)
            self._shared.do(BackendTell(fact, self._shared.fence))

    # --- responses that are asked for ----------------------------------------------------------------------

    def create(self, command: CreateResponse) -> None:
        shared = self._shared
        if self.submission is not None:
            shared.do(Completed(command))  # one is on its way already
            return
        has_input = self._retained is not None or self.unanswered.recorded
        if self._answers.active is None and not has_input and self.unanswered.messages == 0:
            shared.require_open()
            raise InvalidRequest(
                "there is nothing to answer; append input or ask first",
                code="response_create_without_input",
            )
        text_only = not has_input and not shared.capabilities.supports_text_only_turn
        if self._answers.active is None and text_only:
            raise Unsupported(
                "this model answers speech or pictures, not text alone", code="text_only_turn_unsupported"
            )
        if command.options is not None and not shared.capabilities.response_options:
            raise Unsupported(
                "a response of this model has no settings of its own; update the session instead",
                code="unsupported_native_response_options",
                param="response",
            )
        shared.move(Trigger.CREATE)
        payload, self._retained = self._retained or Payload(), None
        self._submit(payload, command)

    def adopt(self, pictures: tuple[AppendInput, ...]) -> None:
        """Pictures of a user's message: for the backend now, or with the turn that will be asked for."""
        for append in pictures:
            self.pictures.add(append)
            if self._shared.auto or not self._shared.capabilities.holds_turn_input:
                self.unanswered.recorded = True
                self._shared.do(BackendAppend(append.unit, self._shared.fence, (append,)))
            else:
                self._retain(Payload((HeldUnit.of(append),)))

    def forgo(self, pictures: tuple[AppendInput, ...]) -> None:
        """Pictures of a message that was refused, or that the session's end overtook: nothing is kept."""
        for append in pictures:
            self._accounts.settle(append.operation_id, taken=False)

    def response_over(self, status: str) -> None:
        """A response ended in order: a turn that waited for its end is answered now."""
        self.overlap_speech_ms = 0.0
        payload, self._deferred = self._deferred, None
        if payload is None or self._answers.active is not None:
            self._deferred = payload
            return
        if payload.create and status != "failed":
            self._shared.move(Trigger.CREATE)
            self._submit(payload, None)
        else:
            self._retain(payload)

    def promote(self) -> None:
        """Answer a turn that waited only for the end of a playback, once that is over."""
        if self._deferred is not None and not self._answers.responding:
            self.response_over("completed")

    def _submit(
        self,
        payload: Payload,
        command: CommitInput | CreateResponse | None,
        item: OpenItem | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Hand a turn over, unit by unit; then announce it and ask for its answer."""
        current = self._shared.fence
        turn = current.turn + 1 if payload.turn is None else payload.turn
        submission = Submission(
            deque(payload.units), Fence(current.epoch, turn), True, command, item, details or {}
        )
        self.submission = submission
        self._go_on(submission)

    def _go_on(self, submission: Submission) -> None:
        if submission.units:
            held = submission.units.popleft()
            self._shared.do(BackendAppend(held.unit, submission.fence, held.appends))
            return
        item = submission.item
        if item is not None and self._shared.capabilities.seals_first:
            submission.sealing = True
            self.ask(item)
            self._shared.do(BackendCommit(submission.fence, True))
            return
        self.submission = None
        if item is not None:
            self._announce(item, submission.details)
            self.ask(item)
        self._create(submission.fence, submission.command)

    def holds_back(self, fence: Fence) -> bool:
        """Output of that fence answers a turn that the client was not told of yet."""
        submission = self.submission
        return submission is not None and submission.sealing and submission.fence == fence

    def committed(self, fence: Fence, error: VigilError | None) -> bool:
        """The backend committed the turn that waits for that, or refused to; False: none waits."""
        submission = self.submission
        if submission is None or not self.holds_back(fence) or submission.item is None:
            return False
        self.submission = None
        if error is None:
            self._announce(submission.item, submission.details)
            self._create(fence, submission.command, sealed=True)
        else:
            self._shared.move(Trigger.DONE)
            self._refuse(error, submission.command)
        return True

    def _refuse(self, error: VigilError, command: CommitInput | CreateResponse | None) -> None:
        if command is None:
            self._shared.error(error)
        else:
            error.event_id = command.event_id
            self._shared.do(Reject(error, command, error))

    def _create(
        self, fence: Fence, command: CommitInput | CreateResponse | None, *, sealed: bool = False
    ) -> None:
        self.unanswered.ask()
        self.pictures.clear()
        create = command if isinstance(command, CreateResponse) else CreateResponse()
        self._answers.request(fence, create)
        if (options := self._options(create)) is not None:
            self._shared.do(BackendTell(options, fence))
        if sealed:
            self._complete(command)
        else:
            self._shared.do(BackendCommit(fence, True, command=command))

    def _options(self, create: CreateResponse) -> ResponseOptions | None:
        """What the backend has to know of this one response."""
        shared, options = self._shared, create.options
        modalities = shared.offered(create.modalities)
        if modalities == shared.modalities or not shared.capabilities.response_options:
            return options
        return replace(options or ResponseOptions(), modalities=modalities)

    def _abort(self, submission: Submission, error: VigilError) -> None:
        """A unit was refused: the rest waits for another try, nothing was announced."""
        self.submission = None
        self._shared.move(Trigger.DONE)
        if submission.units:
            self._retain(Payload(tuple(submission.units)))
        self._shared.error(told_of_append(error))
        aborted = ServerFault(f"its input was refused: {error.message}", code="commit_aborted")
        if submission.command is not None:
            aborted.event_id = submission.command.event_id
            self._shared.do(Reject(aborted, submission.command, aborted))

    # --- letting go ----------------------------------------------------------------------------------------

    def clear(self) -> None:
        """Drop everything that was not answered yet."""
        self.release_all()
        self.unanswered.clear()
        self._shared.emit(InputCleared())

    def discard_waiting(self) -> None:
        """Drop turns that are committed and unanswered; input that is not committed yet stays."""
        self.overlap_speech_ms = 0.0
        self._discard(self._deferred)
        self._deferred = None
        submission, self.submission = self.submission, None
        if submission is not None:
            self._discard(Payload(tuple(submission.units)))
            if submission.command is not None:
                stale = Conflict("a cancel came before this was answered", code=STALE_FENCE)
                self._shared.do(Reject(stale, submission.command, None))
        if self.item is not None:
            self.item.turn = None

    def release_all(self) -> None:
        """The session ends: nothing is held any more."""
        self.discard_waiting()
        self._discard(self._retained)
        for item in (self.item, self._aside):
            if item is not None:
                self._discard(item.payload(create=False))
        self.item = self._aside = self._retained = None

    def _discard(self, payload: Payload | None) -> None:
        for append in payload.appends if payload is not None else ():
            self._accounts.settle(append.operation_id, taken=False)
            self.pictures.over(append.operation_id)
            dropped = Conflict("this input was dropped before it was used", code=STALE_FENCE)
            self._shared.do(Dropped(append.operation_id, dropped))

    # --- small helpers -------------------------------------------------------------------------------------

    def _is_murmur(self, duration_ms: float) -> bool:
        return 0 < duration_ms <= self._shared.config.overlap_short_ack_ms

    def _complete(self, command: AnyCommand | None) -> None:
        if command is not None:
            self._shared.do(Completed(command))

    def statistics(self) -> dict[str, object]:
        return {
            "held_units": len(self.item.units) if self.item is not None else 0,
            "retained": self._retained is not None,
            "deferred": self._deferred is not None,
        }
