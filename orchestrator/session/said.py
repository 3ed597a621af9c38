"""What the user said, as the backend's ears found it: words of an item, which are asked like typed ones."""

from __future__ import annotations

from orchestrator.session.backend import UserTranscript
from orchestrator.session.commands import CommitInput
from orchestrator.session.events import (
    ItemAdded,
    ItemCreated,
    ItemDone,
    TranscriptionCompleted,
    TranscriptionDelta,
)
from orchestrator.session.history import History
from orchestrator.session.input_ledger import OpenItem
from orchestrator.session.shared import Shared
from orchestrator.session.states import Trigger
from orchestrator.session.turns import Turns
from orchestrator.wire.errors import VigilError


class Said:
    def __init__(self, shared: Shared, turns: Turns, history: History) -> None:
        self._shared = shared
        self._turns = turns
        self._history = history

    def take(self, heard: UserTranscript) -> None:
        shared, turns = self._shared, self._turns
        item = turns.item or turns.last_item
        if not heard.final:
            if item is not None:
                shared.emit(TranscriptionDelta(item.item_id, heard.text))
        elif shared.capabilities.transcribes:
            self._ask(heard.text, (heard.end_ms or 0) - (heard.start_ms or 0))
        elif item is not None:
            shared.emit(TranscriptionCompleted(item.item_id, heard.text, round(item.audio_ms)))

    def _ask(self, text: str, speech_ms: float) -> None:
        """In turn mode words that the detector ended are a turn; without a detector they belong to the turn
        that the client committed before they were known."""
        shared, turns = self._shared, self._turns
        detection = shared.config.turn_detection
        by_client = detection is None and not shared.auto
        item = turns.last_item if by_client else turns.open_item()
        if item is None:
            return
        item.transcript, item.speech_ms, item.speech = text, speech_ms, True
        if item is not turns.item:
            self._belated(item)
        elif shared.auto or detection is None:
            self._message(item)
        else:
            try:
                turns.commit(CommitInput(detection.create_response), internal=True)
            except VigilError as refused:
                shared.error(refused)  # as for a commit of the client's own; the session goes on

    def _message(self, item: OpenItem) -> None:
        """Auto mode: they are a message of their own, and nothing is committed."""
        shared, turns = self._shared, self._turns
        turns.flush(item)
        turns.item, turns.last_item = None, item
        shared.move(Trigger.INPUT)
        user = item.snapshot()
        previous = self._history.add(user)
        shared.emit(ItemAdded(previous, user))
        shared.emit(ItemCreated(previous, user))
        self._tell(item)
        shared.emit(ItemDone(previous, user))
        turns.unanswered.said()
        turns.ask(item)

    def _belated(self, item: OpenItem) -> None:
        self._history.update(item.snapshot())
        self._tell(item)
        self._turns.ask(item)

    def _tell(self, item: OpenItem) -> None:
        if (transcription := item.transcription()) is not None:
            self._shared.emit(transcription)
