"""The conversation a client works on: items, the standing query, what it says it has played."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.session.answers import Answers
from orchestrator.session.commands import (
    AppendInput,
    AskQuery,
    ClearQuery,
    CreateItem,
    DeleteItem,
    PlaybackAck,
    RetrieveItem,
    TruncateItem,
)
from orchestrator.session.effects import BackendPlayback, BackendTell, Completed
from orchestrator.session.events import (
    ItemAdded,
    ItemCreated,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    PlaybackAcknowledged,
)
from orchestrator.session.history import History
from orchestrator.session.items import ContentPart, Item
from orchestrator.session.playback import Cursors, Playback, PlaybackBook, PlaybackPolicy
from orchestrator.session.shared import Shared
from orchestrator.session.states import Trigger
from orchestrator.session.told import Heard, QueryAsked, QueryCleared
from orchestrator.session.turns import Turns
from orchestrator.wire.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class _Adding:
    """A user's message on its way to the backend: where it wants to be, and what comes with it."""

    item: Item
    previous_item_id: str | None = None
    pictures: tuple[AppendInput, ...] = ()


class Conversation:
    """:param turns: told when a user's message was added, and given its pictures"""

    def __init__(
        self,
        shared: Shared,
        answers: Answers,
        history: History,
        book: PlaybackBook,
        turns: Turns,
    ) -> None:
        self._shared = shared
        self._answers = answers
        self._history = history
        self._book = book
        self._turns = turns
        self._adding: dict[str, _Adding] = {}

    # --- items ---------------------------------------------------------------------------------------------

    def ask(self, command: AskQuery) -> None:
        """Set or replace the standing query. Its item is announced when the backend has it."""
        item = Item(command.operation_id, "user", content=(ContentPart("input_text", command.text),))
        self._history.hold(item.item_id)
        self._shared.move(Trigger.INPUT)
        self._adding[item.item_id] = _Adding(item)
        fact = QueryAsked(command.text, item.item_id, command.repeat_ok)
        self._shared.do(BackendTell(fact, self._shared.fence, command=command))

    def open_with(self, text: str) -> None:
        """The user's opening words: a message that nobody waits for, unless the model has them already."""
        if self._shared.capabilities.takes_opening:
            self._shared.move(Trigger.INPUT)
            self._turns.unanswered.said()
            return
        item = Item(self._shared.ids("item_"), "user", content=(ContentPart("input_text", text),))
        self.create(CreateItem(item))

    def create(self, command: CreateItem) -> None:
        item = command.item
        text = "".join(part.text for part in item.content if part.kind == "input_text")
        if command.pictures:
            self._turns.pictures.check(command.pictures)
            self._shared.move(Trigger.INPUT)
        if item.role == "user" and text.strip():
            self._history.hold(item.item_id, command.previous_item_id)
            self._shared.move(Trigger.INPUT)
            self._adding[item.item_id] = _Adding(item, command.previous_item_id, command.pictures)
            fact = QueryAsked(text, item.item_id)
            self._shared.do(BackendTell(fact, self._shared.fence, command=command))
            return
        self._announce(item, self._history.add(item, command.previous_item_id))
        self._turns.adopt(command.pictures)
        if command.pictures:
            self._turns.unanswered.said()
        self._shared.do(Completed(command))

    def asked(self, fact: QueryAsked, *, taken: bool) -> None:
        """The backend took a query, or refused it."""
        if fact.item_id not in self._adding:
            return  # words of a committed item, announced by the commit
        adding = self._adding.pop(fact.item_id)
        self._history.release(fact.item_id)
        if taken:
            self._announce(adding.item, self._history.place(adding.item, adding.previous_item_id))
            self._turns.unanswered.said()
        if taken and self._shared.state.is_open:
            self._turns.adopt(adding.pictures)
        else:
            self._turns.forgo(adding.pictures)

    def clear_query(self, command: ClearQuery) -> None:
        self._shared.require_open()
        fact = QueryCleared(command.item_id)
        self._shared.do(BackendTell(fact, self._shared.fence, command=command))

    def retrieve(self, command: RetrieveItem) -> None:
        self._shared.require_open()
        self._shared.emit(ItemRetrieved(self._history.retrieve(_named(command.item_id))))
        self._shared.do(Completed(command))

    def delete(self, command: DeleteItem) -> None:
        shared = self._shared
        shared.require_open()
        item_id = _named(command.item_id)
        active = [*self._answers.draining, self._answers.active]
        if any(response is not None and response.item_id == item_id for response in active):
            raise InvalidRequest(
                "the response of this item is not over; cancel it first", code="bad_event", param="item_id"
            )
        item = self._history.delete(item_id)
        shared.emit(ItemDeleted(item.item_id))
        ledger = self._ledger_of(item)
        if item.role == "user":
            shared.do(BackendTell(QueryCleared(item.item_id), shared.fence, command=command))
        elif ledger is not None:
            unheard = Heard(ledger.response_id, "", complete=False)
            shared.do(BackendTell(unheard, ledger.fence, command=command))
        else:
            shared.do(Completed(command))

    def _announce(self, item: Item, previous: str | None) -> None:
        for event in (ItemAdded(previous, item), ItemCreated(previous, item), ItemDone(previous, item)):
            self._shared.emit(event)

    # --- playback ------------------------------------------------------------------------------------------

    def ack(self, command: PlaybackAck) -> None:
        shared = self._shared
        shared.require_open()
        active = self._answers.active
        ledger = self._book.target(
            shared.now,
            command.response_id,
            command.item_id,
            active.response_id if active is not None else None,
        )
        changed = False
        self._book.policy = PlaybackPolicy.ACK_ONLY
        if ledger is not None:
            # Even an ack that is too late for history says that the playback went on.
            self._book.apply(ledger, command.played_ms, command.committed_ms)
            self._history.reserve(ledger.item_id)
            changed = self._answers.hear(ledger) if ledger.ended else False
            shared.do(
                BackendPlayback(ledger.response_id, ledger.fence, ledger.played_ms, ledger.committed_ms)
            )
        self._acknowledge(ledger, truncate=False, changed=changed)
        shared.do(Completed(command))

    def truncate(self, command: TruncateItem) -> None:
        shared = self._shared
        shared.require_open()
        item = self._history.retrieve(_named(command.item_id))
        ledger = self._ledger_of(item)
        if ledger is None or not ledger.spoken or command.content_index != 0:
            raise InvalidRequest(
                "only the audio part of an assistant item can be truncated",
                code="bad_event",
                param="content_index",
            )
        if not 0 <= command.audio_end_ms <= ledger.total_ms:
            raise InvalidRequest(
                f"audio_end_ms lies between 0 and the {ledger.total_ms} ms of the item",
                code="bad_event",
                param="audio_end_ms",
            )
        end_ms = int(command.audio_end_ms)
        if not self._history.too_late(item.item_id):
            self._history.reserve(item.item_id)
        ledger.truncate(end_ms)
        changed = False
        if ledger.ended:
            changed = self._answers.hear(ledger)
            part = ContentPart("output_audio", ledger.heard(), ledger.audible_ms, ledger.marks)
            self._history.update(Item(item.item_id, item.role, item.status, (part,)))
        shared.emit(ItemTruncated(item.item_id, command.content_index, end_ms))
        self._acknowledge(ledger, truncate=True, changed=changed)
        shared.do(BackendPlayback(ledger.response_id, ledger.fence, ledger.heard_ms, ledger.heard_ms))
        shared.do(Completed(command))

    def _acknowledge(self, ledger: Playback | None, *, truncate: bool, changed: bool) -> None:
        cursors = ledger.cursors() if ledger is not None else Cursors()
        item_id = ledger.item_id if ledger is not None else None
        self._shared.emit(PlaybackAcknowledged(self._shared.fence, item_id, cursors, truncate, changed))

    def _ledger_of(self, item: Item) -> Playback | None:
        return self._book.get(item.item_id.removeprefix("item_")) if item.role == "assistant" else None


def _named(item_id: str | None) -> str:
    if not item_id:
        raise InvalidRequest("item_id is missing", code="missing_item_id", param="item_id")
    return item_id
